"""Planted breakages of the real code, which the simulation has to find: what they are, and how they are put in place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from tests.rigs.simulation import Fault, Plan, plan


class Breakage:
    """Something that is wrong in the real code for as long as a block runs."""

    plant: Callable[[ExitStack], None]

    @contextmanager
    def planted(self) -> Iterator[None]:
        with ExitStack() as stack:
            self.plant(stack)
            yield


_MISFIT = re.compile(r"\b(TypeError|AttributeError|NameError|JSONDecodeError)\b")


def check_fits(breakage: str, violation: str) -> None:
    """Raise where the breakage itself raises, and breaks no rule: the code has changed since it was written."""
    if _MISFIT.search(violation):
        raise AssertionError(f"{breakage} does not fit the code any more: mend the breakage. It caused {violation}")


def put(stack: ExitStack, where: Any, name: str, value: Any) -> None:
    stack.enter_context(patch.object(where, name, value))


@dataclass(frozen=True)
class Mutation(Breakage):
    """A breakage, and the rules by which the oracle may find it."""

    name: str
    found_by: frozenset[str]
    plant: Callable[[ExitStack], None]
    faults: tuple[Fault, ...] = ()
    """Where only rare moments show the breakage: faults that make them frequent, in place of the seeds' own."""
    region: Mapping[str, Any] = field(default_factory=dict)
    """And what else of the plan makes them so."""
    since: int = 0
    """The first seed that is tried: near one that shows it, where one in a hundred does."""

    def plan(self, seed: int) -> Plan:
        chosen = replace(plan(seed), faults=self.faults, chaos=14.0) if self.faults else plan(seed)
        return replace(chosen, **self.region)


MUTATIONS: list[Mutation] = []


def mutation(
    *found_by: str, faults: tuple[Fault, ...] = (), since: int = 0, **region: Any
) -> Callable[[Callable[[ExitStack], None]], Callable[[ExitStack], None]]:
    def add(plant: Callable[[ExitStack], None]) -> Callable[[ExitStack], None]:
        MUTATIONS.append(Mutation(plant.__name__, frozenset(found_by), plant, faults, region, since))
        return plant

    return add
