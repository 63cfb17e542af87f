"""The invariants of docs/protocol.md that the control plane alone can break, checked on one snapshot and against the one before."""

from __future__ import annotations

from dataclasses import dataclass, field

from crkafka_core.control import Reader, Store
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import ANY_GENERATION, Event, Region
from crkafka_core.verify import chain
from crkafka_core.verify.history import History
from crkafka_core.verify.verdict import Findings
from tests.rigs.seen import Remembered


class Broken(AssertionError):
    """An invariant does not hold; the text begins with its number."""


@dataclass
class Invariants:
    """Remembers what must not change; `check` takes one snapshot after another. What must hold is said in `verify.chain`."""

    region: str
    seen: Remembered = field(default_factory=Remembered)

    def check_store(self, store: Store) -> None:
        with store.read(self.region) as reader:
            self.check(reader)

    def check(self, reader: Reader) -> None:
        """Raise `Broken` if anything does not hold."""
        row = reader.get(Region)
        if row is None:
            return
        findings, history = Findings(), History(reader, row)
        chain.by_sql(history, findings)
        self.seen.check(history, findings)
        for c in history.kept:  # by time: only where no clock steps back
            known = {TP(i.topic, i.partition) for i in history.initials if i.at <= c.opened_at}
            if (
                c.generation == ANY_GENERATION
            ):  # a handover covers what was fixed when its number was handed out (SPEC X10)
                known &= {tp for f in history.fillers.get(c.id, ()) for tp in f.offsets}
            for tp in sorted(known - history.merged[c.id].keys()):
                findings.add("I4", f"{tp} was known when the cut was opened, and is missing", checkpoint=c.id, tp=tp)
        if [e.seq for e in reader.select(Event)] != list(range(1, row.next_event)):
            findings.add("I6", "the event log has a hole")
        if findings.kept:
            raise Broken("\n".join(map(str, findings.kept)))
