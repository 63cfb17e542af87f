"""Makes few large files of many small ones in a table of adopted segments, without Spark; no row changes (SPEC K6).

Only files of *settled* checkpoints: retired, so that no reset reaches them. What a rewind takes out is in files of its own all the
while, and leaves by their names. Nobody is kept waiting: the new file is written first, then one commit of the log replaces the old
ones by it, directly after a version in which all of these are still there. If one has left meanwhile, the new file counts for nothing.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from crkafka_core.control import Reader
from crkafka_core.holder import holder
from crkafka_core.lake import writing
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.hold import Hold, keeping
from crkafka_core.model.errors import LeaseHeld, Refused
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import CheckpointStatus, Region
from crkafka_core.plane import checkpoints, contents, permits, tables
from crkafka_core.segments import rows as parquet
from crkafka_core.segments.batch import SEGMENT
from crkafka_core.segments.storage import Storage
from crkafka_core.tables import files
from crkafka_core.tables.delta_log import DeltaLog, log_of
from crkafka_core.tables.files import KEY, Added, Tally
from crkafka_core.tables.log import DataFile, Moved
from crkafka_core.tables.stamp import MAINTAIN, Stamp, check_there

_log = logging.getLogger(__name__)
TARGET = 128 * 2**20
"""Bytes of a file that is worth opening; what has three quarters of it is left as it is."""
_GROUP_ROWS, _GROUP_BYTES = 100_000, 32 * 2**20
"""Of one row group of a new file, at most about so much."""
_LOOKS = 100
"""Times that others may commit between our look and our commit, one after the other."""
PATIENCE = 120.0
"""Seconds for which a writer is waited for, before what nobody needs any more is deleted."""


@dataclass(frozen=True)
class Maintained:
    """What was done to a table."""

    table: str
    merged: int = 0
    """Files that are not there any more, since others have their rows."""
    into: int = 0
    """Files that have them."""
    deleted: int = 0
    """Files that no version within the table's retention needs."""


def in_words(done: Maintained) -> str:
    """In words."""
    merged = (
        f"{done.into} made of {plural(done.merged, 'file')}" if done.merged else "no small files to make larger ones of"
    )
    return merged + (f"; {plural(done.deleted, 'old one')} deleted" if done.deleted else "")


def maintain(region: Handle, name: str, *, target: int = TARGET) -> Maintained:
    """Compact what is settled, then delete what no version within the table's retention (a week) needs. May be repeated, and may die."""
    table = region.plane.read(lambda reader, row: tables.of(reader, name))
    writing.refuse_copy(region, deletes=True)
    log = log_of(region, table)
    snapshot = log.snapshot()
    check_there(table, "" if snapshot is None else str(snapshot.version))
    if snapshot is None:
        return Maintained(name)
    uid, is_settled = region.plane.read(lambda reader, row: settled(reader, row, name))
    merged = into = 0
    storage = log.storage()
    for group in groups(snapshot.files(), uid, is_settled, target):
        if _replaced(log, storage, Stamp(uid, name, 0, f"maintain-{uuid.uuid4().hex}"), group):
            merged, into = merged + len(group), into + 1
    return Maintained(name, merged, into, vacuum(region, log))


def settled(reader: Reader, region: Region, name: str) -> tuple[str, Callable[[int], bool]]:
    """The region's uid, and whether rows of a checkpoint belong in the table for good: no reset can take them out any more."""
    table = tables.of(reader, name)
    live = checkpoints.ids_with(reader, CheckpointStatus.MERGED)
    if table.owes_fence or not live:
        return region.uid, lambda _: False
    belongs = contents.belonging(reader, region, table)
    return region.uid, lambda checkpoint: checkpoint < live[0] and belongs(checkpoint)


def groups(there: Sequence[DataFile], uid: str, is_settled: Callable[[int], bool], target: int) -> list[list[DataFile]]:
    """Small files of settled checkpoints, in the order of these, as many together as make one of about the target's size.

    Those of one checkpoint stay together, so that the rows of a new file are told by its name and their number.
    """
    of_last: dict[int, list[DataFile]] = {}
    for file in there:
        held = files.checkpoints_of(file.path, uid)
        if held is not None and is_settled(held[1]) and file.kept is None and file.bytes < target * 3 // 4:
            of_last.setdefault(held[1], []).append(file)
    made: list[list[DataFile]] = []
    filled = target
    for _, together in sorted(of_last.items()):
        size = sum(file.bytes for file in together)
        if filled + size > target:
            made.append([])
            filled = 0
        made[-1].extend(sorted(together, key=lambda file: file.path))
        filled += size
    return [group for group in made if len(group) > 1]


def _replaced(log: DeltaLog, storage: Storage, stamp: Stamp, group: Sequence[DataFile]) -> bool:
    """Whether one file has taken the place of these."""
    held = [each for file in group if (each := files.checkpoints_of(file.path, stamp.uid)) is not None]
    name = files.packed_name(stamp.uid, min(first for first, _ in held), max(last for _, last in held), stamp.token)
    tally = Tally()
    size = parquet.write(storage, name, _rows(storage, group, tally), compression="zstd")
    about = {"kind": MAINTAIN, "files": len(group), "rows": tally.rows}
    try:
        if any(file.rows is not None for file in group) and tally.rows != sum(file.rows or 0 for file in group):
            raise Refused(
                f"Files of table {log.table.name} at {log.table.path} have {plural(tally.rows, 'row')} where its log tells of others.",
                hint=f"Nothing was changed. `crkafka mend --look {log.table.name}` tells more.",
            )
        if _commit(log, [_added(name, size, tally, group)], group, stamp, about):
            return True
    except BaseException:
        _dropped(log, storage, name)
        raise
    return not _dropped(log, storage, name)


def _commit(
    log: DeltaLog, add: Sequence[Added], group: Collection[DataFile], stamp: Stamp, about: dict[str, object]
) -> bool:
    """Whether the new file has the place of the others; else one of those is not there any more."""
    wanted = {(file.path, file.bytes) for file in group}
    for _ in range(_LOOKS):
        snapshot = log.snapshot()
        # Of one that is there still, rows may have been marked as deleted meanwhile.
        if snapshot is None or not wanted <= {(f.path, f.bytes) for f in snapshot.files() if f.kept is None}:
            return False
        try:
            snapshot.rearrange(add, group, stamp, about)
            return True
        except Moved as moved:
            _log.info("%s", moved)
    raise Refused(
        f"Somebody else keeps committing to table {log.table.name} at {log.table.path}.",
        hint="It can be tried again at any time.",
    )


def _dropped(log: DeltaLog, storage: Storage, name: str) -> bool:
    """Delete the new file, unless the table has it: whoever was quicker may have been us, asked twice by an object store."""
    snapshot = log.snapshot()
    if snapshot is not None and any(file.path == name for file in snapshot.files()):
        return False
    storage.delete(name)
    return True


def _rows(storage: Storage, group: Sequence[DataFile], tally: Tally) -> Iterator[pa.RecordBatch]:
    """All rows, as batches of a row group's size, each in the order of topic, partition and offset.

    `tally`: a log need not tell the bounds of its files: a table's properties may leave them out.
    """
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for file in group:
        for batch in tally.of(parquet.batches(storage, file.path, SEGMENT.names, only=True)):
            held.append(batch.select(SEGMENT.names).cast(SEGMENT))
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
                yield _ordered(held)
                held, rows, size = [], 0, 0
    if held:
        yield _ordered(held)


def _ordered(held: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    together = pa.Table.from_batches(held).sort_by([(column, "ascending") for column in KEY])
    return together.combine_chunks().to_batches()[0]


def _added(name: str, size: int, tally: Tally, group: Sequence[DataFile]) -> Added:
    """With the bounds of its rows; those of their times as the log has them of all the files."""
    times: list[Any] = [t for f in group for t in (f.lowest.get("timestamp"), f.highest.get("timestamp"))]
    bounds = tally.bounds(None if None in times else (min(times), max(times)))
    return Added(name, size, bounds, changes_rows=False)


def vacuum(region: Handle, log: DeltaLog) -> int:
    """Delete files that left the table longer ago than its retention; as its writer, so that nobody adopts one of them anew meanwhile."""
    with as_writer(region, log.table.name):
        return log.vacuum()


def as_writer(region: Handle, name: str) -> Hold:
    """The lease of the table's writer, once nobody else has it."""
    token, deadline = f"maintain-{uuid.uuid4().hex}", time.monotonic() + PATIENCE
    while True:
        try:
            lease = region.plane.do(lambda tx: permits.take(tx, name, holder=holder(), token=token))
            return keeping(region, lease, lease.kind)
        except LeaseHeld:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
