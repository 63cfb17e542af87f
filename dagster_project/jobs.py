"""The jobs of one region: the same graphs for every region, each bound to its own (SPEC A1), in one process (docs/clients.md C-D2)."""

from __future__ import annotations

from typing import Any

import dagster as dg

from dagster_project.job_set import Jobs
from dagster_project.names import Names
from dagster_project.ops.advance import advance_table
from dagster_project.ops.consume import consume_until_caught_up
from dagster_project.ops.cut import cut
from dagster_project.ops.host import host_members
from dagster_project.ops.life import retire_checkpoints, scale_region, start_region, stop_region, stopped_alarm
from dagster_project.ops.maintain import maintain_tables
from dagster_project.ops.marks import forget_topic, pause_flow, resume_flow, skip_records, undeclare_table
from dagster_project.ops.mend import mend_tables
from dagster_project.ops.observe import observe_group
from dagster_project.ops.prune import prune_runs
from dagster_project.ops.replay import replay
from dagster_project.ops.reset import reset_region
from dagster_project.resources import RegionResource, SparkSessionResource

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
    mend_tables,
    maintain_tables,
    prune_runs,
    pause_flow,
    resume_flow,
    skip_records,
    forget_topic,
    undeclare_table,
    advance_table,
)


class Unkept(dg.IOManager):
    """Of ops that give nothing, whose numbers are metadata: without it, each run would make the code location's own I/O manager."""

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """Nothing to keep."""

    def load_input(self, context: dg.InputContext) -> None:
        raise NotImplementedError("ops of a region hand nothing on but their order")


ALONE = {"dagster/max_retries": "0"}
"""An instance that retries runs leaves this one alone: it says something that does not change by repetition."""

ENDLESS = {"dagster/max_runtime": "0", **ALONE}
"""And it ends no run for its age: members are hosted for as long as they are wanted. A sensor starts another host."""

TAGS = {"host_members": ENDLESS, "stopped_alarm": ALONE}


def make(names: Names, region: RegionResource, spark: SparkSessionResource) -> Jobs:
    """The region's jobs."""
    mark = {"kind": "topic", "what": "", "member": ""}
    launchpads: dict[str, dict[str, Any]] = {
        "replay": {
            "rewrite": {"after": 0, "upto": 1, "tables": [t.name for t in region.settings.tables], "dry_run": True}
        },
        "scale_region": {"scale": {"members": region.settings.members}},
        "reset_region": {"reset": {"to": "head", "cause": "", "dry_run": False}},
        "retire_checkpoints": {"retire": {"dry_run": False}},
        "cut": {"open_cut": {"cause": "by hand"}},
        "pause_flow": {"pause": mark},
        "resume_flow": {"resume_mark": mark},
        "forget_topic": {"forget": {"topic": "", "sure": ""}},
        "skip_records": {"skip": {"offsets": "", "sure": ""}},
        "undeclare_table": {"undeclare": {"table": ""}},
        "advance_table": {"advance": {"table": next((t.name for t in region.settings.tables), ""), "upto": 1}},
    }
    return Jobs(**{graph.name: _job(graph, names, region, spark, launchpads.get(graph.name)) for graph in GRAPHS})


def _job(
    graph: dg.GraphDefinition,
    names: Names,
    region: RegionResource,
    spark: SparkSessionResource,
    launchpad: dict[str, Any] | None,
) -> dg.JobDefinition:
    """`launchpad`: what stands in it to begin with, by op."""
    return graph.to_job(
        name=names.of(graph.name),
        description=graph.description,
        # Bound, not configured: the launchpad shows what a person may choose, and no run stores the region's configuration.
        resource_defs={
            "region": dg.ResourceDefinition.hardcoded_resource(region, f"Region {names.region}."),
            "spark": dg.ResourceDefinition.hardcoded_resource(spark, "The region's Spark session."),
            "io_manager": dg.IOManagerDefinition.hardcoded_io_manager(Unkept(), "Keeps no outputs."),
        },
        executor_def=dg.in_process_executor,
        config=None if launchpad is None else {"ops": {op: {"config": keys} for op, keys in launchpad.items()}},
        tags={**names.tags, **TAGS.get(graph.name, {})},
    )
