"""What may never change or fall between two looks at a region (I5, I6, SPEC X1), remembered from look to look."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from crkafka_core.model.offsets import TP
from crkafka_core.verify.history import History
from crkafka_core.verify.verdict import Findings, Verdict
from crkafka_core.verify.verify import verify

COUNTERS = ("version", "epoch", "filling", "opened", "next_event")
"""Counters in the region's row; none ever falls."""


@dataclass
class Remembered:
    """Values as earlier looks saw them; pass the same one to each."""

    uid: str = ""
    hashes: dict[int, str] = field(default_factory=dict)
    maps: dict[int, dict[TP, int]] = field(default_factory=dict)
    initials: dict[tuple[str, int], int] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    """Column of the region's row → its highest value so far."""

    def check(self, history: History, findings: Findings) -> None:
        region = history.region
        if self.uid and self.uid != region.uid:
            findings.add("I6", f"the region's uid was {self.uid} and is {region.uid}")
            return
        self.uid = region.uid
        for c in history.kept:
            now = {tp: m.to_offset for tp, m in history.merged[c.id].items()}
            before = self.maps.setdefault(c.id, now)
            if self.hashes.setdefault(c.id, c.hash) != c.hash or before != now:
                other = (tp for tp in sorted(before.keys() | now.keys()) if before.get(tp) != now.get(tp))
                moved = "".join(f": {tp} was {before.get(tp)} and is {now.get(tp)}" for tp in list(other)[:1])
                findings.add("I5", f"it changed since an earlier look{moved}", c.id)
        for i in history.initials:
            first = self.initials.setdefault((i.topic_id, i.partition), i.offset)
            if first != i.offset:
                tp = TP(i.topic, i.partition)
                findings.add("I5", f"the initial offset of {tp} was {first} and is {i.offset}", 0, tp, i.offset)
        for name in COUNTERS:
            last, current = self.counters.get(name, 0), getattr(region, name)
            if current < last:
                findings.add("I6", f"{name} was {last} and is {current}")
            self.counters[name] = max(last, current)


def verified(region: Any, seen: Remembered, *args: Any, **keys: Any) -> Verdict:
    """The verdict of `verify`, with what changed since earlier looks."""
    verdict, changed = verify(region, *args, **keys), Findings()
    seen.check(region.plane.read(History), changed)
    broken = {name: verdict.broken.get(name, 0) + changed.counts[name] for name in {*verdict.broken, *changed.counts}}
    return replace(verdict, findings=(*verdict.findings, *changed.kept), broken=broken)
