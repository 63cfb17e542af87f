"""A raw table in any order of events, drawn from a seed: whoever crashes, whatever a user does, it ends with what the line says."""

from __future__ import annotations

import json
import random
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crkafka_core.control import Reader
from crkafka_core.lake import erase, writing
from crkafka_core.model.errors import CrkafkaError, LeaseLost, Refused, WentBack
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Region
from crkafka_core.plane import contents, retire, tables
from crkafka_core.tables import last_commit, leftover
from crkafka_core.tables.delta_log import Snapshot
from crkafka_core.tables.last_commit import Standing
from tests.tables.conftest import STEPS, Crash, Lake, dies_at

SEEDS = 12
"""In every run; `pytest -m soak` runs more."""
STEPS_EACH = 40


class Story:
    """What happens to one table. `told` is what has happened, for who reads a failure."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.random, self.lake = random.Random(seed), lake
        self.told: list[str] = []
        self.backup: tuple[object, int] | None = None
        self.made_anew_at = 0
        self.damaged = False
        """Acknowledged rows were changed by a user: only mending puts that right."""
        self.happenings: list[tuple[int, Callable[[], None]]] = [
            (10, self.land),
            (10, self.advance),
            (5, self.crash),
            (4, self.crash_of_fence),
            (4, self.late),
            (4, self.rewind),
            (3, self.fence),
            (2, self.made_anew),
            (6, self.compact),
            (2, self.vacuum),
            (3, self.restore),
            (2, self.clean),
            (1, self.declared_again),
            (2, self.save),
            (2, self.went_back),
            (2, self.retire),
            (1, self.mend),
            (2, self.undone),
            (1, self.crash_of_mend),
            (1, self.written),
            (2, self.lost),
            (4, self.maintain),
            (1, self.crash_of_maintain),
            (2, self.erase),
        ]

    def run(self, steps: int) -> None:
        weights, happenings = zip(*self.happenings, strict=True)
        for _ in range(steps):
            happening = self.random.choices(happenings, weights)[0]
            self.told.append(happening.__name__)
            happening()
            if self.random.random() < 0.12:
                self.settle()
        self.settle()

    # What the program does

    def land(self) -> None:
        if self.row().phase is not Phase.REWINDING:
            self.told[-1] += f" {self.lake.land(self.random.choice([0, 1, 3, 5]))}"

    def advance(self) -> None:
        self.tried(lambda: self.lake.advance(limit=self.random.choice([1, 2, None]), fetch=self.lake.fetch))

    def fence(self) -> None:
        self.tried(lambda: self.lake.fence(fetch=self.lake.fetch))

    def mend(self) -> None:
        ids = self.lake.region.plane.read(self.live)
        chosen = self.random.sample(ids, min(len(ids), self.random.choice([0, 1, 2])))
        self.tried(lambda: self.lake.mend(chosen, fetch=self.lake.fetch))

    def maintain(self) -> None:
        self.tried(lambda: self.lake.maintain(self.random.choice([10_000, 10**6])))

    def rewind(self) -> None:
        line = self.lake.region.plane.read(lambda reader, row: [0, *reader.line(row.head)])
        target = self.random.choice([c for c in line if c >= self.made_anew_at])
        self.told[-1] += f" to {target}"
        self.tried(lambda: self.lake.landing.rewind(target))

    def made_anew(self) -> None:
        self.lake.landing.make_topics_anew()
        self.made_anew_at = self.row().head

    def erase(self) -> None:
        """Some records, of what is merged or even in the table; then the table follows, or it is left to whoever comes."""
        landed = [(c, *self.lake._landed[c][0]) for c in self.lake.region.plane.read(self.line)]
        held = [
            (c, start, stop)
            for c, made, start, stop in landed
            if made == self.lake.landing.topics_made and start < stop
        ]
        if not held:
            return
        checkpoint, start, stop = self.random.choice(held)
        offsets = self.random.sample(range(start, stop), self.random.randint(1, stop - start))
        self.told[-1] += f" {offsets} of {checkpoint}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(erase, "_in_kafka", lambda _, wanted: wanted)
            self.tried(lambda: erase.note(self.lake.region, {TP("orders", self.random.randrange(2)): offsets}))
        if self.random.random() < 0.7:
            self.tried(lambda: self.lake.mend([checkpoint], fetch=self.lake.fetch))
        self.damaged = True

    def retire(self) -> None:
        """Segments go; from here on SQL cannot be put back to before."""
        line = self.lake.region.plane.read(lambda reader, row: reader.line(row.head))
        self.lake.region.plane.do(lambda tx: tx.set_region(limits_json=json.dumps({"retain": 1})))
        for path in self.lake.region.plane.do(lambda tx: retire.retire(tx, line[: len(line) // 2])):
            self.lake.landing.storage.delete(path)
        self.backup = None

    # What goes wrong

    def crash(self) -> None:
        self.dies(self.random.choice(STEPS), lambda: self.lake.advance(fetch=self.lake.fetch))

    def undone(self) -> None:
        """A commit that SQL did not hear of, and a user who puts the table back to before it."""
        self.dies("after the commit", lambda: self.lake.advance(fetch=self.lake.fetch))
        if self.told[-1].endswith("died"):
            self.restore_to(self.lake.version() - 1)

    def crash_of_fence(self) -> None:
        self.dies("after the commit", lambda: self.lake.fence(fetch=self.lake.fetch))

    def crash_of_mend(self) -> None:
        self.dies("after the commit", lambda: self.lake.mend(fetch=self.lake.fetch))

    def crash_of_maintain(self) -> None:
        rearrange = Snapshot.rearrange

        def dead(*given: Any) -> None:
            rearrange(*given)
            raise Crash

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Snapshot, "rearrange", dead)
            try:
                self.maintain()
            except Crash:
                self.told[-1] += ": died"

    def dies(self, step: str, work: Callable[[], object]) -> None:
        self.told[-1] += f" {step}"
        with pytest.MonkeyPatch.context() as patch:
            dies_at(step, type(self.lake))(patch)
            try:
                self.tried(work)
            except Crash:
                self.told[-1] += ": died"
        self.lake.writer_dies()

    def late(self) -> None:
        """A writer that sleeps before its commit, while others do something."""
        kind = self.lake.snapshot
        commit = kind.commit  # type: ignore[attr-defined]
        with pytest.MonkeyPatch.context() as patch:

            def sleeping(snapshot: Any, *rest: Any, **keys: Any) -> Any:
                patch.setattr(kind, "commit", commit)
                patch.undo()
                self.lake.writer_dies()
                other = self.random.choice(
                    [
                        self.advance,
                        self.fence,
                        self.compact,
                        self.rewind,
                        self.land,
                        self.crash,
                        self.maintain,
                    ]
                )
                self.told.append(f"… {other.__name__}")
                other()
                return commit(snapshot, *rest, **keys)

            patch.setattr(kind, "commit", sleeping)
            if self.random.random() < 0.5:
                patch.setattr(writing.Hold, "check", lambda _: None)
            self.tried(lambda: self.lake.advance(fetch=self.lake.fetch))
        self.lake.writer_dies()

    def save(self) -> None:
        self.backup = self.lake.backup(), self.lake.landing.topics_made

    def went_back(self) -> None:
        """An older backup of SQL; whoever writes hears of it, until a person has said how to go on."""
        if self.damaged:  # rows of another topic at the same offsets, as many: by counts alone nobody could tell
            self.settle()
        if self.backup is None:
            return
        rows, topics_made = self.backup
        self.lake.restore_backup(rows)
        if topics_made != self.lake.landing.topics_made:
            self.lake.landing.offsets[self.row().head] = dict.fromkeys(self.lake.landing.tps, 0)
            self.made_anew_at = self.row().head
        self.made_anew_at = min(self.made_anew_at, self.row().head)
        if self.random.random() < 0.5:
            self.advance()
        self.lake.start_restored()
        self.backup = None

    def lost(self) -> None:
        """A backup, and what came after it is in the table."""
        self.save()
        for _ in range(self.random.randint(1, 3)):
            self.land()
            self.advance()
        self.random.choice([self.compact, self.clean, self.rewind])()
        self.went_back()

    # What a user does

    def compact(self) -> None:
        self.user(self.lake.compact)

    def vacuum(self) -> None:
        self.user(lambda: self.lake.vacuum())

    def restore(self) -> None:
        there = self.lake.version() if self.lake.exists() else 0
        self.restore_to(self.random.randint(max(0, there - 6), there))

    def restore_to(self, version: int) -> None:
        self.told[-1] += f" {version}"
        before = self.values()
        self.user(lambda: self.lake.restore(version))
        acknowledged = Counter(self.lake.truth(self.lake.table().acknowledged))
        self.damaged |= bool(acknowledged - self.values() or self.values() - before)

    def values(self) -> Counter[str]:
        """How often each row is there."""
        return Counter(self.lake.values() if self.lake.exists() else [])

    def written(self) -> None:
        """Rows a second time, by somebody who knows nothing of us."""
        rows = self.values().total()
        if rows:
            start = self.random.randrange(rows)
            self.user(lambda: self.lake.write_again(start))
            self.damaged = True

    def clean(self) -> None:
        self.user(self.lake.clean_log)

    def declared_again(self) -> None:
        self.lake.undeclare()
        if self.random.random() < 0.5:
            self.rewind()
        self.lake.declare()

    def user(self, work: Callable[[], object]) -> None:
        if not self.lake.exists():
            return
        try:
            work()
        except self.lake.errors as error:  # a version that is gone, as its log or its files are
            self.told[-1] += f": {type(error).__name__}"

    # And how it ends

    def tried(self, work: Callable[[], object]) -> None:
        """What may be refused, and is tried again later."""
        try:
            work()
        except WentBack:
            self.told[-1] += ": went back"
            assert self.row().went_back
            self.lake.start_restored()
        except CrkafkaError as error:
            self.told[-1] += f": {type(error).__name__} {str(error)[:90]}"

    def settle(self) -> None:
        """A person and the program put right what can be; then the table is right."""
        self.told.append("settle")
        lake = self.lake
        lake.writer_dies()
        for _ in range(60):
            try:
                lake.fence(fetch=self.lake.fetch)
                if lake.advance(fetch=self.lake.fetch) is not None:
                    continue
                if lake.look().clean:
                    break
                self.told.append("mend")
                assert self.damaged or self.lake.values() == self.lake.truth()
                lake.mend_what_is_found(fetch=self.lake.fetch)
            except WentBack:
                lake.start_restored()
            except LeaseLost:
                continue
            except Refused as refused:
                if "declared again" not in str(refused):
                    raise
                self.told.append("from birth")
                lake.remove()
                lake.undeclare()
                lake.declare()
                self.backup = None  # of a table that is gone: whoever put it back would be refused for good
        self.damaged = False
        values = self.values()
        assert values == Counter(lake.truth())
        assert lake.table().acknowledged == self.row().head
        assert lake.look().clean or not values
        assert lake.verified() == []

    def row(self) -> Region:
        return self.lake.region.plane.read(lambda _, row: row)

    def live(self, reader: Reader, row: Region) -> list[int]:
        return contents.live_in(reader, row, tables.of(reader, "bronze"))

    def line(self, reader: Reader, row: Region) -> list[int]:
        return [c for c in reader.line(row.head) if c in self.lake._landed] if row.head else []


def tell(folder: Path, seed: int) -> str:
    return told_of(Lake(folder, members=1 + seed % 2), seed)


def told_of(lake: Lake, seed: int, steps: int = STEPS_EACH) -> str:
    """Empty when all was well, else what happened."""
    story = Story(lake, seed)
    try:
        story.run(steps)
    except Exception as error:
        wrong = story.values() - Counter(story.lake.truth()), Counter(story.lake.truth()) - story.values()
        said = "".join(traceback.format_exception(error)[-3:])
        return f"seed {seed}: {said}too many: {wrong[0]}, too few: {wrong[1]}\n  " + "\n  ".join(story.told)
    return ""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_in_any_order_the_table_ends_with_what_the_line_says(tmp_path: Path, seed: int) -> None:
    failed = tell(tmp_path, seed)
    assert not failed, failed


def _never_unheard(patch: pytest.MonkeyPatch) -> None:
    standing = last_commit.standing
    patch.setattr(
        last_commit,
        "standing",
        lambda *given: Standing.ACKNOWLEDGED if (found := standing(*given)) is Standing.UNACKNOWLEDGED else found,
    )


def _newer_is_trusted(patch: pytest.MonkeyPatch) -> None:
    standing = last_commit.standing
    patch.setattr(
        last_commit,
        "standing",
        lambda *given: Standing.ACKNOWLEDGED if (found := standing(*given)) is Standing.NEWER else found,
    )


def _heard_unseen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Snapshot, "untouched_since", lambda *_: True)


def _by_offsets_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leftover, "_leaves", lambda group, left: any(id(piece) in left for piece in group))
    leaving = leftover._leaving

    def nothing_again(*given: Any) -> leftover.Leaving:
        out = leaving(*given)
        object.__setattr__(out, "returning", _Nothing())
        return out

    patch.setattr(leftover, "_leaving", nothing_again)


class _Nothing(list[Any]):
    def extend(self, _: object) -> None:
        """What leaves with the rest is not brought again."""


@pytest.mark.parametrize(
    ("planted", "since"), [(_never_unheard, 18), (_newer_is_trusted, 4), (_heard_unseen, 0), (_by_offsets_alone, 3)]
)
def test_faults_that_were_there_once_are_found(
    tmp_path: Path, planted: Callable[[pytest.MonkeyPatch], None], since: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within sixty seeds, the first of which is near one that shows it."""
    planted(monkeypatch)
    assert any(tell(tmp_path / str(seed), seed) for seed in range(since, since + 60))
