"""Makes few large files of many small ones in a table, without Spark; no row changes (SPEC K6).

Only of checkpoints that are retired: no reset reaches them, so that what a rewind takes out is in small files of its own. In a table
with one row for each key any files are joined, and marked rows are left out. No writer waits: the new file is written first, then one
commit replaces the old ones by it, if each of them is still there as it was.
"""

from __future__ import annotations

import logging
import time
import uuid
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from crkafka_core.config.json_columns import PREFIX
from crkafka_core.control import Reader
from crkafka_core.holder import holder
from crkafka_core.lake import files, formats, standing, writing
from crkafka_core.lake.columns import conformed, keys_of
from crkafka_core.lake.formats import Logs
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.hold import Hold, keeping
from crkafka_core.lake.port import Change, DataFile, Stamp, TableLog, mark_of
from crkafka_core.lake.write import look_until_done
from crkafka_core.model.errors import LeaseHeld, Refused
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import CheckpointStatus, Region, Table
from crkafka_core.plane import checkpoints, permits, tables

_log = logging.getLogger(__name__)
TARGET = 128 * 2**20
"""Bytes of a file that is worth opening; what has three quarters of it is left as it is."""
_GROUP_ROWS, _GROUP_BYTES = 100_000, 32 * 2**20
"""Of one row group of a new file, at most about so much."""
_LOOKS = 100
"""Times that others may commit between our look and our commit, one after the other."""
PATIENCE = 120.0
"""Seconds to wait for a writer before old files are deleted."""
CROWD = 100
"""Files of about one size that the keeper of a table joins, beside its commits."""
_SIZES = (2**18, 2**22)
"""Bytes at which the next size begins. So a row is written again once for each size, and not each time that files are joined."""
_ORDER = [prefix + name for prefix in ("", PREFIX) for name in ("topic", "partition", "offset")]


@dataclass(frozen=True)
class Maintained:
    table: str
    merged: int = 0
    """Small files that are gone from it."""
    into: int = 0
    """Files that have their rows."""
    deleted: int = 0
    """Files that no version within the table's retention needs."""


def in_words(done: Maintained) -> str:
    merged = (
        f"{done.into} made of {plural(done.merged, 'file')}" if done.merged else "no small files to make larger ones of"
    )
    return merged + (f"; {plural(done.deleted, 'old one')} deleted" if done.deleted else "")


def maintain(region: Handle, name: str, *, target: int = TARGET, logs: Logs = formats.open_log) -> Maintained:
    """Compact what is settled, then delete what no version within the table's own retention needs. May be repeated, and may die."""
    writing.refuse_copy(region, deletes=True)
    done = join_crowds(region, name, set(), logs=logs, target=target, least=1)
    with as_writer(region, name):  # so that nothing is deleted that a write under way has made
        table = region.plane.read(lambda reader, _: tables.of(reader, name))
        return replace(done, deleted=logs(region, table).expire(standing.in_reach(region, table)))


def join_crowds(
    region: Handle,
    name: str,
    left: set[str],
    *,
    go_on: Callable[[], bool] = lambda: True,
    logs: Logs = formats.open_log,
    target: int = TARGET,
    least: int = 0,
) -> Maintained:
    """Join small files of about one size where there are `CROWD`, or `least`: so a table has few of them, however long it is written.

    `left`: paths of files that cannot be joined, which are not read again; new ones are added. `go_on`: asked before each new file.
    """
    log = logs(region, region.plane.read(lambda reader, _: tables.of(reader, name)))
    snapshot = log.look()
    table, uid, settled = region.plane.read(partial(_settled, name))
    standing.check_place(table, snapshot)
    by_key = bool(keys_of(region.config, table))
    if snapshot is None or table.owes_fence or not (settled or by_key):
        return Maintained(name)
    if by_key:  # a rewind goes back to the files of a version, and takes no rows out of those that the table has
        chosen = [f for f in snapshot.files() if f.live > 0 and (_half_marked(f) or f.bytes < target * 3 // 4)]
    else:
        staying = standing.staying_at(region, settled, unnumbered=False)
        whole = (f for f in snapshot.files() if f.marks is None and f.bytes < target * 3 // 4)
        chosen = [f for f in whole if f.may_have(1, settled) and staying.of_file(f)]
    chosen = [file for file in chosen if file.path not in left]
    sizes = Counter(map(_size, chosen))
    merged = into = 0
    in_reach = partial(standing.in_reach, region, table)
    for group in groups(
        (file for file in chosen if sizes[_size(file)] >= (least or CROWD) or _half_marked(file)), target
    ):
        if not go_on():
            break
        stamp = Stamp(uid, name, 0, mark_of(region.runtime.unique()), 0)
        if gone := _replaced(log, snapshot.schema, stamp, group, in_reach, left):
            merged, into = merged + gone, into + 1
    return Maintained(name, merged, into)


def _settled(name: str, reader: Reader, row: Region) -> tuple[Table, str, int]:
    """The table, the region's uid, and up to which checkpoint no reset takes rows out of the table any more."""
    live, table = checkpoints.ids_with(reader, CheckpointStatus.MERGED), tables.of(reader, name)
    return table, row.uid, min(live[0] - 1, table.acknowledged) if live else 0


def _half_marked(file: DataFile) -> bool:
    """Whether a reader goes through as many rows that do not count as through others."""
    return 2 * file.live <= file.rows


def _worth_it(group: Sequence[DataFile]) -> bool:
    return len(group) > 1 or any(map(_half_marked, group))


def _size(file: DataFile) -> int:
    return bisect(_SIZES, file.bytes)


def groups(small: Iterable[DataFile], target: int) -> list[list[DataFile]]:
    """In the order of their checkpoints, as many together as make one of about the target's size; each of one partition."""
    made: list[list[DataFile]] = []
    filled = target
    for file in sorted(small, key=lambda file: (str(file.values), file.numbers or (0, 0), file.path)):
        if filled + file.bytes > target or file.values != made[-1][-1].values:
            made.append([])
            filled = 0
        made[-1].append(file)
        filled += file.bytes
    return [group for group in made if _worth_it(group)]


def _replaced(
    log: TableLog,
    schema: pa.Schema,
    stamp: Stamp,
    group: Sequence[DataFile],
    keep: Callable[[], Collection[int]],
    left: set[str],
) -> int:
    """Of how many of these one file has taken the place; 0: one of them is not in the table any more as it was."""
    numbers = [number for file in group for number in file.numbers or ()]
    lowest, highest = min(numbers, default=0), max(numbers, default=0)
    path = f"{stamp.uid}/packed/{lowest:012d}-{highest:012d}-{stamp.token:016x}.parquet"
    made = files.written(log.storage, path, _rows(log, schema, group, left))
    group = [file for file in group if file.path not in left]
    if not _worth_it(group):
        log.storage.delete(path)
        return 0
    new = replace(made[0], values=group[0].values)
    if all(file.rows >= 0 for file in group) and new.rows != sum(file.live for file in group):
        log.storage.delete(path)
        raise Refused(
            f"Files of table {stamp.table} have {plural(new.rows, 'row')} where its log has another number of them.",
            hint=f"Nothing was changed. `crkafka tables mend --look {stamp.table}` names what is wrong.",
        )
    about = {"kind": "maintain", "files": len(group), "rows": new.rows}
    change = Change([new], group, changes_rows=False, info=about, keep=keep)

    def once() -> int:
        """The new file is deleted only where no commit of it is under way: one without an answer may still count."""
        snapshot = log.look()
        present = {} if snapshot is None else {file.path: file for file in snapshot.files()}
        if new.path in present:
            return len(group)
        if snapshot is None or any(present.get(file.path) != file for file in group):
            log.storage.delete(new.path)
            return 0
        snapshot.commit(stamp, change)
        return len(group)

    return look_until_done(stamp.table, once, _LOOKS)


def _names(kind: pa.DataType, path: str = "") -> Iterator[str]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield f"{path}{field.name}"
            yield from _names(field.type, f"{path}{field.name}.")
    elif pa.types.is_map(kind):
        yield from _names(kind.key_type, f"{path}key.")
        yield from _names(kind.item_type, f"{path}value.")
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _names(kind.value_type, f"{path}element.")


def _rows(log: TableLog, schema: pa.Schema, group: Sequence[DataFile], left: set[str]) -> Iterator[pa.RecordBatch]:
    """Rows with the table's columns, as batches of a row group's size, each in the order of topic, partition and offset.

    Without those of files with columns that were renamed or dropped since, which a new file would not have: their paths go to `left`.
    """
    known = set(_names(pa.struct(list(schema))))
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for file in group:
        for batch in files.rows_of(log.storage, file):
            if others := set(_names(pa.struct(list(batch.schema)))) - known:
                _log.info("%s is left as it is: columns %s have other names now", file.path, ", ".join(sorted(others)))
                left.add(file.path)
                break
            held.append(conformed(batch, schema))
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
                yield _ordered(held)
                held, rows, size = [], 0, 0
    if held:
        yield _ordered(held)


def _ordered(held: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    together = pa.Table.from_batches(held)
    plain = {field.name for field in together.schema if not pa.types.is_nested(field.type)}
    if order := [(name, "ascending") for name in _ORDER if name in plain]:
        together = together.sort_by(order)
    return together.combine_chunks().to_batches()[0]


def as_writer(region: Handle, name: str) -> Hold:
    """The lease of the table's writer, once it is free."""
    token, deadline = f"maintain-{uuid.uuid4().hex}", time.monotonic() + PATIENCE
    while True:
        try:
            lease = region.plane.do(lambda tx: permits.take(tx, name, holder=holder(), token=token))
            return keeping(region, lease, lease.kind)
        except LeaseHeld:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
