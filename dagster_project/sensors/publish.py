"""Publishing: merged checkpoints become partitions, and tables get what is published; superseded ones leave (SPEC A3, A4, A7, X4).

A tick reads what is new since the last one, by id. Every `WHOLE` seconds, and when the latest published checkpoint was superseded,
it compares everything: ids only, never archives.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from crkafka_core.control import Reader
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Checkpoint, Region
from crkafka_core.plane import checkpoints
from dagster_project import metadata, partitions
from dagster_project.metadata import Counted
from dagster_project.names import Names, key_of, keys_of
from dagster_project.sensors import tables
from dagster_project.sensors.shared import Cursor, SensorSetup, UnresolvedJob, attempt, read_or_skip

CHUNK = 200
"""Changes of one tick: the daemon takes some 3 ms for a partition and 8 ms for an event, ten times that on a busy machine, and where its
sensors share one thread all others wait meanwhile (docs/clients.md C-D1, C-D5)."""

WHOLE = 600.0
"""Seconds after which everything is compared again: a person may have deleted a partition."""


@dataclass(frozen=True)
class PublishCursor(Cursor):
    """Where the last tick ended. It only saves work: without it, everything is compared."""

    uid: str = ""
    """Of the region whose checkpoints are published: one of the same name may have followed it (SPEC G6)."""
    top: int = 0
    """The latest checkpoint that is published and was live then."""
    materialized: int = 0
    """The highest checkpoint that was ever materialized: one that comes back is not materialized again, and wakes nothing."""
    count: int = 0
    """Partitions that Dagster has."""
    compared: float = 0.0
    """When everything was compared last, by database time; 0: more is to be done."""
    tables: dict[str, int] = field(default_factory=dict)
    """Per table, the checkpoint up to which its materializations were reported."""
    counted: dict[str, Counted] = field(default_factory=dict)
    """Per table, its rows so far."""


@dataclass(frozen=True)
class Tick:
    """What one tick publishes, and where the next one begins."""

    change: partitions.Change
    events: list[dg.AssetMaterialization]
    cursor: PublishCursor

    def requests(self, names: Names) -> list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest]:
        """What Dagster is asked to do with the partitions."""
        definition, change = partitions.definition(names), self.change
        return [
            *([definition.build_delete_request(list(change.remove))] if change.remove else []),
            *([definition.build_add_request(list(change.add))] if change.add else []),
        ]


class Publisher:
    """One tick over one snapshot of the control plane."""

    def __init__(self, names: Names, instance: Callable[[], dg.DagsterInstance], history: int) -> None:
        self._names = names
        self._instance = instance
        self._history = history

    def plan(self, reader: Reader, region: Region, cursor: PublishCursor) -> Tick:
        """What has to be done, and where the next tick begins."""
        now = reader.now()
        if cursor.uid and cursor.uid != region.uid:
            return self._leave(cursor)
        recent = cursor.uid and 0 <= now - cursor.compared < WHOLE and self._still(reader, region, cursor.top)
        new = self._new(reader, region, cursor) if recent else None
        if new is not None:
            change, cursor = new
        else:
            present = list(self._instance().get_dynamic_partitions(self._names.partitions))
            change, top = self._compare(reader, region, present)
            cursor = dataclasses.replace(cursor, compared=0.0 if change.more else now, count=len(present), top=top)
        added = [int(k) for k in change.add]
        events = metadata.landed(reader, self._names.records, [i for i in added if i > cursor.materialized])
        return Tick(
            change,
            events,
            dataclasses.replace(
                cursor,
                uid=region.uid,
                top=max([cursor.top, *added]),
                materialized=max([cursor.materialized, cursor.top, *added]),  # events go before partitions
                count=cursor.count + len(change.add) - len(change.remove),
            ),
        )

    def _leave(self, cursor: PublishCursor) -> Tick:
        """The partitions of a region that is gone leave first: its numbers mean something else now."""
        lowest = self._lowest(CHUNK + 1)
        change = partitions.Change(remove=tuple(lowest[:CHUNK]), more=True)
        return Tick(change, [], cursor if len(lowest) > CHUNK else PublishCursor())

    def _still(self, reader: Reader, region: Region, checkpoint: int) -> bool:
        row = reader.get(Checkpoint, checkpoint) if checkpoint else None
        return not checkpoint or (row is not None and row.status in checkpoints.LIVE)

    def _new(
        self, reader: Reader, region: Region, cursor: PublishCursor
    ) -> tuple[partitions.Change, PublishCursor] | None:
        """What came since, and a cursor behind what another tick has published of it; None where that is not its beginning."""
        fresh = checkpoints.filled(reader, above=cursor.top, oldest=CHUNK + 1)
        keys = keys_of(fresh[:CHUNK])
        known = set(self._instance().get_existing_dynamic_partitions(self._names.partitions, keys)) if keys else set()
        if known != set(keys[: len(known)]):
            return None
        if known:
            top = fresh[len(known) - 1]
            cursor = dataclasses.replace(
                cursor, top=top, materialized=max(cursor.materialized, top), count=cursor.count + len(known)
            )
        add = keys[len(known) :]
        excess = min(CHUNK, cursor.count + len(add) - self._history)
        remove = self._lowest(excess) if keys and excess > 0 else []
        change = partitions.Change(tuple(add), tuple(k for k in remove if k not in keys), more=len(fresh) > CHUNK)
        return change, cursor

    def _compare(self, reader: Reader, region: Region, present: list[str]) -> tuple[partitions.Change, int]:
        """What is to be done about what is there, and the latest live checkpoint that is there and stays."""
        live = checkpoints.filled(reader, latest=self._history)
        change = partitions.reconcile(present, keys_of(live), chunk=CHUNK)
        if not change.remove:  # all that is there is live
            return change, int(present[-1]) if present else 0
        kept = set(present) - set(change.remove)
        return change, next((i for i in reversed(live) if key_of(i) in kept), 0)

    def _lowest(self, count: int) -> Sequence[str]:
        page = self._instance().get_paginated_dynamic_partitions(self._names.partitions, limit=count, ascending=True)
        return page.results


def look(
    reader: Reader, row: Region, setup: SensorSetup, publisher: Publisher, cursor: PublishCursor
) -> tuple[Tick, tables.Seen]:
    """What is to be published, and how far the tables are."""
    tick = publisher.plan(reader, row, cursor)
    mine = tick.cursor.uid == row.uid  # else the partitions of a region that is gone are still leaving
    known = tick.cursor if mine else PublishCursor()
    return tick, tables.look(reader, row, setup, known.tables, known.counted, some=mine)


def publish(context: dg.SensorEvaluationContext, setup: SensorSetup) -> dg.SensorResult | dg.SkipReason:
    """One tick."""
    region, names = setup.region, setup.names
    if refused := tables.declare(region):
        return dg.SkipReason(refused)
    cursor = PublishCursor.parse(context.cursor)
    publisher = Publisher(names, lambda: context.instance, region.settings.ui_history)
    answer = read_or_skip(region, lambda reader, row: look(reader, row, setup, publisher, cursor))
    if isinstance(answer, dg.SkipReason):
        return answer
    tick, seen = answer
    change = tick.change
    changed = change.add or change.remove or not cursor.uid
    if changed and (other := partitions.claim(context.instance, region, published=tick.cursor.uid)):
        return dg.SkipReason(other)
    # The attempt goes on with time, whatever is cut meanwhile, so that what a failed run left is asked for again.
    turn, defined = attempt(seen.now, seen.region.created_at), {t.name for t in region.settings.tables}
    requests, reasons = tables.requests_for(context, names, seen, change, turn, defined)
    after = dataclasses.replace(
        tick.cursor,
        tables={**tick.cursor.tables, **{name: part.upto for name, part in seen.new.items()}},
        counted={**tick.cursor.counted, **{name: part.counted for name, part in seen.new.items()}},
    )
    text = f"{plural(after.count, 'checkpoint is', 'checkpoints are')} published"
    if change.add or change.remove:
        text = f"{len(change.add)} published, {len(change.remove)} removed{', more to come' if change.more else ''}"
    return dg.SensorResult(
        run_requests=requests,
        dynamic_partitions_requests=tick.requests(names),
        asset_events=[*tick.events, *tables.materializations(context, names, seen)],
        cursor=str(after),
        skip_reason=None if requests else dg.SkipReason("; ".join([text, *reasons])),
    )


def sensor(setup: SensorSetup, jobs: Sequence[dg.JobDefinition | UnresolvedJob]) -> dg.SensorDefinition:
    """`jobs`: those that write tables; none where the region declares no table."""
    # Dagster lets a sensor name jobs or an asset, whose page shows it then, but not both.
    asset = dg.AssetSelection.assets(setup.names.records)
    shown_at: dict[str, Any] = {"jobs": jobs} if jobs else {"asset_selection": asset}
    return dg.SensorDefinition(
        name=setup.names.of("publish"),
        evaluation_fn=lambda context: publish(context, setup),
        minimum_interval_seconds=setup.every(1),
        default_status=setup.status,
        description="Adds a partition for each merged checkpoint with records, and removes superseded ones. Reports what a host has "
        "written into tables as materializations; launches a run for what no host writes, a range of checkpoints at a time.",
        **shown_at,
    )
