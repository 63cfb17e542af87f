"""Tables as assets: they keep up by ranges, and a backfill rewrites what is there (SPEC A7, K6)."""

from collections.abc import Collection, Sequence
from typing import Any

import dagster as dg

from crkafka_core.config import RegionConfig
from crkafka_core.config.location import in_catalog
from crkafka_core.config.sections import TableConfig
from crkafka_core.config.shapes import DEAD, by_value, has_records
from crkafka_core.config.template import OF_VALUE
from crkafka_core.model.rows import Table
from crkafka_core.plane import checkpoints
from crkafka_core.plane import tables as plane_tables
from dagster_project import partitions, writing
from dagster_project.assets import columns
from dagster_project.failures import as_dagster_failure
from dagster_project.names import KEEPING_UP, Names, key_of
from dagster_project.options import Options
from dagster_project.resources import RegionResource, SparkSessionResource

PARENT_RUN = "dagster/parent_run_id"
"""The tag of a run that a person executes again: that means again."""

KINDS = {"delta": "deltalake", "iceberg": "iceberg"}
"""Format → the kind for which Dagster has an icon."""


def make(
    table: TableConfig, config: RegionConfig, names: Names, options: Options, topics: Collection[str]
) -> dg.AssetsDefinition:
    """The asset of one table; `topics`: those that have an asset."""

    @dg.asset(
        key=names.table(table.name),
        deps=[names.records],
        partitions_def=partitions.definition(names),
        backfill_policy=dg.BackfillPolicy.single_run(),
        kinds={KINDS[table.format], *([] if config.without_spark(table) else ["spark"])},
        freshness_policy=options.freshness_policy,
        required_resource_keys={names.slug, names.spark},
        **options.about(
            table.name,
            group=names.slug,
            description=f"{_content(table)}. The members' host or a run that the sensor {names.of('publish')} launches writes each new "
            "checkpoint; materializing a partition writes its rows again.",
            metadata=described(table, config, names, topics),
        ),
    )
    def keep_up(context: dg.AssetExecutionContext) -> None:
        region: RegionResource = getattr(context.resources, names.slug)
        spark: SparkSessionResource = getattr(context.resources, names.spark)
        with as_dagster_failure():
            ids = region.checkpoints(context)
            written = write(writing.TableRun(context, region, spark, table.name), ids)
        for checkpoint in ids:
            context.add_asset_metadata(written[checkpoint], partition_key=key_of(checkpoint))

    return keep_up


def described(table: TableConfig, config: RegionConfig, names: Names, topics: Collection[str]) -> dict[str, Any]:
    """Metadata by which catalogues know a table: its name in a catalog, or else its place, and its columns."""
    named = {"dagster/table_name": table.path, "dagster/storage_kind": table.format}
    place = named if in_catalog(table.path) else {"dagster/uri": table.path}
    return {**place, **columns.of_table(table, config, names, topics)}


def _content(table: TableConfig) -> str:
    of = f" of {', '.join(table.topics)}" if table.topics else ""
    if table.output == DEAD:
        return f"Records{of} that could not be decoded, each with the reason"
    if by_value(table.shape or ""):
        return (
            f"Records{of} with the value {table.output.removeprefix(OF_VALUE)}"
            if table.output
            else f"Records{of} without a table of their own"
        )
    raw = table.typed is None and (table.shape is None or has_records(table.shape))
    return f"{'Records' if raw else 'Decoded records'}{of}, {'one row for each key' if table.keys else 'each once'}"


def write(run: writing.TableRun, ids: Sequence[int]) -> dict[int, dict[str, int | str]]:
    """Rewrite what the table has, advance it to the rest; what is to be shown of each checkpoint.

    A table only advances without a gap, so that what it has acknowledged is exactly the line up to there (SPEC T1): live
    checkpoints between what it has and the range come along.
    """
    before = run.region.read(lambda reader, row: plane_tables.of(reader, run.name))
    run.rewrite([] if _brought_along(run.context, before) else [i for i in ids if i <= before.acknowledged])
    if ids and ids[-1] > before.acknowledged:
        run.advance(ids[-1])
        _materialize_along(run, before, ids)
    return run.about(ids)


def _brought_along(context: writing.Context, table: Table) -> bool:
    """Tables of one shape are written together: what the run of one has brought here meanwhile is not written again."""
    tags = context.run.tags
    return bool(table.shape) and KEEPING_UP in tags and PARENT_RUN not in tags


def _materialize_along(run: writing.TableRun, before: Table, ids: Sequence[int]) -> None:
    """Partitions of checkpoints that came along are materialized too; not those that have left."""
    came = run.region.read(lambda reader, _: checkpoints.filled(reader, above=before.acknowledged, upto=ids[0] - 1))
    lowest = partitions.lowest(run.context.instance, run.region.names) if came else ""
    run.materialize([i for i in came if lowest and key_of(i) >= lowest])
