"""The checkpointed records: landed by the members, published by the merge; a run of this asset reads them back (SPEC A3, C7)."""

from collections import Counter
from collections.abc import Sequence

import dagster as dg

from crkafka_core.control import Reader
from crkafka_core.model.errors import DataLoss
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Checkpoint, Region
from crkafka_core.plane import checkpoints, reading
from crkafka_core.segments.reader import read_segment
from dagster_project import metadata, partitions
from dagster_project.failures import as_dagster_failure
from dagster_project.names import Names, key_of
from dagster_project.options import Options
from dagster_project.resources import RegionResource


def make(names: Names, options: Options) -> dg.AssetsDefinition:
    """The asset `records` of a region."""

    @dg.asset(
        key=names.records,
        deps=[names.group],
        partitions_def=partitions.definition(names),
        io_manager_key=names.rows,
        backfill_policy=dg.BackfillPolicy.single_run(),
        kinds={"parquet"},
        required_resource_keys={names.slug},
        **options.about(
            "records",
            group=names.slug,
            description="The records of each checkpoint, exactly once. A partition appears with the merge, by the sensor "
            f"{names.of('publish')}; materializing it by hand reads its segments back and compares them with what was merged.",
            metadata={"region": names.region},
        ),
    )
    def records(context: dg.AssetExecutionContext) -> None:
        region: RegionResource = getattr(context.resources, names.slug)
        with as_dagster_failure():
            ids = region.checkpoints(context)
            rows, spans, plan = region.read(lambda reader, row: _about(reader, row, ids))
            counted = _counted(region, plan)
            for checkpoint, parent in rows:
                kept = counted.get(checkpoint.id)
                if kept is not None and kept != checkpoint.rows:
                    raise DataLoss(
                        f"Checkpoint {checkpoint.id} of region {names.region} merged {plural(checkpoint.rows, 'row')}; "
                        f"its segments hold {kept}.",
                        hint="`crkafka verify` names the first record that is missing or there twice.",
                    )
                about = metadata.of_checkpoint(checkpoint, parent, spans[checkpoint.id])
                context.add_asset_metadata(
                    {**about, "read_back": "retired" if kept is None else kept}, partition_key=key_of(checkpoint.id)
                )

    return records


def _about(
    reader: Reader, region: Region, ids: Sequence[int]
) -> tuple[list[tuple[Checkpoint, Checkpoint | None]], dict[int, list[metadata.Range]], reading.ReadPlan]:
    plan = reading.plan(reader, region, ids=ids)
    parents = checkpoints.named(reader, {c.parent for c in plan.line})
    return [(c, parents.get(c.parent)) for c in plan.line], metadata.ranges(reader, region, plan.line), plan


def _counted(region: RegionResource, plan: reading.ReadPlan) -> Counter[int]:
    """Rows of each checkpoint that still has segments, counted in the files."""
    storage, rows = region.open().storage(), Counter[int]()
    for segment in plan.segments:
        rows[segment.checkpoint] += read_segment(storage, segment.path, ["offset"]).num_rows
    return rows
