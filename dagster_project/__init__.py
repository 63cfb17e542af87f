"""The driver's seat: Dagster definitions over the functions of `crkafka_core`."""

from dagster_project.component import ConsistentRegion
from dagster_project.downstream import checkpointed, nothing_superseded, over_or_rewound, removed, superseded
from dagster_project.options import Options
from dagster_project.region_definitions import consistent_region
from dagster_project.resources import RegionResource, SparkSessionResource

__all__ = [
    "ConsistentRegion",
    "Options",
    "RegionResource",
    "SparkSessionResource",
    "checkpointed",
    "consistent_region",
    "nothing_superseded",
    "over_or_rewound",
    "removed",
    "superseded",
]
