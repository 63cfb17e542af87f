"""Tables keep up: one run takes all that waits, in a range; never one run each (SPEC A7)."""

from __future__ import annotations

import dagster as dg

from crkafka_core.control import Reader
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import resets, tables
from dagster_project import partitions
from dagster_project.names import Names, key_of
from dagster_project.sensors.asking import Made, asked, attempt, on_its_way, run_key

RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
TABLE = "crkafka/table"
"""Tag of the runs that write a table."""


def waiting(
    reader: Reader, region: Region, names: list[str], *, limit: int
) -> tuple[Region, float, dict[str, tuple[str, list[int]]]]:
    """Per table that may be written: who writes it at this moment, and which checkpoints wait for it."""
    if region.phase is Phase.REWINDING or resets.unfenced(reader, region.name):
        return region, reader.now(), {}
    found: dict[str, tuple[str, list[int]]] = {}
    for name in names:
        row = reader.get(Table, region.name, name)
        if row is None or row.acknowledged >= region.head:
            continue
        filled = {
            c.id
            for c in partitions.live(
                reader, region, limit=None if row.acknowledged == 0 else region.head - row.acknowledged
            )
        }
        ids = [i for i in tables.behind(reader, region, row) if i in filled][:limit]
        if ids:
            found[name] = (tables.writer(reader, region.name, name), ids)
    return region, reader.now(), found


def request(names: Names, region: Region, table: str, ids: list[int], attempt_: int) -> dg.RunRequest:
    """One run for the whole range."""
    return dg.RunRequest(
        run_key=run_key(region, f"table:{table}:{ids[0]}", attempt_, checkpoint=ids[-1]),
        asset_selection=[names.table(table)],
        tags={
            RANGE_START: key_of(ids[0]),
            RANGE_END: key_of(ids[-1]),
            TABLE: f"{region.name}/{table}",
            "crkafka/region": region.name,
        },
    )


def sensor(made: Made, declared: list[str]) -> dg.SensorDefinition:
    names = made.names

    @dg.sensor(
        name=names.of("tables"), minimum_interval_seconds=1, default_status=made.status, required_resource_keys=made.resources,
        asset_selection=dg.AssetSelection.assets(*(names.table(t) for t in declared)),
        description="Launches one run for all checkpoints that a table has not got yet.",
    )  # fmt: skip
    def keep_up(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        found = asked(made.region(context), lambda r, row: waiting(r, row, declared, limit=made.options.keep_up))
        if isinstance(found, dg.SkipReason):
            return found
        region, now, behind = found
        there = set(context.instance.get_dynamic_partitions(names.partitions)) if behind else set()
        requests, says = [], []
        for table, (writer, ids) in behind.items():
            published = _prefix(ids, there)
            if not published:
                says.append(f"{table}: checkpoint {ids[0]} is not published yet")
            elif writer:
                says.append(f"{table}: {writer} writes it")
            elif on_its_way(context.instance, **{TABLE: f"{region.name}/{table}"}):
                says.append(f"{table}: a run is on its way")
            else:
                # The attempt goes on with time, so that what a failed run left is asked for again.
                requests.append(request(names, region, table, published, attempt(now, region.last_cut_at)))
        if requests:
            return dg.SensorResult(run_requests=requests)
        return dg.SkipReason("; ".join(says) or "every table has all checkpoints")

    return keep_up


def _prefix(ids: list[int], there: set[str]) -> list[int]:
    found = []
    for checkpoint in ids:
        if key_of(checkpoint) not in there:
            break
        found.append(checkpoint)
    return found
