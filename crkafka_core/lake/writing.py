"""The three steps of every write to a declared table, whoever makes it: a permit from SQL, the format's commit, the finish (SPEC K6)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from crkafka_core.control import Tx
from crkafka_core.holder import holder
from crkafka_core.lake import erase, lineage
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.hold import Hold, keeping
from crkafka_core.member.outside_sql import look_outside
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Table
from crkafka_core.plane import limits, permits, reading, restored
from crkafka_core.plane import tables as plane
from crkafka_core.plane.permits import Permit
from crkafka_core.plane.restored import Seen
from crkafka_core.segments import owner

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Written:
    """What the format's own commit made."""

    version: str
    rows: int
    bad: Mapping[int, int] = field(default_factory=dict)
    """Checkpoint → records that could not be decoded, and are not among them."""
    counts: Mapping[int, int] | None = None
    """Checkpoint → rows, of a table that has not got each record; None: they were not counted so."""


@dataclass(frozen=True)
class Fenced:
    """What a fence made of the table."""

    version: str
    acknowledged: int | None = None
    """The checkpoint to which it went back, where that is not the common one: what is between is written again."""


@dataclass(frozen=True)
class Committed:
    """What a write did."""

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
        """These in words, to stand behind the rows."""
        return f"; {plural(self.bad, 'record does', 'records do')} not fit the table" if self.bad else ""


Ask = Callable[[Tx, str], Permit | None]
"""Asks SQL for a permit under a token; None: there is nothing to write."""


def asking(name: str, *, limit: int | None = None, upto: int | None = None, ids: Collection[int] | None = None) -> Ask:
    """For what follows in the table, at most so many checkpoints and not past one; or for these, which it has."""
    return lambda tx, token: permits.permit_commit(
        tx, name, holder=holder(), token=token, limit=limit, upto=upto, ids=ids
    )


class _PlanIsOld(CrkafkaError):
    """What the permit lets be read is not what the table has to get any more. Reaction: ask for another permit."""


def commit(
    region: Handle, name: str, ask: Ask, write: Callable[[Permit, Hold], Written], *, token: str = ""
) -> Committed | None:
    """Write once under a permit, with the segments held; None when there is nothing to write.

    A token is given by who writes several tables together: it tells what belongs together.
    """
    with suppress(_PlanIsOld):
        return _commit(region, name, ask, write, token)
    return _commit(region, name, ask, write, token)


def _commit(
    region: Handle, name: str, ask: Ask, write: Callable[[Permit, Hold], Written], token: str
) -> Committed | None:
    refuse_copy(region)
    token = token or f"write-{region.runtime.unique()}"
    permit, held = region.plane.do(lambda tx: _permit_and_reading(tx, ask, token))
    if permit is None or held is None:
        return None
    with keeping(region, held.lease, f"reader for table {name}"), _writing(region, permit) as hold:
        try:
            if erase.note_again(region):
                raise _PlanIsOld("Records that were erased have come again with a rewind, and are noted now.")
            written = write(permit, hold)
            done = region.plane.do(
                lambda tx: permits.finish_commit(
                    tx,
                    permit,
                    version=written.version,
                    rows=written.rows,
                    bad=written.bad,
                    counts=written.counts,
                )
            )
        except BaseException as error:
            give_up(region, permit, error)
            raise
    if written.version:
        lineage.tell(region, permit, done, written.rows)
    bad = sum(written.bad.values())
    return Committed(
        name, permit.commit.number, permit.plan.checkpoints, written.rows, done.acknowledged, done.version, bad
    )


def fence(region: Handle, name: str, write: Callable[[Permit, Hold], Fenced]) -> Table:
    """Make the table follow the latest rewind: `write` commits the fence, and says what it made. Nothing is done when none is owed."""
    refuse_copy(region)
    token = f"fence-{region.runtime.unique()}"
    permit = region.plane.do(lambda tx: permits.permit_fence(tx, name, holder=holder(), token=token))
    if permit is None:
        return region.plane.read(lambda reader, row: plane.of(reader, name))
    with _writing(region, permit) as hold:
        try:
            made = write(permit, hold)
            hold.check()
            return region.plane.do(
                lambda tx: permits.finish_fence(tx, permit, version=made.version, acknowledged=made.acknowledged)
            )
        except BaseException as error:
            give_up(region, permit, error)
            raise


def refuse_copy(region: Handle, *, deletes: bool = False) -> None:
    """Tables are written by the control plane that owns the region's storage, and by no copy or older state of it (SPEC T3, G10).

    Who `deletes` looks at the segments too, and not only at the mark beside them.
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


def _permit_and_reading(tx: Tx, ask: Ask, token: str) -> tuple[Permit | None, reading.Reading | None]:
    """The permit and a reader's lease on what it reads, in one transaction (SPEC T1)."""
    permit = ask(tx, token)
    if permit is None:
        return None, None
    length = limits.of(tx.region()).driver_lease
    return permit, reading.take(
        tx, holder=holder(), token=f"{token}-{permit.table.name}-reads", length=length, ids=permit.plan.checkpoints
    )


def _writing(region: Handle, permit: Permit) -> Hold:
    return Hold(
        lambda: region.plane.do(lambda tx: permits.renew(tx, permit)),
        None,
        permit.lease.length / 3,
        f"writer of table {permit.table.name}",
        region.runtime,
    )


def give_up(region: Handle, permit: Permit, error: BaseException) -> None:
    """Let the next writer go on at once; if SQL does not answer, the lease ends by itself."""
    try:
        region.plane.do(lambda tx: permits.fail_commit(tx, permit, f"{type(error).__name__}: {error}"[:500]))
    except CrkafkaError as refused:
        _log.warning("commit %s to table %s ends by its lease: %s", permit.commit.number, permit.table.name, refused)
