"""The judge of a simulated schedule: checks the invariants (SPEC I1-I13) after every mutation.

What processes do, and what Kafka holds, it judges from its own records; what rows must say by themselves is said in `verify.chain`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from crkafka_core.control import Cond, Reader
from crkafka_core.model import limits
from crkafka_core.model.offsets import TP, unpack
from crkafka_core.model.phase import FLOWING, TRANSITIONS, Phase, Wanted
from crkafka_core.model.rows import (
    Alarm,
    Checkpoint,
    CheckpointStatus,
    Contribution,
    Filler,
    Initial,
    Member,
    MemberStatus,
    MergedOffset,
    PauseMark,
    Region,
    Reset,
    ResetCause,
    Segment,
    Table,
)
from crkafka_core.model.segment import SegmentName
from crkafka_core.protocol.signals import Stamp
from crkafka_core.verify import chain
from crkafka_core.verify.history import History
from crkafka_core.verify.verdict import Findings
from tests.rigs.simulation.broker import Record, after
from tests.rigs.simulation.configuration import ALARM_AT_LEAST
from tests.rigs.simulation.history import Violation
from tests.rigs.simulation.merges import HANDS_OVER, Merges, members_that_failed

if TYPE_CHECKING:
    from tests.rigs.simulation.scheduler import Owner


COUNTS = frozenset({"failure", "mismatch", "stuck"})
ZEROES = frozenset({"start", "restored"})
"""Causes of resets that count towards a stop, and that begin the count anew (docs/protocol.md)."""
BUDGETED = frozenset({"lost"})
"""Causes of which each member may make so many."""
BACKS_OFF = COUNTS | {"unavailable", "offset gone", "late"}


class Oracle(Merges):
    """Judges what processes do, and what each transaction has changed."""

    # What processes do

    def sought(self, who: Owner, stamp: Stamp, offsets: Mapping[TP, int]) -> None:
        """I7: whoever starts under a head starts where that head ends."""
        if offsets and (stamp.epoch, stamp.base) == (self.row.epoch, self.row.head):
            self.starts += 1
        if not any(stamp.base in merged for merged, _ in self._known()):
            raise Violation("I7", f"{who.name} starts from checkpoint {stamp.base}, which was never merged")
        for tp, offset in offsets.items():
            due = self.ways_to_begin(stamp.base, tp)
            if not any(self.may_begin(stamp.base, tp, offset, at) for at in due):
                raise Violation("I7", f"{who.name} starts {tp} at {offset}; head {stamp.base} has {due}")
            epoch, after = self.given_up.get((stamp.base, tp), (0, 0))
            given_up = offset < after and not self._at_the_cut(stamp.base, tp, offset, after)
            if given_up and stamp.epoch >= epoch and stamp.epoch > self.lost_epoch:
                raise Violation(
                    "X9", f"{who.name} starts {tp} at {offset}, and a person has given up what is before {after}"
                )
            self.gaps.pop((stamp.epoch, stamp.base, tp), None)  # of a state of SQL that a backup has replaced
            if offset not in due:
                self.gaps[stamp.epoch, stamp.base, tp] = offset

    def submitted(self, who: Owner, name: SegmentName, tp: TP, records: list[Record], written: int | None) -> None:
        """I7, I3, M8, D3: nothing flows before the region ran, or to a number that its cut has taken; the first tuple of a partition
        since a start is the first at or after the offset in the head, each other one follows the one before, also behind a mark."""
        heads = self.ran.get((name.epoch, name.number), {})
        if not heads:
            raise Violation(
                "M8", f"{who.name} submits {tp} in epoch {name.epoch} to {name.number}, where the region never ran"
            )
        if (name.incarnation, tp) not in self.fills[name.epoch, name.number]:
            raise Violation(
                "C8", f"{who.name} submits {tp} to {name.number} of epoch {name.epoch}, and does not fill it"
            )
        paused = [
            any(_pauses(mark, tp, who.name.partition("#")[0]) and self._still(mark) for mark in marks)
            for marks in heads.values()
        ]
        if all(paused):
            raise Violation("P2", f"{who.name} submits {tp}, which was paused when the region came to run")
        if (name.incarnation, name.epoch, name.number) in self.drained:
            raise Violation("D3", f"{who.name} submits {tp}@{records[0][0]} to {name.number} behind its cut")
        starts = set() if written is None else {written}
        for head in heads if written is None else ():
            gap = self.gaps.get((name.epoch, head, tp))
            starts |= self.ways_to_begin(head, tp) if gap is None else {gap}
        due = [after(log, start, len(records)) for log in self.broker.logs_of(tp) for start in sorted(starts)]
        if records not in due:
            raise Violation(
                "I7" if written is None else "I3",
                f"{who.name} submits {tp} {records} in {name.path}; due from {starts} were {due}",
            )
        self.wrote.add((name.incarnation, name.epoch, name.number))
        self.reached[tp] = max(self.reached.get(tp, (0, 0)), (name.epoch, records[-1][0] + 1))
        self.highest[tp] = max(self.highest.get(tp, 0), records[-1][0] + 1)

    def _still(self, mark: PauseMark) -> bool:
        with self.store.read(self.name) as reader:
            return reader.get(PauseMark, mark.kind, mark.what, mark.member) == mark

    def closes(self, name: SegmentName) -> None:
        """For a cut, with all that was submitted since the last one."""
        self.drained.add((name.incarnation, name.epoch, name.number))

    def not_collected(self, name: SegmentName) -> None:
        """T3: what is being filled is nobody's to collect."""
        filled = (self.row.filling, self.row.open_cut)
        if name.path not in self.disk and name.epoch == self.row.epoch and name.number in filled:
            raise Violation("T3", f"{name.path} was collected while it was written")

    def committed(self, who: Owner, offsets: Mapping[TP, int]) -> None:
        """I12: never ahead of what was submitted."""
        for tp, offset in offsets.items():
            skipped = max((end for at, _, end in self.skips if at == tp), default=0)
            first = max(self.initial.get(tp, {}).values(), default=0)
            if offset > max(self.highest.get(tp, 0), first, self.broker.kept_from(tp), skipped):
                raise Violation(
                    "I12", f"{who.name} commits {tp} at {offset}; nobody submitted past {self.highest.get(tp, 0)}"
                )

    def deletes(self, who: Owner, path: str) -> None:
        """G10, T3: what a newer state of SQL names is there when its backup is put in place."""
        if path in self.precious:
            raise Violation("T3", f"{who.name} deletes {path}, and a newer state of SQL names it")

    def lacks(self) -> bool:
        """Whether files are gone that SQL names: retired before it was put back to when it named them. No backup has them."""
        with self.store.read(self.name) as reader:
            kept = {c.id for c in reader.select(Checkpoint, ("status", "=", CheckpointStatus.MERGED))}
            return any(s.checkpoint in kept and s.path not in self.disk for s in reader.select(Segment))

    def retires(self) -> None:
        """T1: what a table has not acknowledged is kept."""
        with self.store.read(self.name) as reader:
            retired = {c.id for c in reader.select(Checkpoint, ("status", "=", CheckpointStatus.RETIRED))}
            new, self.retired = max(retired - self.retired, default=0), retired
            if lacking := [t.name for t in reader.select(Table) if t.acknowledged < new]:
                raise Violation("T1", f"checkpoint {new} is retired, and tables {lacking} have not acknowledged it")

    # What SQL says

    def judge(self) -> None:
        """After each transaction, whoever ran it."""
        with self.store.read(self.name) as reader:
            row = reader.region()
            last = self.row
            if row is last or row.version == last.version:
                return
            self.row = row
            if row.born:
                self._initials(reader)
            if row.epoch > last.epoch:
                self._failures(reader, last, row)
                self._went_on(reader, last, row)
                self._merged_first(reader, last, row)
            over = last.open_cut and row.open_cut != last.open_cut
            if row.head != last.head:
                self._head(reader, last, row)
            elif over and row.epoch == last.epoch:
                self._empty(reader, last.open_cut)
            elif over and row.epoch <= last.epoch:
                raise Violation("D4", f"cut {last.open_cut} was aborted in epoch {last.epoch}, which did not rise")
            if row.open_cut and row.open_cut != last.open_cut:
                self._opened(reader, row)
            self.contributed = reader.count(Contribution, ("checkpoint", "=", row.open_cut)) if row.open_cut else 0
            if row.phase is not last.phase:
                self._phase(reader, last, row)
            if row.head != last.head or row.open_cut < last.open_cut:
                self._by_sql(reader)

    def _initials(self, reader: Reader) -> None:
        rows = reader.select(Initial)
        if rows == self.initials:
            return
        self.initials = rows
        before, self.known = self.known, {TP(i.topic, i.partition) for i in rows if not i.forgotten}
        self.forgotten += sorted(before - self.known)
        for i in rows:
            self.initial.setdefault(TP(i.topic, i.partition), {}).setdefault(i.topic_id, i.offset)

    def _failures(self, reader: Reader, last: Region, row: Region) -> None:
        """X6, by its own count: so many failures in a row, with no cut and nothing that zeroes the count in between, stop the region."""
        for reset in reader.select(Reset, ("epoch", ">", last.epoch)):
            self.failures = 0 if reset.cause in ZEROES else self.failures + (reset.cause in COUNTS)
            if reset.cause == "person" and last.phase is Phase.STOPPED:
                self.failures = 0
        if self.failures >= limits.of(row).max_consecutive_resets and row.phase not in (Phase.STOPPED, Phase.IDLE):
            raise Violation("X6", f"{self.failures} failures in a row, and the region is {row.phase}")

    def _went_on(self, reader: Reader, last: Region, row: Region) -> None:
        """A person has said how to go on, as SQL has it: the reply may be lost on its way to them.

        So has who started the region when nothing outside SQL named the newer state any more.
        """
        started = last.went_back and not row.went_back
        if started or reader.count(Reset, ("cause", "=", "restored"), ("epoch", ">", last.epoch)):
            self.precious.clear()

    def _opened(self, reader: Reader, row: Region) -> None:
        fillers = reader.select(Filler, ("checkpoint", "=", row.open_cut))
        self.fixed = {(e.member, e.incarnation) for e in fillers}
        self.covers = {tp for f in fillers for tp in f.offsets}
        if not row.handover_json:  # of one whose members may be in the middle of a rebalance (SPEC X10)
            self._settled(reader, row, "opens a cut")
        if row.filling > row.open_cut:  # a mark: who has taken its offsets goes on (SPEC D5)
            self._runs(reader, row)

    def _merged_first(self, reader: Reader, last: Region, row: Region) -> None:
        """X10: no rebalance, loss or leave drops what members have submitted that are there; unless all of them are late, or have nothing
        new."""
        reset, number = reader.get(Reset, row.epoch), last.open_cut or last.filling
        if reset is None or reset.cause not in HANDS_OVER or last.phase not in FLOWING or row.head != last.head:
            return
        checkpoint = reader.get(Checkpoint, number)
        if checkpoint is not None and (
            checkpoint.status is CheckpointStatus.EMPTY or (reset.at > checkpoint.deadline and not self.contributed)
        ):
            return
        fills = {incarnation for incarnation, _ in self.fills.get((last.epoch, last.filling), ())}
        failed = members_that_failed(reader, last.epoch)
        live = {m.incarnation for m in reader.select(Member) if m.status is MemberStatus.LIVE and m.name not in failed}
        if self.contributed or fills & live:
            raise Violation(
                "X10", f"{reset.cause} drops {number}; {self.contributed} contributed, {fills & live} are there"
            )

    def _settled(self, reader: Reader, row: Region, what: str) -> None:
        """G8, by its own words and not by the code that decides it."""
        live = [m for m in reader.select(Member) if m.status is MemberStatus.LIVE]
        if not live:
            raise Violation("G8", f"the region {what} without members")
        held: list[TP] = []
        for m in live:
            if m.launch < self.launches.get(m.name, 0):
                raise Violation("G3", f"{m.name} is launch {m.launch}, and {self.launches[m.name]} had taken over")
            self.launches[m.name] = m.launch
            if (
                not m.assignment_json
                or (m.epoch, m.base) != (row.epoch, row.head)
                or (m.generation != live[0].generation and not m.member_epochs)
            ):
                raise Violation(
                    "G8", f"the region {what} in epoch {row.epoch} from {row.head}, but {m.name} reports {m}"
                )
            held += unpack(m.assignment_json)
        if len(set(held)) != len(held) or not self.known <= set(held):
            raise Violation("G8", f"the region {what}, held are {sorted(held)}, known {sorted(self.known)}")

    def _phase(self, reader: Reader, last: Region, row: Region) -> None:
        if row.phase not in TRANSITIONS[last.phase]:
            raise Violation("G9", f"{last.phase} → {row.phase}")
        if row.phase is Phase.RUNNING:
            if row.head == last.head and last.phase is not Phase.CUTTING:  # else a cut found nothing new (SPEC V1)
                self._settled(reader, row, "resumes")
            if last.phase is not Phase.CUTTING:
                self._resumed(reader, last, row)
            self._runs(reader, row)
            owing = [t for t in reader.select(Table) if t.owes_fence]
            late = [t.name for t in owing if (t.name, t.rewind_epoch) not in self.declared]
            if late:
                raise Violation("X4", f"the region runs, and tables {late} have not followed its rewind")
        if row.phase is Phase.STOPPED:
            self.stops.append(row.stop_reason)
            if not self.lost:
                self._stopped(reader, row)

    def _stopped(self, reader: Reader, row: Region) -> None:
        """X6, S4, by its own counts: a reason to be STOPPED is one that has happened."""
        limit, why = limits.of(row), row.stop_reason
        mine: tuple[Cond, ...] = ("member", "=", row.stop_member), ("cause", "in", BUDGETED)
        forced = reader.select(Reset, *mine, ("epoch", ">", row.started_epoch))
        if "in a row without a completed cut" in why:
            happened = self.failures >= limit.max_consecutive_resets
        elif "without a completed cut in between" in why:
            happened = sum(reset.epoch > self.proved for reset in forced) >= limit.forced_without_cut
        elif f"in {limit.forced_window:.0f} s" in why:
            happened = len(forced) >= limit.forced_budget
        else:  # Kafka has lost something
            happened = bool(self.broker.former or self.broker.cuts or any(self.broker.starts.values()))
        if not happened:
            raise Violation("X6", f"STOPPED for what has not happened: {why}")

    def _resumed(self, reader: Reader, last: Region, row: Region) -> None:
        """X6: not before the back-off of the last failure is over; and that no merge came for long was told before."""
        reset, limit, now = reader.get(Reset, row.epoch), limits.of(row), row.resumed_at
        if reset is not None and reset.cause in BACKS_OFF and reset.at <= now:
            wait = min(limit.backoff_base * 2 ** (row.consecutive + row.failing), limit.backoff_cap)
            if now < reset.at + wait:
                raise Violation(
                    "X6", f"the region resumes {now - reset.at:.2f} s after {reset.cause}; due were {wait} s"
                )
        started, alarm = reader.get(Reset, row.started_epoch), reader.get(Alarm, "no merge")
        since = max(last.last_cut_at, started.at if started is not None else now)
        if reset is not None and reset.cause is ResetCause.PERSON:  # a rewind that was asked for begins the wait anew
            since = max(since, last.reset_at)
        asked_to_stop = (
            row.wanted is Wanted.STOP
        )  # it resumes for its last cut; a stop has an alarm of its own (SPEC G9)
        if (
            row.period
            and not asked_to_stop
            and now > since + max(3 * row.period, ALARM_AT_LEAST)
            and (alarm is None or alarm.at <= last.last_cut_at)
        ):
            raise Violation("X6", f"no merge for {now - since:.2f} s, and there is no alarm")

    def _head(self, reader: Reader, last: Region, row: Region) -> None:
        if row.head in self.merged:
            self._rewound(reader, last, row)
        else:
            self._merge(reader, last, row)

    def _rewound(self, reader: Reader, last: Region, row: Region) -> None:
        line, at = [0], last.head
        while at:
            line.append(at)
            at = self.parents[at]
        if row.head not in line:
            raise Violation("X3", f"the head went from {last.head} to {row.head}, which is not on its line")
        if row.epoch <= last.epoch or row.phase is Phase.RUNNING:
            raise Violation("I6", f"the head went back to {row.head}: epoch {last.epoch} → {row.epoch}, {row.phase}")
        at, forgotten = last.head, {i.topic_id for i in self.initials if i.forgotten}
        while at != row.head:
            checkpoint = reader.get(Checkpoint, at)
            if checkpoint is None or checkpoint.status is not CheckpointStatus.SUPERSEDED:
                raise Violation("X4", f"checkpoint {at} was left behind and is {checkpoint and checkpoint.status}")
            if lost := [
                o
                for o in reader.select(MergedOffset, ("checkpoint", "=", at), ("rows", ">", 0))
                if o.topic_id in forgotten
            ]:
                raise Violation("X4", f"checkpoint {at} was left behind with rows that nobody reads again: {lost[0]}")
            at = self.parents[at]

    # At the end

    def final(self) -> int:
        """What SQL says, and that each named file is there; how many tuples are on the line."""
        with self.store.read(self.name) as reader:
            rows = reader.select(Checkpoint)
            self._by_sql(reader)
            if tuple(reader.line(self.row.head)) != tuple(self.line()):
                raise Violation("C5", f"the line of {self.row.head} is {reader.line(self.row.head)}, was {self.line()}")
            live = {c.id for c in rows if c.status is CheckpointStatus.MERGED}
            kept = self.disk.keys() | self.deleted
            lost = [s.path for s in reader.select(Segment) if s.checkpoint in live and s.path not in kept]
            if lost:
                raise Violation("T3", f"named segments are gone: {lost[:3]}")
            return sum(c.rows for c in rows if c.id in set(self.line()))

    def _by_sql(self, reader: Reader) -> None:
        """What must hold of the rows by themselves, as `verify` asks it of a region in production."""
        findings, history = Findings(), History(reader, self.row)
        chain.by_sql(history, findings)
        self.seen.check(history, findings)
        if findings.kept:
            raise Violation(findings.kept[0].invariant, str(findings.kept[0]))


def _pauses(mark: PauseMark, tp: TP, member: str) -> bool:
    """P1, P2, by their own words: topics of a simulation have short names, and a pattern here names one of them whole."""
    if mark.member not in ("", member):
        return False
    return mark.what in (member if mark.kind == "member" else "", str(tp), tp.topic, f"^{tp.topic}$")
