"""The jobs of one region: the same graphs for every region, each bound to its own (SPEC A1), in one process (docs/clients.md C-D2)."""

from __future__ import annotations

from typing import Any

import dagster as dg

from dagster_project.names import Names
from dagster_project.ops import consume, host, life, marks, observe, prune, tables
from dagster_project.ops.cut import cut
from dagster_project.ops.follow import follow
from dagster_project.ops.reset import reset_region
from dagster_project.resources import RegionResource, SparkSessionResource

OPS = {
    "retire_checkpoints": life.retire,
    "consume_until_caught_up": consume.consume,
    "replay": tables.rewrite,
    "host_members": host.host,
    "scale_region": life.scale,
    "start_region": life.start,
    "stop_region": life.stop,
    "stopped_alarm": life.alarm,
    "observe_group": observe.observe,
    "mend_tables": tables.mend,
    "maintain_tables": tables.maintain,
    "prune_runs": prune.prune,
    "pause_flow": marks.pause,
    "resume_flow": marks.resume_mark,
    "skip_records": marks.skip,
    "forget_topic": marks.forget,
    "undeclare_table": marks.undeclare,
    "advance_table": tables.advance,
    "follow_merges": follow,
}
"""Jobs of one op."""
GRAPHS = (
    cut,
    reset_region,
    *(dg.GraphDefinition(job, description=op.description, node_defs=[op]) for job, op in OPS.items()),
)
"""Each once, for all regions: a code location refuses two of one name."""


class Unkept(dg.IOManager):
    """Of ops that give nothing, whose numbers are metadata: without it, each run would make the code location's own I/O manager."""

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """Nothing to keep."""

    def load_input(self, context: dg.InputContext) -> None:
        raise NotImplementedError("ops of a region hand nothing on but their order")


ALONE = {"dagster/max_retries": "0"}
"""An instance that retries runs leaves this one alone: it says something that does not change by repetition."""

ENDLESS = {"dagster/max_runtime": "0", **ALONE}
"""And it ends no run for its age: resident runs last for as long as they are wanted. A sensor starts another."""

TAGS = {"host_members": ENDLESS, "follow_merges": ENDLESS, "stopped_alarm": ALONE}


def make(
    names: Names, region: RegionResource, spark: SparkSessionResource, *, follow: bool
) -> dict[str, dg.JobDefinition]:
    """The region's jobs, by the names of their graphs; one that follows the merges only where assets do."""
    mark = {"kind": "topic", "what": "", "member": ""}
    declared = [] if region.settings.templates else [t.name for t in region.settings.tables]  # []: all
    launchpads: dict[str, dict[str, Any]] = {
        "replay": {"rewrite": {"after": 0, "upto": 1, "tables": declared, "dry_run": True}},
        "scale_region": {"scale": {"members": region.settings.members}},
        "reset_region": {"reset": {"to": "head", "cause": "", "dry_run": False}},
        "retire_checkpoints": {"retire": {"dry_run": False}},
        "cut": {"open_cut": {"cause": "by hand"}},
        "pause_flow": {"pause": mark},
        "resume_flow": {"resume_mark": mark},
        "forget_topic": {"forget": {"topic": "", "sure": ""}},
        "skip_records": {"skip": {"offsets": "", "sure": ""}},
        "undeclare_table": {"undeclare": {"table": ""}},
        "advance_table": {"advance": {"table": next(iter(declared), ""), "upto": 1}},
    }
    return {
        graph.name: _job(graph, names, region, spark, launchpads.get(graph.name))
        for graph in GRAPHS
        if follow or graph.name != "follow_merges"
    }


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
