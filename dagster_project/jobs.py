"""The jobs of one region: the same graphs for every region, each bound to its own (SPEC A1). They run in one process (FACTS D2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import dagster as dg

from dagster_project.names import Names
from dagster_project.ops.consume import consume_until_caught_up
from dagster_project.ops.cut import cut
from dagster_project.ops.host import host_members
from dagster_project.ops.life import retire_checkpoints, scale_region, start_region, stop_region, stopped_alarm
from dagster_project.ops.observe import observe_group
from dagster_project.ops.replay import replay
from dagster_project.ops.reset import reset_region
from dagster_project.resources import RegionResource, SparkSessionResource


@dataclass(frozen=True)
class Jobs:
    """One field per job, named as its graph."""

    cut: dg.JobDefinition
    reset_region: dg.JobDefinition
    retire_checkpoints: dg.JobDefinition
    consume_until_caught_up: dg.JobDefinition
    replay: dg.JobDefinition
    host_members: dg.JobDefinition
    scale_region: dg.JobDefinition
    start_region: dg.JobDefinition
    stop_region: dg.JobDefinition
    stopped_alarm: dg.JobDefinition
    observe_group: dg.JobDefinition

    def __iter__(self) -> Iterator[dg.JobDefinition]:
        return iter([getattr(self, f.name) for f in fields(self)])


GRAPHS = (
    cut,
    reset_region,
    retire_checkpoints,
    consume_until_caught_up,
    replay,
    host_members,
    scale_region,
    start_region,
    stop_region,
    stopped_alarm,
    observe_group,
)


def make(names: Names, region: RegionResource, spark: SparkSessionResource) -> Jobs:
    """The region's jobs."""
    return Jobs(**{graph.name: _job(graph, names, region, spark) for graph in GRAPHS})


def _job(
    graph: dg.GraphDefinition, names: Names, region: RegionResource, spark: SparkSessionResource
) -> dg.JobDefinition:
    return graph.to_job(
        name=names.of(graph.name),
        description=graph.description,
        # Bound, not configured: the launchpad shows what a person may choose, and no run stores the region's configuration.
        resource_defs={
            "region": dg.ResourceDefinition.hardcoded_resource(region, f"Region {names.region}."),
            "spark": dg.ResourceDefinition.hardcoded_resource(spark, "The region's Spark session."),
        },
        executor_def=dg.in_process_executor,
        tags={"crkafka/region": names.region},
    )
