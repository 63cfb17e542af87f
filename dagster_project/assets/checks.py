"""Checks that read what was landed and what lies in tables, and those that read SQL; each kind has its sensor (SPEC A4, X8, K6)."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

import dagster as dg

from crkafka_core.config.sections import TableConfig
from crkafka_core.control import Reader
from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import CheckpointStatus, MergedOffset, Region
from crkafka_core.plane import checkpoints, reading, starts
from crkafka_core.plane import tables as plane_tables
from dagster_project.assets import reading_back
from dagster_project.failures import as_dagster_failure
from dagster_project.names import Names
from dagster_project.options import Options
from dagster_project.resources import RegionResource, SparkSessionResource
from dagster_project.sensors import observe

CHECKED = 20
"""The latest checkpoints that a check reads at most."""

ROWS = 2_000_000
"""And so many rows, unless the latest checkpoint alone has more: their positions are held in memory."""

RECORDS = {
    "contiguous": "Each checkpoint begins where its parent ended, partition by partition.",
    "rows_equal_segments": "The files hold as many rows as were merged, within the merged offsets.",
    "no_duplicates": "No (topic, partition, offset) is there twice.",
}


def of_records(names: Names) -> dg.AssetChecksDefinition:
    """Checks over the latest checkpoints whose segments are kept."""

    @dg.multi_asset_check(
        name=names.of("records_checks"),
        required_resource_keys={names.slug},
        specs=[dg.AssetCheckSpec(name, asset=names.records, description=text) for name, text in RECORDS.items()],
    )
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        region: RegionResource = getattr(context.resources, names.slug)
        plan, merged, holes = region.read(latest)
        landed = reading_back.landed(region, plan)
        about = {"checkpoints": len(plan.line), "rows": plan.rows, "first": plan.checkpoints[0] if plan.line else 0}
        for name, wrong in (
            ("contiguous", holes),
            ("rows_equal_segments", differences(plan, merged, landed)),
            ("no_duplicates", landed.doubled),
        ):
            yield dg.AssetCheckResult(
                check_name=name,
                asset_key=names.records,
                passed=not wrong,
                metadata={**about, "wrong": len(wrong)},
                description="; ".join(wrong[:5]) or None,
            )

    return checks


Merged = dict[tuple[int, TP], MergedOffset]


def latest(reader: Reader, region: Region) -> tuple[reading.ReadPlan, Merged, list[str]]:
    """The latest kept checkpoints: what to read, what was merged, and where a checkpoint does not begin at its parent's end."""
    kept = checkpoints.newest(reader, CHECKED, (CheckpointStatus.MERGED,))
    rows = list(accumulate(c.rows for c in kept))
    kept = [c for c, so_far in zip(kept, rows, strict=True) if c is kept[0] or so_far <= ROWS][::-1]
    plan = reading.plan(reader, region, ids=[c.id for c in kept])
    merged: Merged = {}
    if kept:
        for row in checkpoints.offsets(reader, kept[0].id, kept[-1].id):
            merged[(row.checkpoint, TP(row.topic, row.partition))] = row
    holes: list[str] = []
    for checkpoint in kept:
        before = starts.merged(reader, checkpoint.parent) if checkpoint.parent else {}
        if checkpoint.parent and not before:
            continue  # the parent is retired: only its archive is left
        for (of, tp), row in merged.items():
            if of == checkpoint.id and tp in before and row.member and before[tp].to_offset != row.from_offset:
                holes.append(
                    f"checkpoint {of} begins {tp} at {row.from_offset}; its parent ended at {before[tp].to_offset}"
                )
    return plan, merged, holes


def differences(plan: reading.ReadPlan, merged: Merged, landed: reading_back.Landed) -> list[str]:
    """Where the files and the merges differ."""
    wrong = [
        f"checkpoint {c.id} merged {plural(c.rows, 'row')}; its files hold {landed.rows[c.id]}"
        for c in plan.line
        if c.rows != landed.rows[c.id]
    ]
    for (checkpoint, tp), (low, high) in sorted(landed.spans.items()):
        row = merged.get((checkpoint, tp))
        if row is None or low < row.from_offset or high >= row.to_offset:
            said = "nothing" if row is None else f"[{row.from_offset}, {row.to_offset})"
            wrong.append(f"checkpoint {checkpoint} has {tp} offsets {low} to {high}; merged is {said}")
    return wrong


NOTHING_FOREIGN = "nothing_foreign"
"""The check of a table: it holds what was merged, and nobody else has committed to it since (SPEC K6)."""


def of_table(table: TableConfig, names: Names) -> dg.AssetChecksDefinition:
    """What the table format itself cannot refuse is found here, also while nothing is written."""

    @dg.asset_check(
        name=NOTHING_FOREIGN,
        asset=names.table(table.name),
        required_resource_keys={names.slug, names.spark},
        description="It holds exactly the rows that were merged, and nobody else has committed to it.",
    )
    def foreign(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        from crkafka_core.spark import tables

        region: RegionResource = getattr(context.resources, names.slug)
        spark: SparkSessionResource = getattr(context.resources, names.spark)
        with as_dagster_failure():
            declared = region.read(lambda reader, row: plane_tables.of(reader, table.name))
            session = spark.session() if plane_tables.needs_spark(declared) else None
            audit = tables.look(session, region.handle, table.name)
        wrong = {
            "rows of checkpoints that do not belong there": audit.strangers,
            "other rows than were merged of checkpoints": audit.miscounted,
        }
        said = [f"{what}: {', '.join(map(str, ids[:10]))}" for what, ids in wrong.items() if ids]
        if audit.foreign:
            said.append(f"{plural(audit.foreign, 'commit that is', 'commits that are')} not of this region")
        return dg.AssetCheckResult(
            passed=audit.clean,
            description=f"{'; '.join(said)}. The job mend_tables undoes them." if said else None,
            metadata={
                "foreign_commits": audit.foreign,
                "strangers": len(audit.strangers),
                "miscounted": len(audit.miscounted),
            },
        )

    return foreign


def of_group(names: Names, options: Options) -> dg.AssetChecksDefinition:
    """The checks of the group that the observing sensor evaluates, also by hand."""
    specs = [dg.AssetCheckSpec(name, asset=names.group, description=text) for name, text in observe.CHECKS.items()]
    return _evaluated(names.of("group_checks"), names, specs, options)


def of_table_state(table: TableConfig, names: Names, options: Options) -> dg.AssetChecksDefinition:
    """The same for a table."""
    text = f"No checkpoint has waited for the table for more than {options.fresh:.0f} s. A quiet topic is no reason to fail."
    spec = dg.AssetCheckSpec(observe.KEEPS_UP, asset=names.table(table.name), description=text)
    return _evaluated(names.of(f"{table.name}_checks"), names, [spec], options)


def _evaluated(
    name: str, names: Names, specs: Sequence[dg.AssetCheckSpec], options: Options
) -> dg.AssetChecksDefinition:
    @dg.multi_asset_check(name=name, required_resource_keys={names.slug}, specs=specs)
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        region: RegionResource = getattr(context.resources, names.slug)
        declared = [t.name for t in region.settings.tables]
        view = region.read(
            lambda reader, row: observe.view_of(reader, row, names=names, declared=declared, fresh=options.fresh)
        )
        wanted = {spec.key for spec in specs}
        for outcome in view.outcomes:
            if dg.AssetCheckKey(outcome.asset, outcome.check) in wanted:
                yield outcome.result

    return checks
