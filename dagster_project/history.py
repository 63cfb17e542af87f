"""What Dagster keeps for ever: events of assets that belong to no run, and files of runs; removed once nobody looks at it (SPEC A3).

Dagster has no way of its own for either (docs/clients.md D13): its tables are written here, and nowhere else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from sqlalchemy import ColumnElement, Connection, func, select

Connect = Callable[[], AbstractContextManager[Connection]]

EVENTS, CHECKS, TAGS = SqlEventLogStorageTable, AssetCheckExecutionsTable, AssetEventTagsTable
PAGE = 500
"""Rows of one transaction: others write, too."""
NO_RUN = ""
"""The run of an event that belongs to none."""
EVALUATION = "ASSET_CHECK_EVALUATION"


def delete_run(instance: dg.DagsterInstance, run_id: str) -> None:
    """A run with its events, and the files that Dagster would leave: its logs, and on SQLite a database of its own."""
    storage = instance.event_log_storage
    if isinstance(
        storage, SqliteEventLogStorage
    ):  # not `delete_run`, which opens the run's database, or makes one: 70 ms each
        instance.run_storage.delete_run(run_id)
        with storage.index_connection() as c:
            storage.delete_events_for_run(c, run_id)
        storage.free_concurrency_slots_for_run(run_id)
        for suffix in ("", "-wal", "-shm"):
            Path(storage.path_for_shard(run_id) + suffix).unlink(missing_ok=True)
    else:
        instance.delete_run(run_id)
    with contextlib.suppress(NotImplementedError):
        instance.compute_log_manager.delete_logs(prefix=[run_id])


def forget(instance: dg.DagsterInstance, asset: dg.AssetKey, *, before: datetime, below: str) -> int:
    """Remove old events of an asset; how many. None where Dagster keeps its events elsewhere than in a database.

    Of partitions those `below` the lowest one that is there; of the asset as a whole all but the latest of each kind and check.
    """
    storage = instance.event_log_storage
    if not isinstance(storage, SqlEventLogStorage):
        return 0
    at, key = before.astimezone(UTC).replace(tzinfo=None), asset.to_string()
    index: Connect = storage.index_connection
    copies: list[Connect] = [index]  # SQLite writes each event twice; nobody reads the copy of what belongs to no run
    if isinstance(storage, SqliteEventLogStorage):
        copies.append(lambda: storage.run_connection(NO_RUN))
    removed = 0
    for connect in copies:
        old = (EVENTS.c.asset_key == key, EVENTS.c.timestamp < at)
        removed += _delete_events(connect, *old, EVENTS.c.partition < below)
        removed += _delete_events(
            connect, *old, EVENTS.c.partition.is_(None), EVENTS.c.id.not_in(_latest(connect, key))
        )
    return removed + _forget_checks(index, copies[1:], key, at)


def _latest(connect: Connect, asset: str) -> Sequence[int]:
    """The latest event of each kind of the asset as a whole."""
    of_whole = (EVENTS.c.asset_key == asset, EVENTS.c.partition.is_(None))
    with connect() as c:
        return c.scalars(select(func.max(EVENTS.c.id)).where(*of_whole).group_by(EVENTS.c.dagster_event_type)).all()


def _delete_events(connect: Connect, *which: ColumnElement[bool]) -> int:
    """Page by page."""
    removed = 0
    while True:
        with connect() as c:
            page = c.scalars(select(EVENTS.c.id).where(*which).limit(PAGE)).all()
            c.execute(EVENTS.delete().where(EVENTS.c.id.in_(page)))
            c.execute(TAGS.delete().where(TAGS.c.event_id.in_(page)))
        removed += len(page)
        if len(page) < PAGE:
            return removed


def _forget_checks(index: Connect, copies: Sequence[Connect], asset: str, at: datetime) -> int:
    """Outcomes of an asset's checks but for the latest of each; events of checks name their asset in their text alone."""
    of_asset, removed = CHECKS.c.asset_key == asset, 0
    with index() as c:
        latest = c.scalars(select(func.max(CHECKS.c.id)).where(of_asset).group_by(CHECKS.c.check_name)).all()
    old = (of_asset, CHECKS.c.evaluation_event_timestamp < at, CHECKS.c.id.not_in(latest))
    while True:
        with index() as c:
            page = c.execute(select(CHECKS.c.id, CHECKS.c.evaluation_event_storage_id).where(*old).limit(PAGE)).all()
            told = (EVENTS.c.id.in_([event for _, event in page]), EVENTS.c.run_id == NO_RUN)
            times = c.scalars(select(EVENTS.c.timestamp).where(*told)).all()
            c.execute(EVENTS.delete().where(*told))
            c.execute(CHECKS.delete().where(CHECKS.c.id.in_([row for row, _ in page])))
        for connect in copies:
            with connect() as c:
                c.execute(
                    EVENTS.delete().where(EVENTS.c.dagster_event_type == EVALUATION, EVENTS.c.timestamp.in_(times))
                )
        removed += len(page)
        if len(page) < PAGE:
            return removed
