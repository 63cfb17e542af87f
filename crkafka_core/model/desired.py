"""What the control plane wants of one member: the only thing that a member acts on (level, not edge)."""

from __future__ import annotations

from dataclasses import dataclass

from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase


@dataclass(frozen=True)
class OpenCut:
    """The open cut, as it was fixed for this member (SPEC C2)."""

    id: int
    parent: int
    generation: int
    members: tuple[str, ...]
    """Names of all expected members."""
    mine: frozenset[TP] | None
    """What the cut fixed for this incarnation; None when it does not expect it."""
    landed: tuple[tuple[TP, int], ...] = ()
    """Where declared tables are behind the parent: below this offset all of them have acknowledged (SPEC S2)."""


@dataclass(frozen=True)
class Mark:
    """A pause mark (SPEC P1, P2). kind: partition, topic, pattern, member."""

    kind: str
    what: str
    member: str = ""
    """Counts for this member only; empty: for whoever holds the partition."""


@dataclass(frozen=True)
class Aim:
    """Ends that a bounded run consumes to (SPEC V3)."""

    token: str
    at: float
    """When it was begun: a run that is tried again has the same token, and hears again what is reached."""
    ends: tuple[tuple[TP, int], ...]
    reached: frozenset[TP] = frozenset()
    """What SQL has of this incarnation in this epoch."""


@dataclass(frozen=True)
class Desired:
    """One consistent snapshot."""

    uid: str
    version: int
    epoch: int
    phase: Phase
    head: int
    registered: bool
    """This incarnation is the registered, live one."""
    superseded: bool
    """Another incarnation of this name is registered."""
    wanted: bool
    """A member of this name is wanted: false after scale-in, and in an idle region."""
    reported: bool = False
    """SQL has a report of this incarnation, of this epoch and head."""
    asked: bool = False
    """SQL has heard that a cut is asked for, in this epoch and from this head."""
    filling: int = 0
    """The last number that was handed out: what is written bears it (SPEC C8)."""
    fills: frozenset[TP] | None = None
    """The partitions of which this incarnation fills that number; None where it does not."""
    opened: int = 0
    """The last number whose cut was opened."""
    assembled: bool = True
    """As many members as are wanted are registered and live."""
    cut: OpenCut | None = None
    marks: frozenset[Mark] = frozenset()
    aims: tuple[Aim, ...] = ()
    """Of all bounded runs that are under way."""
