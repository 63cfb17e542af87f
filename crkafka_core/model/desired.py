"""The state that the control plane wants of one member, which is all that a member acts on (level, not edge)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase


@dataclass(frozen=True)
class OpenCut:
    """The open cut, as fixed for this member (SPEC C2)."""

    id: int
    parent: int
    generation: int
    members: tuple[str, ...]
    """Names of all expected members."""
    mine: frozenset[TP] | None
    """Partitions that the cut expects of this incarnation; None if it expects none."""
    landed: tuple[tuple[TP, int], ...] | None = None
    """Offsets below which all declared tables have acknowledged, where they are behind the parent; None: no table is declared (SPEC S2)."""
    handover: bool = False
    """Whether the cut is a handover's: the members stop, go on polling, and start from its merge in another epoch (SPEC X10)."""


@dataclass(frozen=True)
class Mark:
    """A pause mark (SPEC P1, P2). kind: partition, topic, pattern, member."""

    kind: str
    what: str
    member: str = ""
    """The member that it applies to; empty: any holder of the partition."""

    def pauses(self, tp: TP, holder: str) -> bool:
        """Whether it pauses this partition while `holder` has it."""
        if self.member not in ("", holder):
            return False
        match self.kind:
            case "partition":
                return self.what == str(tp)
            case "topic":
                return self.what == tp.topic
            case "pattern":
                return re.search(self.what, tp.topic) is not None
            case _:
                return self.what == holder


@dataclass(frozen=True)
class Aim:
    """Ends that a bounded run consumes to (SPEC V3)."""

    token: str
    at: float
    """Time of its begin: a retried run has the same token, and needs the reports again."""
    ends: tuple[tuple[TP, int], ...]
    reached: frozenset[TP] = frozenset()
    """Partitions that this incarnation has reported in this epoch."""


@dataclass(frozen=True)
class Desired:
    """One consistent snapshot of the wanted state."""

    uid: str
    version: int
    epoch: int
    phase: Phase
    head: int
    registered: bool
    """Whether this incarnation is the registered, live one."""
    superseded: bool
    """Whether another incarnation of this name is registered."""
    wanted: bool
    """Whether a member of this name is wanted: False after scale-in, and in an idle region."""
    reported: bool = False
    """Whether SQL has this incarnation's report for this epoch and head."""
    asked: bool = False
    """Whether SQL has a request for a cut in this epoch and from this head."""
    filling: int = 0
    """The last number handed out, which rows are written with (SPEC C8)."""
    fills: frozenset[TP] | None = None
    """Partitions of which this incarnation fills that number; None if it does not."""
    opened: int = 0
    """The last number whose cut was opened."""
    assembled: bool = True
    """Whether the wanted number of members is registered and live."""
    cut: OpenCut | None = None
    marks: frozenset[Mark] = frozenset()
    aims: tuple[Aim, ...] = ()
    """Ends of all bounded runs under way."""
