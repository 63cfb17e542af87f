"""Tables of many topics by one pass: they share permits, the reading and the finish, and each has a commit of its own (SPEC K6).

A table that fails, or whose storage hangs, leaves the pass, and is written by itself; what the others got is acknowledged.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

import pyarrow as pa

from crkafka_core.config.shapes import topic_of
from crkafka_core.control import Tx
from crkafka_core.holder import holder
from crkafka_core.lake import writing
from crkafka_core.lake.columns import parts_of
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.hold import Hold
from crkafka_core.lake.made import Files, check_whole, folder_of_commit
from crkafka_core.lake.means import Means
from crkafka_core.lake.new_files import Output
from crkafka_core.lake.partitions import parted
from crkafka_core.lake.port import Part, TableLog, TableUnavailable
from crkafka_core.lake.transform import NULLABLE, Rows, Run, Transform, numbered
from crkafka_core.lake.worker import Made
from crkafka_core.lake.write import Write
from crkafka_core.lake.writing import Pass, PermitOutdated, Written
from crkafka_core.model.errors import DataLoss, Refused
from crkafka_core.model.selection import Selection
from crkafka_core.plane import contents, passes, permits, tables
from crkafka_core.plane.permits import Permit

AT_ONCE = 64
"""Tables of one pass at most: its transactions hold the region's row for a moment."""
COMMITS = 8
"""Commits that a pass makes at once: they wait for the disk, which takes the writes of several in one go."""
PATIENCE = 20.0
"""Seconds without the end of any commit, after which a pass leaves the remaining tables to be written one by one."""
MOST_BYTES = 64 << 20
"""Of segments; a backlog is brought in table by table."""


@dataclass(frozen=True)
class ByTopic(Transform):
    """Records as they are, to an output for each topic."""

    tables: Mapping[str, str]
    """Topic → output."""

    def schemas(self) -> Mapping[str, pa.Schema]:
        return dict.fromkeys(self.tables.values(), NULLABLE)

    def open(self) -> Run:
        def by_topic(records: pa.RecordBatch) -> Rows:
            parts = parted(records.cast(NULLABLE), (Part("topic"),))
            return {self.tables[topic]: part for (topic,), part in parts}

        return by_topic


def advance(region: Handle, names: Sequence[str], *, means: Means) -> Pass:
    """Bring what follows into those of the tables that are where the first one is, at most `passes.AT_ONCE` checkpoints."""

    def ask(tx: Tx, token: str) -> list[Permit]:
        return permits.permit_together(tx, names, holder=holder(), token=token, limit=passes.AT_ONCE, most=MOST_BYTES)

    outcome = writing.commit(region, ask, partial(_write, region, means))
    if not outcome.done and not outcome.left:
        why = "waits for what was too much for one pass."
        outcome.left.update({name: Refused(f"Table {name} {why}") for name in names})
    return outcome


def _write(
    region: Handle, means: Means, given: Sequence[Permit], hold: Hold
) -> Iterator[tuple[str, Written | Exception]]:
    plan = given[0].plan
    merged = region.plane.read(lambda reader, row: contents.rows_by_topic(reader, row, plan.filled))
    due = {p.table.name: {i: merged[i][topic_of(p.table.shape)] for i in plan.filled} for p in given}
    filled = [permit for permit in given if any(due[permit.table.name].values())]
    unsure = region.plane.read(lambda reader, _: tables.unsure(reader, [p.table for p in given if p not in filled]))
    logs = {permit.table.name: means.logs(region, permit.table) for permit in filled}
    new = _files(region, filled, means, logs, hold, due) if filled else Made()
    region.plane.do(lambda tx: permits.note_counts(tx, [(p, due[p.table.name]) for p in given]))

    def commit(permit: Permit) -> Written:
        name, version = permit.table.name, ""
        if name in logs:
            files = Files(new.files.get(name, ()), numbered(NULLABLE), due[name])
            write = Write(region, logs[name], permit, hold, lambda: files)
            version = write.run(lambda *_: (permit.commit.upto, None))
        counts = {i: due[name].get(i, 0) for i in plan.checkpoints}
        return Written(version, sum(counts.values()), counts=counts)

    for permit in (p for p in given if p not in filled):
        name = permit.table.name
        if name in unsure:
            yield name, PermitOutdated(f"Table {name} may have a commit of a writer that died.")
        else:
            yield name, commit(permit)
    yield from _each_ended(filled, commit)


def _each_ended(
    filled: Sequence[Permit], commit: Callable[[Permit], Written]
) -> Iterator[tuple[str, Written | Exception]]:
    """The commit or the error of each table, as the commits end; an error for commits that hang.

    A commit that hangs leaves its thread behind. What it may still do is refused, or acknowledged, as that of a writer that died.
    """
    waiting, ended = deque(filled), SimpleQueue[tuple[str, Written | BaseException]]()

    def run() -> None:
        with suppress(IndexError):
            while permit := waiting.popleft():
                try:
                    ended.put((permit.table.name, commit(permit)))
                except BaseException as error:
                    ended.put((permit.table.name, error))

    for _ in range(min(COMMITS, len(filled))):
        threading.Thread(target=run, name="commits", daemon=True).start()
    left = {permit.table.name for permit in filled}
    try:
        while left:
            name, came = ended.get(timeout=PATIENCE)
            left.remove(name)
            if isinstance(came, BaseException) and not isinstance(came, Exception):
                raise came
            yield name, came
    except Empty:
        for name in left:
            why = f"Table {name}: no commit ended for {PATIENCE:.0f} s."
            yield name, TableUnavailable(why, hint="It is tried again.")
    finally:
        waiting.clear()  # nothing more is begun


def _files(
    region: Handle,
    filled: Sequence[Permit],
    means: Means,
    logs: Mapping[str, TableLog],
    hold: Hold,
    due: Mapping[str, Mapping[int, int]],
) -> Made:
    tables = {topic_of(permit.table.shape): permit.table.name for permit in filled}
    plan = filled[0].plan.selecting(Selection.of(topics=tables))
    outputs = {
        p.table.name: Output(logs[p.table.name].storage, folder_of_commit(p), parts_of(region.config, p.table))
        for p in filled
    }
    new = means.files(region, plan, ByTopic(tables), outputs, hold.check)
    try:
        check_whole(due, new)
    except DataLoss:  # each try would leave its files behind
        new.discard(outputs)
        raise
    return new
