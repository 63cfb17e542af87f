"""The verdict of a verification: counts of what was checked, and the first findings of each invariant."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural

PER_INVARIANT = 5
"""Findings of one invariant that are kept; the others are counted."""


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
        checked = f"{plural(self.rows, 'row')} in {plural(self.checkpoints, 'checkpoint')} and {plural(self.segments, 'segment')}"
        if self.rows:
            partly = self.truth in ("kafka", "ledger") and self.compared != self.rows
            truth = "Kafka" if self.truth == "kafka" else self.truth
            checked += f", {f'{self.compared} of them ' if partly else ''}compared with {truth}"
        if self.tables:
            checked += f", and for {plural(len(self.tables), 'declared table')}"
        if self.ok:
            return f"Region {self.region} at head {self.head}: every invariant holds for {checked}."
        counts = ", ".join(f"{name} × {count}" for name, count in sorted(self.broken.items()))
        first = f"Region {self.region} at head {self.head}: broken: {counts}; looked at {checked}."
        return "\n  ".join([first, *map(str, self.findings)])


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
