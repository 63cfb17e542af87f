"""The checkpointed records: an external asset, landed by the members and published by the merge (SPEC A3, C7).

Nothing in Dagster makes them, so that nothing there can wake all that follows them; checks read them back.
"""

import dagster as dg

from dagster_project import partitions
from dagster_project.names import Names
from dagster_project.options import Options


def make(names: Names, options: Options) -> dg.AssetSpec:
    """The asset `records` of a region."""
    return dg.AssetSpec(
        names.records,
        deps=[names.group],
        partitions_def=partitions.definition(names),
        kinds={"parquet"},
        **options.about(
            "records",
            group=names.slug,
            description="The records of each checkpoint, exactly once. A partition appears with the merge, by the sensor "
            f"{names.of('publish')}; nothing in Dagster makes them. A number that is missing was a cut without records or an "
            f"aborted one, or is superseded. The job {names.of('check_data')} reads them back.",
            metadata={"region": names.region},
        ),
    ).with_io_manager_key(names.rows)
