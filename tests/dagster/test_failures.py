"""What a run's failure shows: reasons and what to do next, and no secret (SPEC U2)."""

from __future__ import annotations

import traceback

import dagster as dg
import pytest

from crkafka_core.config.resolving import remember
from crkafka_core.model.errors import Refused, ServiceUnavailable
from dagster_project.failures import as_dagster_failure

CANARY = "canary-in-a-run"


class Stubborn(Exception):
    """Says what it was given whatever its arguments are."""

    def __str__(self) -> str:
        return f"connecting with {CANARY} failed"


def _raised(outer: type[Exception], cause: Exception) -> None:
    try:
        raise cause
    except Exception as error:
        raise outer(f"refused: {CANARY}") from error


@pytest.mark.parametrize("outer", [Refused, ServiceUnavailable, OSError])
@pytest.mark.parametrize("cause", [OSError(5, f"login {CANARY}"), ValueError(CANARY), Stubborn()])
def test_no_error_of_a_run_and_nothing_that_caused_it_shows_a_secret(outer: type[Exception], cause: Exception) -> None:
    remember(CANARY)
    with pytest.raises((dg.Failure, dg.RetryRequested, OSError, RuntimeError)) as raised, as_dagster_failure():
        _raised(outer, cause)
    text = "".join(traceback.format_exception(raised.value)) + repr(raised.value)
    assert "***" in text
    # The lines of this file that a traceback quotes are no part of what was raised.
    assert CANARY not in text.replace(f'CANARY = "{CANARY}"', "")


def test_an_error_without_one_stays_what_it_is() -> None:
    error = KeyError("orders")
    with pytest.raises(KeyError) as raised, as_dagster_failure():
        raise error
    assert raised.value is error
