"""Random mutations by several actors keep the invariants; a rule that is broken on purpose is found."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable
from itertools import groupby
from operator import itemgetter
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from checkpoints_db import SqlStore, initialise, open_store
from crkafka_core.plane import contributions, epochs, merging, retire
from crkafka_core.protocol import merge as rules
from tests.rigs.invariants import Broken
from tests.rigs.memory import MemoryStore
from tests.rigs.plane_machine import Clock, PlaneMachine

_QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def _settings(examples: int, steps: int, *phases: Phase, **more: bool) -> settings:
    how = {"max_examples": examples, "stateful_step_count": steps, "phases": phases, **more}
    return settings(deadline=None, suppress_health_check=_QUIET, database=None, **how)


def _machine(make: Callable[[Clock], Any]) -> type[PlaneMachine]:
    return type("Machine", (PlaneMachine,), {"make_store": staticmethod(make)})


def _run(make: Callable[[Clock], Any], examples: int, steps: int) -> None:
    run_state_machine_as_test(_machine(make), settings=_settings(examples, steps, Phase.generate, Phase.shrink))


def test_invariants_hold_in_memory() -> None:
    _run(MemoryStore, 30, 40)


def test_invariants_hold_on_sqlite() -> None:
    _run(lambda clock: open_store("sqlite://", clock=clock), 8, 30)


@pytest.mark.postgres
def test_invariants_hold_on_postgres(postgres_url: str) -> None:
    initialise(postgres_url)

    def make(clock: Clock) -> SqlStore:
        store = open_store(postgres_url, clock=clock)
        with store.engine.begin() as connection:
            tables = connection.exec_driver_sql(
                "SELECT string_agg(quote_ident(tablename), ', ') FROM pg_tables"
                " WHERE schemaname = current_schema() AND tablename <> 'crkafka_version'"
            ).scalar()
            connection.exec_driver_sql(f"TRUNCATE {tables}")
        return store

    _run(make, 4, 30)


Change = tuple[ModuleType, str, str, str]
_MUTANTS: dict[str, list[Change]] = {
    "no epoch check": [(contributions, "contribute", "part.epoch != region.epoch", "False")],
    "a stale base is accepted": [(contributions, "_mismatch", "part.base != checkpoint.parent", "False")],
    "members are counted, not compared": [
        (
            rules,
            "wrong_sets",
            "return {name for name, _ in wanted - given}, {name for name, _ in given - wanted}",
            "return (set() if len(given) >= len(wanted) else {'somebody'}), set()",
        ),
        (contributions, "_mismatch", "mine is None or mine.incarnation != part.incarnation", "False"),
        (contributions, "_mismatch", "mine.offsets", "{tp: o[0] for tp, o in part.offsets.items()}"),
    ],
    "an old generation is accepted": [
        (
            contributions,
            "_mismatch",
            "part.offsets and part.generation != checkpoint.generation",
            "False and checkpoint.generation",
        )
    ],
    "a merge forgets a partition": [
        (merging, "_merged_map", "for o in offsets:\n        tp", "for o in offsets[1:]:\n        tp")
    ],
    "nothing compares with the parent": [
        (rules, "broken", "o.from_offset != begins", "False"),
        (contributions, "_mismatch", "part.offsets[tp][0] != due", "False"),
    ],
    "an abort keeps its segments": [(epochs, "drop_parts", "in PARTS", "in PARTS[:-1]")],
    "a rewind does not raise the epoch": [
        (epochs, "_next", "max(region.epoch, above) + 1", "max(region.epoch, above)"),
        (epochs, "_next", "tx.add(begun)", "tx.put(begun)"),
    ],
    "retirement keeps the merged rows": [(retire, "retire", "tx.delete(MergedOffset, where)", "pass")],
    "the archive forgets an offset": [(retire, "retire", "o.rows or o.to_offset != o.from_offset", "o.rows > 1")],
}
_RARE = (
    "no epoch check",
    "a stale base is accepted",
    "an old generation is accepted",
    "nothing compares with the parent",
)
"""Nine tenths of the time of all ten. tests/plane/test_contributions.py has a test of each of these rules."""


@pytest.mark.parametrize(
    "mutant", [pytest.param(name, marks=pytest.mark.soak) if name in _RARE else name for name in _MUTANTS]
)
def test_a_rule_that_is_broken_on_purpose_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for (module, name), changes in groupby(_MUTANTS[mutant], itemgetter(0, 1)):
        monkeypatch.setattr(module, name, _changed(module, name, changes))
    find = _settings(500, 40, Phase.generate, derandomize=True)
    with pytest.raises((Broken, AssertionError, StopIteration, KeyError)) as found:
        run_state_machine_as_test(_machine(MemoryStore), settings=find)
    assert isinstance(found.value, Broken), found.value


def _changed(module: ModuleType, name: str, changes: Iterable[Change]) -> Any:
    """The function with some words of its source replaced."""
    source = textwrap.dedent(inspect.getsource(getattr(module, name)))
    for *_, old, new in changes:
        assert old in source, f"{module.__name__}.{name} has changed: {old!r} is not in it"
        source = source.replace(old, new)
    made: dict[str, Any] = {}
    exec(compile("from __future__ import annotations\n" + source, f"<mutant of {name}>", "exec"), vars(module), made)
    return made[name]
