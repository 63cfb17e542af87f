"""The verdict of a verification: counts of what was checked, and the first findings of each invariant."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from crkafka_core.model.errors import Refused
from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural

PER_INVARIANT = 5
"""Findings of one invariant that are kept; the others are counted."""


class InvariantBroken(Refused):
    """A verified region breaks its contract. Reaction: keep everything as it is, and look at the first finding."""


@dataclass(frozen=True)
class Finding:
    """One break of one invariant, and the first place where it shows."""

    invariant: str
    text: str
    checkpoint: int = 0
    tp: TP | None = None
    offset: int | None = None
    path: str = ""

    def __str__(self) -> str:
        at = [f"checkpoint {self.checkpoint}"] if self.checkpoint else []
        at += [str(self.tp)] if self.tp is not None else []
        at += [f"offset {self.offset}"] if self.offset is not None else []
        at += [self.path] if self.path else []
        return f"{self.invariant}: {self.text}" + (f" ({', '.join(at)})" if at else "")


@dataclass(frozen=True)
class Verdict:
    """The outcome of one verification of a region."""

    region: str
    head: int
    epoch: int
    checkpoints: int
    """Merged checkpoints on the line whose segments are kept."""
    retired: int
    """Checkpoints on the line with only their archive left."""
    superseded: int
    """Superseded checkpoints that are still kept."""
    partitions: int
    segments: int
    rows: int
    """Rows that landed on the kept part of the line."""
    bytes: int
    orphans: int
    """Files without a name in SQL: invisible, and collected later."""
    truth: str
    """Where the expected records came from: ledger, kafka, or nothing else."""
    compared: int
    """Number of `rows` that were compared: Kafka may have deleted the others."""
    seconds: float
    findings: tuple[Finding, ...] = ()
    broken: dict[str, int] = field(default_factory=dict)
    """How often each invariant is broken; `findings` has the first of each."""
    notes: tuple[str, ...] = ()
    """Parts that could not be compared, and why."""
    tables: tuple[str, ...] = ()
    """Declared tables whose rows were compared."""

    @property
    def ok(self) -> bool:
        return not self.broken

    def __str__(self) -> str:
        where = f"{plural(self.checkpoints, 'checkpoint')} and {plural(self.segments, 'segment')}"
        what = f"{plural(self.rows, 'row')} in {where}"
        if self.rows:
            some = (
                ""
                if self.truth not in ("kafka", "ledger") or self.compared == self.rows
                else f"{self.compared} of them "
            )
            what += f", {some}compared with {'Kafka' if self.truth == 'kafka' else self.truth}"
        if self.tables:
            what += f", and for {plural(len(self.tables), 'declared table')}"
        if self.ok:
            return f"Region {self.region} at head {self.head}: every invariant holds for {what}."
        counts = ", ".join(f"{name} × {count}" for name, count in sorted(self.broken.items()))
        return "\n  ".join(
            [f"Region {self.region} at head {self.head}: broken: {counts}; looked at {what}.", *map(str, self.findings)]
        )

    def require(self) -> Verdict:
        """The verdict itself; raises `InvariantBroken` with the findings if it has any."""
        if not self.ok:
            raise InvariantBroken(
                str(self), hint="Nothing was changed. Keep the control plane and the segments as they are."
            )
        return self


@dataclass
class Remembered:
    """Values that may never change or fall, as earlier verifications saw them (I5, X1); pass the same one to each."""

    uid: str = ""
    hashes: dict[int, str] = field(default_factory=dict)
    maps: dict[int, dict[TP, int]] = field(default_factory=dict)
    initials: dict[tuple[str, int], int] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    """Column of the region's row → its highest value so far."""


class Findings:
    """Collects findings and notes while a region is verified."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.counts: Counter[str] = Counter()
        self.notes: list[str] = []

    def add(
        self,
        invariant: str,
        text: str,
        *,
        checkpoint: int = 0,
        tp: TP | None = None,
        offset: int | None = None,
        path: str = "",
    ) -> None:
        self.counts[invariant] += 1
        if self.counts[invariant] <= PER_INVARIANT:
            self.kept.append(Finding(invariant, text, checkpoint, tp, offset, path))

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
