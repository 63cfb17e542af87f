"""Identity of a run: the run that it continues, the token by which it finds what that one began, and who asked (SPEC A6, X8)."""

from __future__ import annotations

import re

import dagster as dg

from dagster_project.names import CUT

RESUMES, RETRIES = "dagster/is_resume_retry", "dagster/retry_number"
"""Dagster's tags of a run that goes on from a failure, and of one that the instance has retried by itself."""


def token(context: dg.OpExecutionContext) -> str:
    """The same for a run and for all its retries from failure: they find what the first one began, or follows (SPEC A6)."""
    return followed(context) or f"dagster-{root(context)}"


def followed(context: dg.OpExecutionContext) -> str:
    """The token of the cut that the trigger has opened, and that this run follows; empty where the run opens its own."""
    return "" if is_reexecution(context) else context.run.tags.get(CUT, "")


def run_of(token: str) -> str:
    """The run that wrote a token, also in one with a number behind it; empty for any other token."""
    match = re.fullmatch(r"dagster-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-\d+)?", token)
    return match[1] if match else ""


def root(context: dg.OpExecutionContext) -> str:
    """Id of the run that began what this one goes on with. *Re-execute all* goes on with nothing: it means again."""
    run = context.run
    while run.parent_run_id and _goes_on(run, len(context.job_def.nodes)):
        parent = context.instance.get_run_by_id(run.parent_run_id)
        if parent is None:
            return run.parent_run_id
        run = parent
    return run.run_id


def _goes_on(run: dg.DagsterRun, steps: int) -> bool:
    """Whether a run continues another one: from its failure, with some of the job's steps, or retried by the instance."""
    some = run.step_keys_to_execute is not None and len(run.step_keys_to_execute) < steps
    return bool(run.tags.get(RESUMES) == "true" or run.tags.get(RETRIES) or some)


def is_reexecution(context: dg.OpExecutionContext) -> bool:
    """Whether a person wants once more what an older run has done: *Re-execute all*."""
    return bool(context.run.parent_run_id) and not _goes_on(context.run, len(context.job_def.nodes))


def asker(context: dg.OpExecutionContext) -> str:
    """Who asked, as the event log names it (SPEC X8)."""
    tags = context.run.tags
    via = tags.get("dagster/sensor_name") or tags.get("dagster/schedule_name") or tags.get("user")
    return f"dagster run {root(context)}" + (f" ({via})" if via else "")
