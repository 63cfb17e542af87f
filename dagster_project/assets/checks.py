"""Checks that read what was landed and what lies in tables, and those that read SQL; each kind has its sensor (SPEC A4, X8, K6)."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

import dagster as dg

from crkafka_core.config.sections import TableConfig
from crkafka_core.control import Reader
from crkafka_core.model.rows import Checkpoint, CheckpointStatus
from crkafka_core.plane import checkpoints
from crkafka_core.plane.status import status_of
from crkafka_core.verify import verify
from crkafka_core.verify.verdict import Findings
from dagster_project.failures import as_dagster_failure
from dagster_project.names import Names
from dagster_project.options import Options
from dagster_project.resources import RegionResource
from dagster_project.sensors import observe

CHECKED = 20
"""The latest checkpoints that a check reads at most."""

ROWS = 2_000_000
"""And so many rows, unless the latest checkpoint alone has more: their positions are held in memory."""

RECORDS = {
    "contiguous": ("Each checkpoint begins at the offset where the one before ended, in every partition.", {"I1"}),
    "rows_equal_segments": (
        "The files have as many rows as were merged, within the merged offsets, from the members that the cut expected.",
        {"I2", "I4", "I8", "I13"},
    ),
    "no_duplicates": ("Each (topic, partition, offset) is there once.", {"I3"}),
}
"""Check → its description, and the invariants of `crkafka verify` that it stands for."""


def of_records(names: Names) -> dg.AssetChecksDefinition:
    """Checks over the latest checkpoints whose segments are kept."""

    @dg.multi_asset_check(
        name=names.of("records_checks"),
        description=f"Reads the files of the latest {CHECKED} checkpoints, and compares them with what was merged.",
        required_resource_keys={names.slug},
        can_subset=True,  # else they cannot be executed on the page of an asset that is not materialized by a run
        specs=[dg.AssetCheckSpec(name, asset=names.records, description=text) for name, (text, _) in RECORDS.items()],
    )
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        region: RegionResource = getattr(context.resources, names.slug)
        chosen = region.read(lambda reader, _: latest(reader))
        with as_dagster_failure():
            findings = verify.latest(region.open(), [c.id for c in chosen]) if chosen else Findings()
        about = {
            "checkpoints": len(chosen),
            "rows": sum(c.rows for c in chosen),
            "first_checkpoint": chosen[0].id if chosen else 0,
        }
        for name in sorted(key.name for key in context.selected_asset_check_keys):
            _, invariants = RECORDS[name]
            wrong = [str(finding) for finding in findings.kept if finding.invariant in invariants]
            yield dg.AssetCheckResult(
                check_name=name,
                asset_key=names.records,
                passed=not wrong,
                metadata={**about, "violations": sum(findings.counts[invariant] for invariant in invariants)},
                description="; ".join(wrong[:5]) or None,
            )

    return checks


def latest(reader: Reader) -> list[Checkpoint]:
    """The latest checkpoints whose rows are kept, oldest first."""
    kept = checkpoints.newest(reader, CHECKED, (CheckpointStatus.MERGED,))
    rows = list(accumulate(c.rows for c in kept))
    return [c for c, so_far in zip(kept, rows, strict=True) if c is kept[0] or so_far <= ROWS][::-1]


NOTHING_FOREIGN = "nothing_foreign"
"""The check of a table: it holds what was merged, and no other program has committed to it since (SPEC K6)."""


def of_table(table: TableConfig, names: Names) -> dg.AssetChecksDefinition:
    """What the table format itself cannot refuse is found here, also while nothing is written."""

    text = "The table has exactly the rows that were merged, and no other program has committed to it."

    @dg.multi_asset_check(  # of one: `asset_check` gives its op no description
        name=names.of(f"{table.name}_{NOTHING_FOREIGN}"),
        description=f"Reads table {table.name}, and compares it with what was merged.",
        required_resource_keys={names.slug},
        specs=[dg.AssetCheckSpec(NOTHING_FOREIGN, asset=names.table(table.name), description=text)],
    )
    def foreign(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        from crkafka_core.lake import audit

        region: RegionResource = getattr(context.resources, names.slug)
        with as_dagster_failure():
            answer = audit.look(region.handle, table.name)
        texts = audit.in_words(answer)
        yield dg.AssetCheckResult(
            passed=answer.clean,
            description=f"{'; '.join(texts)}. The job mend_tables undoes them." if texts else None,
            metadata={
                "commits_of_other_programs": answer.foreign,
                "checkpoints_that_do_not_belong": len(answer.strangers),
                "checkpoints_with_other_rows": len(answer.miscounted),
                "rows_without_checkpoint": answer.unknown,
                "lost_files": len(answer.lost),
            },
        )

    return foreign


def of_state(names: Names, options: Options, declared: Sequence[str]) -> list[dg.AssetChecksDefinition]:
    """The checks of the group and of the declared tables, which the observing sensor evaluates; here by hand."""
    of_group = [dg.AssetCheckSpec(name, asset=names.group, description=text) for name, text in observe.CHECKS.items()]
    text = (
        f"No checkpoint waits for the table for longer than {options.fresh:.0f} s, its commits succeed, it has followed the last rewind, "
        "and few of its latest records are bad. A quiet topic is no reason to fail."
    )
    of_tables = {
        f"{table}_checks": [dg.AssetCheckSpec(observe.KEEPS_UP, asset=names.table(table), description=text)]
        for table in declared
    }

    def made(name: str, specs: Sequence[dg.AssetCheckSpec]) -> dg.AssetChecksDefinition:
        @dg.multi_asset_check(
            name=names.of(name),
            description=f"Evaluates the checks of the sensor {names.of('observe')} by hand. Reads SQL only.",
            required_resource_keys={names.slug},
            can_subset=True,
            specs=specs,
        )
        def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
            region: RegionResource = getattr(context.resources, names.slug)
            view = observe.view_of(region.read(status_of), names=names, declared=declared, fresh=options.fresh)
            for outcome in view.outcomes:
                if dg.AssetCheckKey(outcome.asset, outcome.check) in context.selected_asset_check_keys:
                    yield outcome.result

        return checks

    return [made(name, specs) for name, specs in {"group_checks": of_group, **of_tables}.items()]
