"""Which jobs a region has, and which of them materialize nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import dagster as dg


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
    mend_tables: dg.JobDefinition
    maintain_tables: dg.JobDefinition
    prune_runs: dg.JobDefinition
    pause_flow: dg.JobDefinition
    resume_flow: dg.JobDefinition
    skip_records: dg.JobDefinition
    forget_topic: dg.JobDefinition
    undeclare_table: dg.JobDefinition
    advance_table: dg.JobDefinition

    def __iter__(self) -> Iterator[dg.JobDefinition]:
        return iter([getattr(self, f.name) for f in fields(self)])


WRITES = "write_tables"
"""Its runs materialize partitions of tables: they stay until those have left."""
MATERIALIZING = (WRITES, "replay")
"""Jobs whose runs materialize partitions of tables; of the second they stay."""
CHECKS_DATA = "check_data"
"""As that one, a job over assets, and made where they are."""
MATERIALIZING_NOTHING = (*(f.name for f in fields(Jobs) if f.name not in MATERIALIZING), CHECKS_DATA)
"""All others: materializations of checkpoints belong to no run."""
