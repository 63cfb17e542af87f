"""Taking superseded checkpoints out of Dagster's partitions, before the region goes on (SPEC X4)."""

import dagster as dg

from dagster_project import partitions
from dagster_project.resources import RegionResource


def remove_superseded(instance: dg.DagsterInstance, region: RegionResource) -> list[str]:
    """Remove the partitions of checkpoints that are not live; what is missing is the publishing sensor's to add."""
    name = region.names.partitions
    present = instance.get_dynamic_partitions(name)
    if not present:
        return []
    live = {partitions.key_of(c.id) for c in region.read(partitions.live)}
    gone = [key for key in present if key not in live]
    for key in gone:
        instance.delete_dynamic_partition(name, key)
    return gone
