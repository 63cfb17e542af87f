"""Declared tables as Spark assets: they keep up by ranges, and a backfill rewrites what is there (SPEC A7, K6)."""

from collections.abc import Sequence
from datetime import timedelta

import dagster as dg

from crkafka_core.config.sections import TableConfig
from crkafka_core.model.rows import Table
from dagster_project import partitions
from dagster_project.names import Names, key_of
from dagster_project.options import Options
from dagster_project.resources import RegionResource, SparkSessionResource
from dagster_project.telling import told


def make(table: TableConfig, names: Names, options: Options) -> dg.AssetsDefinition:
    """The asset of one declared table."""

    @dg.asset(
        key=names.table(table.name), deps=[names.records], partitions_def=partitions.definition(names),
        backfill_policy=dg.BackfillPolicy.single_run(), group_name=names.slug, kinds={"spark", table.format}, owners=list(options.owners),
        required_resource_keys={names.slug, names.spark},
        freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(seconds=max(60.0, options.fresh))),
        description=f"The records as a {table.format} table at {table.path}, each checkpoint's rows once.",
        metadata={"dagster/uri": table.path, "format": table.format},
    )  # fmt: skip
    def keep_up(context: dg.AssetExecutionContext) -> None:
        region: RegionResource = getattr(context.resources, names.slug)
        spark: SparkSessionResource = getattr(context.resources, names.spark)
        with told():
            ids = region.checkpoints(context)
            rows = write(context, region, spark, table.name, ids)
        for checkpoint in ids:
            context.add_asset_metadata(
                {"rows": rows[checkpoint], "dagster/row_count": rows[checkpoint]}, partition_key=key_of(checkpoint)
            )

    return keep_up


def write(
    context: dg.AssetExecutionContext,
    region: RegionResource,
    spark: SparkSessionResource,
    name: str,
    ids: Sequence[int],
) -> dict[int, int]:
    """Rewrite what the table has, advance it to the rest; rows per checkpoint.

    A table only advances without a gap, so that what it has acknowledged is exactly the line up to there (SPEC T1): live
    checkpoints between what it has and the range come along.
    """
    from crkafka_core.spark import tables

    before = region.read(lambda reader, row: tables.plane.of(reader, row.name, name))
    old = [i for i in ids if i <= before.acknowledged]
    if old:
        done = tables.rewrite(spark.session(), region.handle, name, old)
        context.log.info(f"{len(old)} checkpoints rewritten, {done.rows if done else 0} rows")
    if ids and ids[-1] > before.acknowledged:
        done = tables.advance(spark.session(), region.handle, name, upto=ids[-1])
        context.log.info(f"advanced from {before.acknowledged} to {ids[-1]}, {done.rows if done else 0} rows")
        _tell_along(context, region, name, before, ids)
    return region.read(lambda reader, row: {c.id: c.rows for c in partitions.live(reader, row) if c.id in set(ids)})


def _tell_along(
    context: dg.AssetExecutionContext, region: RegionResource, name: str, before: Table, ids: Sequence[int]
) -> None:
    """Partitions of checkpoints that came along are materialized too."""
    live = region.read(partitions.live)
    for checkpoint in live:
        if before.acknowledged < checkpoint.id < ids[0]:
            context.log_event(
                dg.AssetMaterialization(
                    region.names.table(name), partition=key_of(checkpoint.id), metadata={"rows": checkpoint.rows}
                )
            )
