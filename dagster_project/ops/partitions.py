"""Taking superseded checkpoints out of Dagster's partitions, before the region goes on (SPEC X4)."""

import dagster as dg

from crkafka_core.plane import checkpoints
from dagster_project.names import keys_of
from dagster_project.resources import RegionResource


def remove_superseded(instance: dg.DagsterInstance, region: RegionResource) -> list[str]:
    """Remove the partitions of checkpoints that are not live; what is missing is the publishing sensor's to add."""
    name = region.names.partitions
    present = instance.get_dynamic_partitions(name)
    if not present:
        return []
    lowest = min((int(key) for key in present if key.isdecimal()), default=1)  # a person may have added any other
    filled = region.read(lambda reader, row: checkpoints.filled(reader, above=lowest - 1))
    live = set(keys_of(filled))
    gone = [key for key in present if key not in live]
    for key in gone:
        instance.delete_dynamic_partition(name, key)
    return gone
