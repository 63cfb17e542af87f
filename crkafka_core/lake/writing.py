"""The three steps of every write to declared tables: permits from SQL, a commit of the format to each table, the finish (SPEC K6)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from crkafka_core.control import Tx
from crkafka_core.holder import holder
from crkafka_core.lake import erase, lineage
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.hold import Hold, keeping
from crkafka_core.member.outside_sql import look_outside
from crkafka_core.model import limits
from crkafka_core.model.errors import CrkafkaError, LeaseLost, Refused
from crkafka_core.model.plural import plural
from crkafka_core.model.redaction import redact
from crkafka_core.model.rows import Table
from crkafka_core.plane import permits, reading, restored
from crkafka_core.plane import tables as plane
from crkafka_core.plane.permits import Permit
from crkafka_core.plane.restored import Seen
from crkafka_core.segments import owner

_log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True)
class Written:
    """A commit of the format, before SQL has acknowledged it."""

    version: str
    """Empty: nothing had to be committed."""
    rows: int
    bad: Mapping[int, int] = field(default_factory=dict)
    """Checkpoint → records that could not be decoded, and are not among the rows."""
    counts: Mapping[int, int] | None = None
    """Checkpoint → rows, of a table that does not get each record; None: not counted."""


@dataclass(frozen=True)
class Committed:
    table: str
    number: int
    checkpoints: tuple[int, ...]
    rows: int
    acknowledged: int
    version: str
    bad: int = 0
    """Records that could not be decoded: dead letters, or skipped."""

    @property
    def did_not_fit(self) -> str:
        """The bad records in words, to stand behind the rows."""
        return f"; {plural(self.bad, 'record does', 'records do')} not fit the table" if self.bad else ""


@dataclass(frozen=True)
class Pass:
    """The outcome of a write to several tables; both empty: there was nothing to write."""

    done: dict[str, Committed] = field(default_factory=dict)
    left: dict[str, BaseException] = field(default_factory=dict)
    """Tables whose write does not count, and why."""

    def required(self) -> dict[str, Committed]:
        """`done`; the error of a table that was left is raised."""
        for error in self.left.values():
            raise error
        return self.done


Ask = Callable[[Tx, str], Sequence[Permit]]
"""Asks SQL for permits under a token; all are for the same checkpoints; none: there is nothing to write."""
Write = Callable[[Sequence[Permit], Hold], Iterable[tuple[str, Written | Exception]]]
"""Makes files and commits; the commit or the error of each table, by its name, as it ends."""


class PermitOutdated(CrkafkaError):
    """The table, or SQL, shows more than was known when the write was permitted. Reaction: `standing.acknowledge`, and ask again."""


def asking(
    names: Iterable[str],
    *,
    limit: int | None = None,
    upto: int | None = None,
    ids: Sequence[int] = (),
    advancing: Collection[str] = (),
) -> Ask:
    """Permits for the checkpoints that follow in each table, at most `limit` and not past `upto`.

    With `ids`: for these checkpoints, which are new to tables in `advancing` and are written again in the others.
    """

    def ask(tx: Tx, token: str) -> list[Permit]:
        given = list[Permit]()
        for name in names:
            onward = name in advancing or not ids
            end, again = ids[-1] if onward and ids else upto, None if onward else ids
            permit = permits.permit_commit(tx, name, holder=holder(), token=token, limit=limit, upto=end, ids=again)
            given += [permit] if permit else []
        return given

    return ask


def commit(region: Handle, ask: Ask, write: Write, *, token: str = "") -> Pass:
    """Write once to each permitted table, with the segments held; what is committed is acknowledged in one transaction.

    `token`: tells which commits belong together.
    """
    refuse_copy(region)
    token = token or f"pass-{region.runtime.unique()}"
    given, held = region.plane.do(lambda tx: _begin(tx, ask, token))
    outcome, by_name = Pass(), {permit.table.name: permit for permit in given}
    if held is None:
        return outcome
    with keeping(region, held.lease, f"reader for {_words(given)}"), _writing(region, given) as hold:
        try:
            if erase.note_again(region):
                raise PermitOutdated("Records that were erased have come again with a rewind, and are noted now.")
            written = dict[str, Written]()
            for name, came in write(given, hold):
                if isinstance(came, Exception):
                    outcome.left[name] = came
                else:
                    written[name] = came
            region.plane.do(lambda tx: _finish(tx, by_name, written, outcome))
        except BaseException as error:
            outcome.done.clear()
            outcome.left.update(dict.fromkeys(by_name.keys() - outcome.left.keys(), error))
            if not isinstance(error, Exception):
                raise
        finally:
            for name, why in outcome.left.items():
                _log.info("table %s is left by its pass: %s", name, why)
                give_up(region, by_name[name], why)
    for name, done in outcome.done.items():
        if written[name].version:
            lineage.tell(region, by_name[name], done.version, done.rows)
    return outcome


def _begin(tx: Tx, ask: Ask, token: str) -> tuple[Sequence[Permit], reading.Reading | None]:
    """In one transaction: nothing that is to be read may be retired in between (SPEC T1)."""
    if not (given := ask(tx, token)):
        return given, None
    length, ids = limits.of(tx.region()).driver_lease, given[0].plan.checkpoints
    return given, reading.take(tx, holder=holder(), token=f"{token}-reads", length=length, ids=ids)


def _finish(tx: Tx, by_name: Mapping[str, Permit], written: Mapping[str, Written], outcome: Pass) -> None:
    outcome.done.clear()  # a transaction may be tried again
    for name, made in written.items():
        permit = by_name[name]
        try:
            table = permits.finish_commit(
                tx, permit, version=made.version, rows=made.rows, bad=made.bad, counts=made.counts
            )
        except (Refused, LeaseLost) as error:
            outcome.left[name] = error
            continue
        number, ids, bad = permit.commit.number, permit.plan.checkpoints, sum(made.bad.values())
        outcome.done[name] = Committed(name, number, ids, made.rows, table.acknowledged, table.version, bad)


def fence(region: Handle, name: str, write: Callable[[Permit, Hold], tuple[str, int | None]]) -> Table:
    """Make the table follow the latest rewind; does nothing where it needs no fence.

    `write` commits the fence, and gives the table's version, and the checkpoint to which it went back where that is not the common one:
    what is between is written again.
    """
    refuse_copy(region)
    token = f"fence-{region.runtime.unique()}"
    permit = region.plane.do(lambda tx: permits.permit_fence(tx, name, holder=holder(), token=token))
    if permit is None:
        return region.plane.read(lambda reader, row: plane.of(reader, name))
    with _writing(region, [permit]) as hold:
        try:
            version, reached = write(permit, hold)
            hold.check()
            return region.plane.do(lambda tx: permits.finish_fence(tx, permit, version=version, acknowledged=reached))
        except BaseException as error:
            give_up(region, permit, error)
            raise


def refuse_copy(region: Handle, *, deletes: bool = False) -> None:
    """Tables are written by the control plane that owns the region's storage, and by no copy or older state of it (SPEC T3, G10).

    What `deletes` looks at the segments too, and not only at the mark beside them.
    """
    storage = region.storage()
    if deletes:
        seen = look_outside(region.plane, storage, None).seen
    else:
        uid, place = region.plane.read(lambda _, row: row.uid), region.plane.place()
        mark = owner.check(storage, uid, place, region=region.plane.region)
        seen = Seen() if mark is None else Seen(mark.epoch, mark.checkpoint, f"the mark {owner.path_of(uid)}")
    if region.plane.read(lambda reader, row: restored.beyond(reader, row, seen)):
        region.plane.do(lambda tx: restored.check(tx, seen, by=holder()))


def _writing(region: Handle, given: Sequence[Permit]) -> Hold:
    return Hold(
        lambda: region.plane.do(lambda tx: [permits.renew(tx, permit) for permit in given]),
        None,
        given[0].lease.length / 3,
        f"writer of {_words(given)}",
        region.runtime,
    )


def _words(given: Sequence[Permit]) -> str:
    return f"table {given[0].table.name}" if len(given) == 1 else plural(len(given), "table")


def give_up(region: Handle, permit: Permit, error: BaseException) -> None:
    """Let the next writer go on at once; if SQL does not answer, the lease ends by itself."""
    try:
        region.plane.do(lambda tx: permits.fail_commit(tx, permit, f"{type(error).__name__}: {error}"[:500]))
    except CrkafkaError as refused:
        _log.warning("commit %s to table %s ends by its lease: %s", permit.commit.number, permit.table.name, refused)


@dataclass(frozen=True)
class Tried(Generic[T]):
    """Work on several tables, one after the other."""

    done: dict[str, T]
    """By table."""
    refused: list[CrkafkaError]

    def end(self, tell: Callable[[str], None]) -> None:
        """Raise the worst refusal, if there is one, after `tell` got the others; tables of one shape are refused for one reason."""
        if not self.refused:
            return
        worst = max(self.refused, key=lambda error: error.exit_code)
        for text in dict.fromkeys(map(str, self.refused)):
            if text != str(worst):
                tell(redact(text))
        raise worst


def each(names: Iterable[str], work: Callable[[str], T]) -> Tried[T]:
    """Do it for each of these tables: one that is refused keeps no other from its turn."""
    tried = Tried[T]({}, [])
    for name in names:
        try:
            tried.done[name] = work(name)
        except CrkafkaError as error:
            tried.refused.append(error)
    return tried
