"""A region's job by name, for Dagster to make again: retries from failure need a job that can be found (private imports in one place)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.definitions.reconstruct import ReconstructableRepository, build_reconstructable_job

from crkafka_core.config import RegionConfig
from dagster_project import consistent_region
from dagster_project.names import Names
from dagster_project.run_identity import RESUMES


def job(definition: str, what: str) -> dg.JobDefinition:
    config = RegionConfig.from_json(definition)
    return consistent_region(config).resolve_job_def(Names(config.region).of(what))


def execute(
    config: RegionConfig,
    what: str,
    instance: dg.DagsterInstance,
    run_config: dict[str, Any],
    *,
    retry_of: str = "",
    again: str = "",
    tags: dict[str, str] | None = None,
) -> dg.JobExecutionResult:
    """Execute a job; with `retry_of`, from the failure of that run; with `again`, all of that run once more, as the UI does it."""
    made = build_reconstructable_job(
        "tests.dagster.reconstructed", "job", reconstructable_args=(config.to_json(), what)
    )
    options = dg.ReexecutionOptions.from_failure(retry_of, instance) if retry_of else None
    options = dg.ReexecutionOptions(again) if again else options
    tags = {**(tags or {}), **({RESUMES: "true"} if retry_of else {})}
    return dg.execute_job(made, instance=instance, run_config=run_config, reexecution_options=options, tags=tags)


def of_file(file: Path, what: str, instance: dg.DagsterInstance, **more: Any) -> dg.JobExecutionResult:
    """Execute a job of the definitions in a file, with the others of its code location beside it."""
    made = ReconstructableRepository.for_file(str(file), "defs").get_reconstructable_job(what)
    return dg.execute_job(made, instance=instance, **more)
