"""Whatever happens to a table in any order: each record is in it once."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from crkafka_core.lake import erase, road
from crkafka_core.model.errors import Refused
from crkafka_core.plane import erasure
from tests.lake.rig import (
    STEPS,
    Crash,
    Keyed,
    Rig,
    Row,
    dies_at,
)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=pytest.mark.soak) for n in range(3, 25))])
def test_whatever_happens_in_any_order(rig: Rig, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    Story(rig, seed, monkeypatch).tell(steps=40)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1040))
def test_whatever_happens_in_any_order_for_long(rig: Rig, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    Story(rig, seed, monkeypatch).tell(steps=300)


class Story:
    """Quiet partitions, topics made again, a history that forgets, rewinds, crashes, restored backups, erasing, compaction by us and by
    others, repairs: in any order."""

    def __init__(self, rig: Rig, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rig, self.rng, self.monkeypatch = rig, random.Random(seed), monkeypatch
        self.keyed = isinstance(rig, Keyed)
        self.retired: set[int] = set()
        self.floor = 0
        """A reset goes back no further: the topics were made again there."""
        self.saved: Any = None
        self.erased: set[Row] = set()
        """Rows of checkpoints that the history may have forgotten since."""

    def tell(self, steps: int) -> None:
        for _ in range(steps):
            self.rng.choice(self._steps())()
        while self.rig.advance() is not None:
            pass
        assert self.rig.rows() == [row for row in self.rig.truth() if row not in self.erased]
        assert not self.rig.table().version or self.rig.look().clean

    def _steps(self) -> list[Callable[[], Any]]:
        rig, rng = self.rig, self.rng
        erasing = [] if self.keyed else [self._erase]  # keys keep what was erased
        of_tables = [rig.optimize, *erasing, rig.mend, partial(rig.maintain, 2**20)] if rig.table().version else []
        return [
            lambda: rig.land(rng.choice([0, 3, 5]), quiet=rng.choice([(), (), (0,), (1,)])),
            lambda: rig.land(4),
            rig.advance,
            self._crash,
            self._rewind,
            self._retire,
            self._renew,
            self._fill,
            self._save,
            self._restore,
            *of_tables,
        ]

    def _line(self) -> list[int]:
        return self.rig.region.plane.read(lambda reader, row: list(reader.line(row.head)))

    def _crash(self) -> None:
        with self.monkeypatch.context() as patch:
            dies_at(self.rng.choice(STEPS), self.rig, patch)
            try:
                self.rig.advance(limit=self.rng.choice([1, 2, None]))
            except Crash:
                self.rig.writer_dies()

    def _rewind(self) -> None:
        if kept := [c for c in self._line() if c not in self.retired and c >= self.floor]:
            self.rig.rewind(self.rng.choice(kept))
            try:
                self.rig.fence()
            except Refused as refused:
                # Keys are not taken out of a commit that spans the history's edge: the table begins again (tests/plane/test_fences.py).
                assert self.keyed and "cannot go back to checkpoint" in str(refused)
                self.rig.rewind(0)
                self.rig.fence()

    def _retire(self) -> None:
        reached = self.rig.table().acknowledged
        old = [c for c in self._line()[:-2] if c <= reached and c not in self.retired]
        if old and not self.rig.table().owes_fence:
            left = set(self.rig.truth())
            self.erased |= {row for row in self.rig.truth(erased=True) if row not in left}
            self.rig.landing.retire(*old[:2], history=self.rng.choice([1, 3, 100]))
            self.retired.update(old[:2])
            self.saved = None

    def _renew(self) -> None:
        if (line := self._line()) and self.rng.random() < 0.3:
            self.rig.landing.recreate_topics()
            self.floor, self.saved = line[-1], None

    def _fill(self) -> None:
        """A number is handed out, and nothing of it is merged: a cut came to nothing, or is still open."""
        self.rig.region.plane.do(lambda tx: tx.set_region(filling=tx.region().filling + 1))

    def _save(self) -> None:
        self.saved = self.rig.backup()

    def _restore(self) -> None:
        if self.saved is not None and not self.rig.table().owes_fence:
            self.rig.restore_backup(self.saved)
            self.rig.start_restored()
            self.rig.fence()
            self.saved = None

    def _erase(self) -> None:
        """A record that no archived checkpoint seems to have: those are looked up in Kafka."""
        rig = self.rig
        reached = rig.table().acknowledged
        archived = [of for number, of in rig.landed.items() if number in self.retired]
        known = [
            (partition, offset)
            for number, partition, offset in rig.truth()
            if self.floor < number <= reached and number not in self.retired
        ]
        if known and not rig.table().owes_fence:
            partition, offset = self.rng.choice(known)
            if not any(p == partition and start <= offset < stop for of in archived for p, start, stop in of):
                ids = erase.note(rig.region, erasure.by_partition([("orders", partition, offset)]))
                road.erase(rig.region, "bronze", list(ids), means=rig.means)
