"""The event thread and the process thread together, turn by turn: what a client that fails does to what is submitted (SPEC M3, M5, X9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from crkafka_core.kafka.edge import Kind, Polled, Rebalance
from crkafka_core.kafka.errors import KafkaFailed
from crkafka_core.member.event_loop import EventLoop
from crkafka_core.member.message_queue import MessageQueue
from crkafka_core.member.submitter import Submitter, Taken
from crkafka_core.model.desired import Desired
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.protocol import signals as sg
from crkafka_core.protocol.commit_metadata import CommitMetadata
from crkafka_core.segments.batch import Batch, Unreadable
from tests.rigs.landing import records

TPS = tuple(TP("t", p) for p in range(3))
ROWS = 330


class LossyClient:
    """A client that moves past records that a poll lost, and refuses a seek now and then; or says that it sought, and did not."""

    def __init__(self, *, lies: bool = False) -> None:
        self.lies = lies
        self.position = dict.fromkeys(TPS, 0)
        self.flowing: set[TP] = set()
        self.polls = 0
        self.refusals = 0

    def poll(self, max_records: int = 0, timeout: float = 0.0) -> Polled:
        self.polls += 1
        if self.polls == 1:
            return Polled(rebalances=(Rebalance(Kind.ASSIGNED, frozenset(TPS), 1),), disturbed=True)
        tp = TPS[self.polls % 3]
        start, stop = self.position[tp], min(ROWS, self.position[tp] + 30)
        if tp not in self.flowing or start == stop:
            return Polled()
        self.position[tp] = stop
        if self.polls % 7 == 0:
            return Polled(disturbed=True, dropped=stop - start)
        return Polled(records(tp, start, stop).continuing({tp: start}))

    def seek(self, offsets: Mapping[TP, int], leader_epochs: Mapping[TP, int]) -> None:
        for tp, offset in sorted(offsets.items()):
            if tp == TPS[1] and offset and self.refusals < 3:
                self.refusals += 1
                if self.lies:
                    continue
                raise KafkaFailed(f"seeking {tp} failed")
            self.position[tp] = offset

    def flow(self, tps: Iterable[TP]) -> None:
        self.flowing = set(tps)

    def known_ends(self) -> dict[TP, int]:
        return {}


class Segments:
    def __init__(self) -> None:
        self.offsets: dict[TP, list[int]] = {tp: [] for tp in TPS}

    def write(self, batch: Batch, epoch: int, number: int, nexts: Mapping[TP, int]) -> None:
        for run in batch.runs:
            self.offsets[run.tp] += range(run.first, run.next)

    def drop(self) -> None: ...


class Asked:
    """What the member asks others for."""

    def __init__(self) -> None:
        self.effects: list[Any] = []

    def do(self, effect: Any) -> None:
        self.effects.append(effect)

    ask = do

    def kick(self) -> None: ...


class Member:
    """One member with its region at rest."""

    def __init__(
        self,
        client: LossyClient,
        epochs: Mapping[TP, int] | None = None,
        held: Sequence[TP] = TPS,
        *,
        head: int = 0,
        start: int = 0,
        landed: Mapping[TP, int] | None = None,
    ) -> None:
        self.epochs, self.start, self.landed = epochs or {}, start, landed
        self.loop = EventLoop(chunk=500, poll_interval=300, commit_at_drain=True, uid="u", name="r/0")
        self.segments, self.asked = Segments(), Asked()
        self.submitter = Submitter(MessageQueue(10_000, 1 << 30), self.segments, self.loop.post)  # type: ignore[arg-type]
        parts: Any = (client, self.submitter, self.asked, self.asked, self.asked)
        self.loop.begin(*parts, lambda consumer: None, lambda: None)
        running = Desired(
            "u",
            1,
            epoch=1,
            phase=Phase.RUNNING,
            head=head,
            registered=True,
            superseded=False,
            wanted=True,
            fills=frozenset(held),
        )
        self.loop.post(sg.Observed(running))
        self.loop.post(sg.Lease(True))

    def run(self, turns: int) -> None:
        for _ in range(turns):
            self.turn()
            for _ in range(2):
                self.submitter.turn(0.0)

    def turn(self) -> None:
        self.loop.turn(0.0)
        while self.asked.effects and isinstance(self.asked.effects[-1], sg.Resolve):
            asked = self.asked.effects.pop()
            starts = dict.fromkeys(asked.held, self.start)
            self.loop.post(sg.Started(asked.stamp, starts, {"t": "id"}, self.epochs, landed=self.landed))


def test_72_a_seek_that_fails_for_one_partition_of_several_loses_nothing() -> None:
    client = LossyClient()
    member = Member(client)
    member.run(400)
    assert client.refusals == 3, "it was asked to seek, and refused"
    assert member.segments.offsets == {tp: list(range(ROWS)) for tp in TPS}
    assert not [e for e in member.asked.effects if isinstance(e, sg.AskReset)]


@pytest.mark.parametrize(
    ("merged", "landed", "safe"),
    [
        (False, None, 5),
        (False, {}, 5),
        (False, {TPS[0]: 3}, 3),
        (True, None, 10),
        (True, {}, 5),
        (True, {TPS[0]: 3}, 3),
    ],
)
def test_s2_a_commit_says_up_to_where_another_region_finds_rows_in_tables(
    merged: bool, landed: dict[TP, int] | None, safe: int
) -> None:
    """After a merge (`commit: consistent`) it named rows of the merged checkpoint itself, which no table has yet."""
    said: dict[TP, str] = {}

    class Client(LossyClient):
        def commit(self, _: object, metadata: dict[TP, str], epochs: object, patience: float | None = None) -> None:
            assert patience is not None and patience < 5, "nothing depends on it, and another cut may come"
            said.update(metadata)

    member = Member(Client())
    member.submitter.taken = Taken(1, 1, {TPS[0]: (5, 10, 5)}, {}, 0.0)
    member.loop._landed = landed
    member.loop._commit_cut(1, merged=merged)
    parsed = CommitMetadata.parse(said[TPS[0]])
    assert parsed is not None and (parsed.merged, parsed.safe) == (10 if merged else 5, safe)


@pytest.mark.parametrize(("landed", "safe"), [(None, 20), ({}, 20), ({TPS[0]: 3}, 3)])
def test_x10_the_commit_of_the_head_says_what_tables_have_of_it_and_its_leader_epochs(
    landed: dict[TP, int] | None, safe: int
) -> None:
    """It said that they have all of it, or what an older cut had found: a region that adopts the offset skipped the rest."""
    calls: list[tuple[Any, Any, Any]] = []

    class Client(LossyClient):
        def commit(self, offsets: object, metadata: object, leader_epochs: object, patience: float = 60.0) -> None:
            assert patience < 5, "it holds up the event thread, and a cut may come"
            calls.append((offsets, metadata, leader_epochs))

    member = Member(Client(), {TPS[0]: 7}, head=4, start=20, landed=landed)
    member.loop._landed = {TPS[0]: 12}
    member.run(20)
    ((offsets, metadata, epochs),) = calls
    parsed = CommitMetadata.parse(metadata[TPS[0]])
    assert parsed is not None and (parsed.checkpoint, parsed.merged, parsed.safe) == (4, 20, safe)
    assert (offsets, epochs) == (dict.fromkeys(TPS, 20), {TPS[0]: 7})


def test_m3_what_does_not_continue_from_where_its_partition_stands_is_never_submitted() -> None:
    """Even when the client says that it sought, and did not: a reset is asked for, and names where."""
    member = Member(LossyClient(lies=True))
    member.run(400)
    for tp in TPS:
        written = member.segments.offsets[tp]
        assert written == list(range(len(written)))
    (reset,) = [e for e in member.asked.effects if isinstance(e, sg.AskReset)]
    assert "t[1] stands at offset" in reset.why


def test_x8_a_partition_that_gives_none_is_seen_beside_one_that_always_has_records_in_the_queue() -> None:
    member = Member(LossyClient())
    member.run(400)
    member.submitter.put(records(TPS[0], ROWS, ROWS + 5))
    assert member.loop.reading() == {TPS[1]: ROWS, TPS[2]: ROWS}, "what waits in the queue was given"
    member.submitter.queue.max_records = 5
    assert member.loop.reading() is None, "nothing is asked for, and what gives nothing cannot be known"
    member.loop.post(sg.Revoked("another has them"))
    member.loop.turn(0.0)
    assert member.loop.reading() == {}, "nothing is held"


@pytest.mark.parametrize("since", [{}, {TPS[0]: ROWS + 1}], ids=["unknown", "one is missing"])
def test_m3_a_run_that_nobody_vouches_for_is_refused(since: Mapping[TP, int]) -> None:
    """Neither is one behind a single record that is missing."""
    member = Member(LossyClient())
    member.run(400)
    member.submitter.put(records(TPS[0], since.get(TPS[0], ROWS), ROWS + 5).continuing(since))
    member.run(3)
    assert member.segments.offsets[TPS[0]] == list(range(ROWS))
    assert any(isinstance(e, sg.AskReset) and "nothing of it is submitted" in e.why for e in member.asked.effects)


@pytest.mark.parametrize(
    ("told", "first", "later", "cut"),
    [(3, 5, 4, True), (3, 5, 3, False), (3, ROWS, 4, False), (-1, 5, 4, False), (3, 5, -1, False)],
)
def test_s4_what_a_later_leader_wrote_before_where_a_partition_stands_tells_that_the_log_was_cut(
    told: int, first: int, later: int, cut: bool
) -> None:
    """A client that did not seek reads over what has taken the place of what was read (found by seed 114)."""
    member = Member(LossyClient())
    member.run(400)
    member.submitter.offsets.leader_epochs[TPS[0]] = told
    batch = records(TPS[0], first, ROWS + 2)
    member.submitter.put(replace(batch, runs=tuple(replace(r, since=first, leader_epoch=later) for r in batch.runs)))
    member.run(3)
    assert cut is any(isinstance(e, sg.AskReset) and "the log was cut" in e.why for e in member.asked.effects)
    assert member.segments.offsets[TPS[0]] == list(range(ROWS if cut else ROWS + 2))


def test_x9_a_record_of_which_a_part_is_null_is_named_where_a_person_looks() -> None:
    class Odd(LossyClient):
        def poll(self, max_records: int = 0, timeout: float = 0.0) -> Polled:
            polled = super().poll(max_records, timeout)
            if polled.batch is None:
                return polled
            first = polled.batch.runs[0]
            return replace(polled, batch=replace(polled.batch, unreadable=(Unreadable(first.tp, first.first, "odd"),)))

    member = Member(Odd())
    member.run(100)
    (told,) = [e for e in member.asked.effects if isinstance(e, sg.Tell)]
    assert "t[2]@0: odd" in told.text, "once a minute, not for each"
    assert member.loop.unreadable > 10


def test_s4_an_end_that_is_told_after_records_were_lost_was_not_met_behind_them() -> None:
    """A poll loses records while a batch is being written; the next one tells the end; they are fetched again only after that."""
    tp = TPS[0]

    class Script(LossyClient):
        def poll(self, max_records: int = 0, timeout: float = 0.0) -> Polled:
            self.polls += 1
            if self.polls == 1:
                return Polled(rebalances=(Rebalance(Kind.ASSIGNED, frozenset({tp}), 1),), disturbed=True)
            if not self.flowing or self.position[tp] > 0:
                return Polled()
            self.position[tp] = 10
            return Polled(records(tp, 0, 10).continuing({tp: 0}))

    client = Script()
    member = Member(client, held=[tp])
    for _ in range(20):
        member.turn()
    assert len(member.submitter.queue) == 1
    while len(member.submitter.queue):
        member.submitter.turn(0.0)  # in the end the batch is taken, and not yet written
    client.poll = lambda *_: Polled(disturbed=True, dropped=10)  # type: ignore[method-assign]
    member.loop.turn(0.0)
    client.poll = lambda *_: Polled(ends={tp: 20})  # type: ignore[method-assign]
    member.loop.turn(0.0)
    assert member.loop.ends == {}, "ten records before that end are fetched again"
    member.submitter.turn(0.0)
    for _ in range(3):
        member.loop.turn(0.0)
    assert member.loop.ends == {tp: 20}, "after the client was sent back it may be met"


def test_71_each_seek_tells_the_leader_epoch_of_the_record_before() -> None:
    """Of the head's at first, and where it is sought again of the last record that was submitted (SPEC S4)."""

    class Told(LossyClient):
        def __init__(self) -> None:
            super().__init__()
            self.told: list[tuple[dict[TP, int], dict[TP, int]]] = []

        def seek(self, offsets: Mapping[TP, int], leader_epochs: Mapping[TP, int]) -> None:
            self.told.append((dict(offsets), dict(leader_epochs)))
            super().seek(offsets, leader_epochs)

        def poll(self, max_records: int = 0, timeout: float = 0.0) -> Polled:
            polled = super().poll(max_records, timeout)
            if polled.batch is None:
                return polled
            runs = tuple(replace(run, leader_epoch=4) for run in polled.batch.runs)
            return replace(polled, batch=replace(polled.batch, runs=runs))

    client = Told()
    member = Member(client, epochs=dict.fromkeys(TPS, 3))
    member.run(100)
    first, *again = client.told
    assert first == (dict.fromkeys(TPS, 0), dict.fromkeys(TPS, 3))
    assert again
    for offsets, epochs in again:
        assert epochs == {tp: 4 if offset else 3 for tp, offset in offsets.items()}
