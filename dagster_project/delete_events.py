"""What Dagster keeps for ever: events of assets that belong to no run, and files of runs; removed once nobody looks at it (SPEC A3).

Dagster has no way of its own for either (docs/clients.md C-D13): its tables are written here, and nowhere else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
from sqlalchemy import ColumnElement, Connection, case, func, select, union

from dagster_project.compat import storage as private

Connect = Callable[[], AbstractContextManager[Connection]]

EVENTS, CHECKS, TAGS = private.SqlEventLogStorageTable, private.AssetCheckExecutionsTable, private.AssetEventTagsTable
RUNS, RUN_TAGS = private.RunsTable, private.RunTagsTable
SLOTS, PENDING = private.ConcurrencySlotsTable, private.PendingStepsTable
PAGE = 500
"""Rows of one transaction: others write, too."""
NO_RUN = ""
"""The run of an event that belongs to none."""
EVALUATION = "ASSET_CHECK_EVALUATION"


def delete_runs(instance: dg.DagsterInstance, run_ids: Sequence[str]) -> None:
    """A page of runs with their events, and the files that Dagster would leave: logs, and on SQLite a database of each.

    Runs go last, so that those whose removal was interrupted are found again.
    """
    runs, events = instance.run_storage, instance.event_log_storage
    if isinstance(events, private.SqlEventLogStorage):
        _delete_events_of(events, run_ids)
    for run_id in run_ids:
        with contextlib.suppress(NotImplementedError):
            instance.compute_log_manager.delete_logs(prefix=[run_id])
    if isinstance(runs, private.SqlRunStorage) and isinstance(
        events, private.SqlEventLogStorage
    ):  # not `delete_run`, which takes five transactions for each and on SQLite leaves the tags
        with runs.connect() as c:
            c.execute(RUN_TAGS.delete().where(RUN_TAGS.c.run_id.in_(run_ids)))
            c.execute(RUNS.delete().where(RUNS.c.run_id.in_(run_ids)))
    else:
        for run_id in run_ids:
            instance.delete_run(run_id)


def _delete_events_of(storage: private.SqlEventLogStorage, run_ids: Sequence[str]) -> None:
    """The events of runs, their places in pools, and on SQLite the database that each has."""
    with storage.index_connection() as c:
        of_runs = EVENTS.c.run_id.in_(run_ids)
        of_assets = c.scalars(select(EVENTS.c.id).where(of_runs, EVENTS.c.asset_key.is_not(None))).all()
        c.execute(TAGS.delete().where(TAGS.c.event_id.in_(of_assets)))
        c.execute(EVENTS.delete().where(of_runs))
        holders: Sequence[str] = ()
        if storage.supports_global_concurrency_limits:
            places = union(*(select(t.c.run_id).where(t.c.run_id.in_(run_ids)) for t in (SLOTS, PENDING)))
            holders = c.scalars(places).all()
    for run_id in holders:
        storage.free_concurrency_slots_for_run(run_id)
    if isinstance(storage, private.SqliteEventLogStorage):
        for run_id in run_ids:
            for suffix in ("", "-wal", "-shm"):
                Path(storage.path_for_shard(run_id) + suffix).unlink(missing_ok=True)


def forget(instance: dg.DagsterInstance, asset: dg.AssetKey, *, before: datetime, below: str, limit: int) -> int:
    """Remove old events of an asset, so many of a kind at most; how many. None where Dagster keeps them elsewhere than in a database.

    Of partitions those `below` the lowest one that is there; of the asset as a whole all but the latest of each kind and check.
    """
    storage = instance.event_log_storage
    if not isinstance(storage, private.SqlEventLogStorage):
        return 0
    at, key = before.astimezone(UTC).replace(tzinfo=None), asset.to_string()
    index: Connect = storage.index_connection
    copies: list[Connect] = [index]  # SQLite writes each event twice; nobody reads the copy of what belongs to no run
    if isinstance(storage, private.SqliteEventLogStorage):
        copies.append(lambda: storage.run_connection(NO_RUN))
    removed = 0
    for connect in copies:
        for kind, latest in _kinds(connect, key).items():
            old = (EVENTS.c.asset_key == key, EVENTS.c.dagster_event_type == kind, EVENTS.c.timestamp < at)
            gone = EVENTS.c.partition < below
            of_whole = EVENTS.c.partition.is_(None) & (EVENTS.c.id != latest)
            removed += _delete_events(connect, limit, *old, gone | of_whole)
    return removed + _forget_checks(index, copies[1:], key, at, limit)


def _kinds(connect: Connect, asset: str) -> dict[str, int]:
    """The kinds of events that an asset has, with the latest one of the asset as a whole, or 0."""
    of_whole = func.max(case((EVENTS.c.partition.is_(None), EVENTS.c.id), else_=0))
    with connect() as c:
        kinds = select(EVENTS.c.dagster_event_type, of_whole).where(EVENTS.c.asset_key == asset)
        return {row[0]: row[1] for row in c.execute(kinds.group_by(EVENTS.c.dagster_event_type))}


def _delete_events(connect: Connect, limit: int, *which: ColumnElement[bool]) -> int:
    """Page by page, oldest first: each begins behind the last, so that what stays is passed over once."""
    removed = last = 0
    while removed < limit:
        with connect() as c:
            more = select(EVENTS.c.id).where(*which, EVENTS.c.id > last).order_by(EVENTS.c.id)
            page = c.scalars(more.limit(min(PAGE, limit - removed))).all()
            if not page:
                break
            c.execute(TAGS.delete().where(TAGS.c.event_id.in_(page)))
            c.execute(EVENTS.delete().where(EVENTS.c.id.in_(page)))
        removed, last = removed + len(page), page[-1]
    return removed


def _forget_checks(index: Connect, copies: Sequence[Connect], asset: str, at: datetime, limit: int) -> int:
    """Outcomes of an asset's checks but for the latest of each; events of checks name their asset in their text alone."""
    of_asset, removed, full = CHECKS.c.asset_key == asset, 0, True
    with index() as c:
        latest = c.scalars(select(func.max(CHECKS.c.id)).where(of_asset).group_by(CHECKS.c.check_name)).all()
    old = (of_asset, CHECKS.c.evaluation_event_timestamp < at, CHECKS.c.id.not_in(latest))
    while full and removed < limit:
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
        removed, full = removed + len(page), len(page) == PAGE
    return removed
