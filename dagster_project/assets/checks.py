"""Checks that read the landed data, and those of the group that read SQL (SPEC A4, X8)."""

from collections.abc import Iterator

import dagster as dg

from crkafka_core.control import Reader
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, MergedOffset, Region
from crkafka_core.plane import reading, starts
from dagster_project.assets import reading_back
from dagster_project.names import Names
from dagster_project.resources import RegionResource
from dagster_project.sensors import observe

CHECKED = 20
"""The latest checkpoints that a check reads."""

RECORDS = {
    "contiguous": "Each checkpoint begins where its parent ended, partition by partition.",
    "rows_equal_segments": "The files hold as many rows as were merged, within the merged offsets.",
    "no_duplicates": "No (topic, partition, offset) is there twice.",
}


def of_records(names: Names) -> dg.AssetChecksDefinition:
    """Checks over the latest checkpoints whose segments are kept."""

    @dg.multi_asset_check(
        name=names.of("records_checks"), required_resource_keys={names.slug},
        specs=[dg.AssetCheckSpec(name, asset=names.records, description=text) for name, text in RECORDS.items()],
    )  # fmt: skip
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        region: RegionResource = getattr(context.resources, names.slug)
        plan, merged, holes = region.read(latest)
        found = reading_back.landed(region, plan)
        about = {"checkpoints": len(plan.line), "rows": plan.rows, "first": plan.checkpoints[0] if plan.line else 0}
        for name, wrong in (
            ("contiguous", holes), ("rows_equal_segments", differences(plan, merged, found)), ("no_duplicates", found.doubled),
        ):  # fmt: skip
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
    kept = reader.select(
        Checkpoint,
        ("region", "=", region.name),
        ("status", "=", CheckpointStatus.MERGED),
        order=("id",),
        desc=True,
        limit=CHECKED,
    )[::-1]
    plan = reading.plan(reader, region, ids=[c.id for c in kept])
    merged: Merged = {}
    if kept:
        for row in reader.select(
            MergedOffset,
            ("region", "=", region.name),
            ("checkpoint", ">=", kept[0].id),
            ("checkpoint", "<=", kept[-1].id),
        ):
            merged[(row.checkpoint, TP(row.topic, row.partition))] = row
    holes: list[str] = []
    for checkpoint in kept:
        before = starts.merged(reader, region.name, checkpoint.parent) if checkpoint.parent else {}
        if checkpoint.parent and not before:
            continue  # the parent is retired: only its archive is left
        for (of, tp), row in merged.items():
            if of == checkpoint.id and tp in before and row.member and before[tp].to_offset != row.from_offset:
                holes.append(
                    f"checkpoint {of} begins {tp} at {row.from_offset}; its parent ended at {before[tp].to_offset}"
                )
    return plan, merged, holes


def differences(plan: reading.ReadPlan, merged: Merged, found: reading_back.Landed) -> list[str]:
    """Where the files and the merges differ."""
    wrong = [
        f"checkpoint {c.id} merged {c.rows} rows; its files hold {found.rows[c.id]}"
        for c in plan.line
        if c.rows != found.rows[c.id]
    ]
    for (checkpoint, tp), (low, high) in sorted(found.spans.items()):
        row = merged.get((checkpoint, tp))
        if row is None or low < row.from_offset or high >= row.to_offset:
            said = "nothing" if row is None else f"[{row.from_offset}, {row.to_offset})"
            wrong.append(f"checkpoint {checkpoint} has {tp} offsets {low} to {high}; merged is {said}")
    return wrong


def of_group(names: Names) -> dg.AssetChecksDefinition:
    """The checks that the observing sensor evaluates, also by hand."""

    @dg.multi_asset_check(
        name=names.of("group_checks"), required_resource_keys={names.slug},
        specs=[dg.AssetCheckSpec(name, asset=names.group, description=text) for name, text in observe.CHECKS.items()],
    )  # fmt: skip
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        region: RegionResource = getattr(context.resources, names.slug)
        for event in observe.events(names, region.read(observe.look)):
            if isinstance(event, dg.AssetCheckEvaluation):
                yield dg.AssetCheckResult(
                    check_name=event.check_name,
                    asset_key=names.group,
                    passed=event.passed,
                    severity=event.severity,
                    description=event.description,
                )

    return checks
