"""What happened in a simulated schedule: who did what, at what simulated time; and the violation that ended it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from crkafka_core.protocol.state import State


class Violation(AssertionError):
    """An invariant of docs/protocol.md does not hold. `rule` names it."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule
        self.text = text


class Heard:
    """What the machine heard, and its state afterwards; formatted when it is read."""

    __slots__ = ("event", "state")

    def __init__(self, event: Any, state: State) -> None:
        self.event, self.state = event, state

    def __str__(self) -> str:
        s, e = self.state, self.event
        what = ""
        if hasattr(e, "desired"):
            d = e.desired
            what = f"{d.phase} epoch {d.epoch} head {d.head} cut {d.cut.id if d.cut else 0}{'' if d.registered else ' not registered'} "
        elif hasattr(e, "held"):
            what = f"{e.held if isinstance(e.held, bool) else sorted(map(str, e.held))} "
        elif hasattr(e, "why"):
            what = f"{e.why} "
        return f"{what}[{s.client} {s.epoch}/{s.base}/{s.serial} gate {s.gate} step {s.step}]"


@dataclass
class History:
    """The readable outcome of one schedule. The same seed and the same faults give the same history."""

    seed: int
    faults: tuple[str, ...] = ()
    """The faults that were injected, in words."""
    entries: list[tuple[float, str, str, object]] = field(default_factory=list)
    """(simulated time, who, what, detail); formatted only when it is read."""
    violation: Violation | None = None
    cuts: int = 0
    """Checkpoints that were merged."""
    resets: int = 0
    """How often the epoch rose after the start, until the faults were over."""
    merges: list[float] = field(default_factory=list)
    """Simulated times of the merges."""
    healed_at: float = 0.0
    tuples: int = 0
    """Records that landed on the line of descent."""
    stops: tuple[str, ...] = ()
    """Reasons for which the region was STOPPED."""
    pairs: set[tuple[str, str, str]] = field(default_factory=set)
    """(phase of the region, step of the victim, kind of fault) of each fault that struck."""
    picks: int = 0
    seconds: float = 0.0
    """Simulated."""

    @property
    def ok(self) -> bool:
        return self.violation is None

    def lines(self, last: int | None = None) -> list[str]:
        """The history as text, one line per entry."""
        chosen = self.entries if last is None else self.entries[-last:]
        return [
            f"{at:9.3f}  {who:<12} {what}{'' if detail is None else f'  {detail}'}" for at, who, what, detail in chosen
        ]

    def __str__(self) -> str:
        return self.text()

    def text(self, last: int | None = None) -> str:
        head = [
            f"seed {self.seed}: {self.cuts} cuts, {self.resets} resets, {self.tuples} tuples in {self.seconds:.1f} simulated seconds"
        ]
        head += [f"fault: {fault}" for fault in self.faults]
        tail = [f"VIOLATION {self.violation}"] if self.violation else []
        return "\n".join([*head, *self.lines(last), *tail])
