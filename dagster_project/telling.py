"""How a run speaks: refusals become failures with the reason and what to do next; who asked is named for the event log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from crkafka_core.model.errors import CrkafkaError, ServiceUnavailable

TRIES, PAUSE = 5, 3.0
"""How often, and after how many seconds, an op is tried again while a service is away; what the region refuses is not."""


@contextmanager
def told() -> Iterator[None]:
    """A refusal ends the run and says why; a service that is away is tried again."""
    try:
        yield
    except ServiceUnavailable as error:
        raise dg.RetryRequested(max_retries=TRIES, seconds_to_wait=PAUSE) from error
    except CrkafkaError as error:
        raise dg.Failure(
            description=str(error), metadata={"what": error.message, "next": error.hint or "-"}, allow_retries=False
        ) from error


def token(context: dg.OpExecutionContext) -> str:
    """The same for a run and for all its retries from failure: they find what the first one began (SPEC A6)."""
    return f"dagster-{root(context)}"


def root(context: dg.OpExecutionContext) -> str:
    """Id of the first run of a chain of retries."""
    return context.run.root_run_id or context.run.run_id


def asker(context: dg.OpExecutionContext) -> str:
    """Who asked, as the event log names it (SPEC X8)."""
    tags = context.run.tags
    via = tags.get("dagster/sensor_name") or tags.get("dagster/schedule_name") or tags.get("user")
    return f"dagster run {root(context)}" + (f" ({via})" if via else "")
