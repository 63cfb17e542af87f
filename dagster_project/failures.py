"""Failures of runs: a refusal becomes a failure with the reason and what to do next; a service that is away is tried again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from crkafka_core.model.errors import CrkafkaError, ServiceUnavailable
from crkafka_core.model.redaction import conceal

TRIES, PAUSE_S = 5, 4.0
"""How often an op is tried again while a service is away, and after how many seconds first, doubled each time: two minutes in all.
What the region refuses is not tried again."""


@contextmanager
def as_dagster_failure() -> Iterator[None]:
    """Turn a refusal into a failure with its reason, and an absent service into a retry; no secret reaches Dagster (SPEC U2)."""
    try:
        with _concealing():
            yield
    except ServiceUnavailable as error:
        raise dg.RetryRequested(max_retries=TRIES, seconds_to_wait=PAUSE_S * 2 ** _retries_so_far()) from error
    except CrkafkaError as error:
        raise dg.Failure(description=str(error), allow_retries=False) from error


def refuse_less_than(least: float, **given: float) -> None:
    """A bound that a field of an op's configuration declares is reported by pydantic in its own words, after a traceback."""
    for name, value in given.items():
        if value < least:
            raise dg.Failure(f"`{name}` is {value:g}, and cannot be less than {least:g}.", allow_retries=False)


@contextmanager
def _concealing() -> Iterator[None]:
    """Dagster stores an error with all that caused it; what libraries quote of what we gave them is taken out."""
    try:
        yield
    except Exception as error:
        shown = conceal(error)
        if shown is error:
            raise
        raise shown from None


def _retries_so_far() -> int:
    """How often this step was tried again already; 0 outside of one."""
    try:
        return dg.OpExecutionContext.get().retry_number
    except dg.DagsterInvariantViolationError:
        return 0
