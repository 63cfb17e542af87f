"""Tables of many topics by one pass: they share permits, the reading and the finish, and each has a commit of its own (SPEC K6).

A table that fails, or whose storage hangs, leaves the pass, and is written by itself; what the others got is acknowledged.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.config.typed import topic_of
from crkafka_core.control import Tx
from crkafka_core.decode.batch import refuse_record
from crkafka_core.holder import holder
from crkafka_core.lake import again, erase, lineage, writing
from crkafka_core.lake.columns import parts_of
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.hold import Hold, keeping
from crkafka_core.lake.made import Files, folder_of_commit
from crkafka_core.lake.new_files import Output
from crkafka_core.lake.port import TableLog, TableUnavailable
from crkafka_core.lake.road import Means, pool_of
from crkafka_core.lake.transform import NULLABLE, Rows, Run, numbered
from crkafka_core.lake.worker import Made
from crkafka_core.lake.write import Write
from crkafka_core.lake.writing import Committed
from crkafka_core.model.errors import DataLoss, LeaseLost, Refused
from crkafka_core.model.plural import plural
from crkafka_core.model.selection import Selection
from crkafka_core.plane import contents, limits, passes, permits, reading
from crkafka_core.plane.permits import Permit

_log = logging.getLogger(__name__)
AT_ONCE = 64
"""Tables of one pass at most: its transactions hold the region's row for a moment."""
COMMITS = 2
"""Commits that a pass makes at once; each asks SQL, which has few connections."""
PATIENCE = 20.0
"""Seconds without the end of any commit, after which a pass leaves those that are under way, or wait, to be written by themselves."""
MOST_BYTES = 64 << 20
"""Of segments; a backlog is brought in table by table."""


@dataclass(frozen=True)
class Together:
    """What came of a pass."""

    done: dict[str, Committed] = field(default_factory=dict)
    left: dict[str, BaseException] = field(default_factory=dict)
    """Tables that are to be written by themselves, and why."""


@dataclass(frozen=True)
class ByTopic:
    """Records as they are, to an output for each topic."""

    tables: Mapping[str, str]
    """Topic → output."""

    def schemas(self) -> Mapping[str, pa.Schema]:
        return dict.fromkeys(self.tables.values(), NULLABLE)

    def open(self) -> Run:
        return self._parted

    def set_aside(self, records: pa.RecordBatch, reason: str) -> Rows:
        raise refuse_record(records, reason)

    def _parted(self, records: pa.RecordBatch) -> Rows:
        records = records.cast(NULLABLE)
        topics = pc.unique(records.column("topic")).to_pylist()
        if len(topics) == 1:
            return {self.tables[topics[0]]: records}
        order = pc.sort_indices(records.column("topic"))
        ordered, at, parted = records.take(order), 0, dict[str, pa.RecordBatch]()
        counts = {each["values"]: each["counts"] for each in pc.value_counts(records.column("topic")).to_pylist()}
        for topic in sorted(topics, key=str.encode):
            parted[self.tables[topic]] = ordered.slice(at, counts[topic])
            at += counts[topic]
        return parted


def advance(region: Handle, names: Sequence[str], *, means: Means) -> Together:
    """Bring what follows into those of the tables that are where the first one is, at most `passes.AT_ONCE` checkpoints."""
    writing.refuse_copy(region)
    token = f"pass-{region.runtime.unique()}"
    given, held = region.plane.do(lambda tx: _permits(tx, names, token))
    if not given or held is None:
        return Together(
            left={name: Refused(f"Table {name} waits for what was too much for one pass.") for name in names}
        )
    together, by_name = Together(), {permit.table.name: permit for permit in given}
    hold = Hold(
        lambda: region.plane.do(lambda tx: [permits.renew(tx, permit) for permit in given]),
        None,
        given[0].lease.length / 3,
        f"writer of {plural(len(given), 'table')}",
        region.runtime,
    )
    with keeping(region, held.lease, f"reader for {plural(len(given), 'table')}"), hold:
        try:
            if erase.note_again(region):
                raise Refused("Records that were erased have come again with a rewind, and are noted now.")
            _write(region, given, means, hold, together)
        except BaseException as error:
            together.done.clear()
            together.left.update(dict.fromkeys(by_name.keys() - together.left.keys(), error))
            if not isinstance(error, Exception):
                raise
        finally:
            for name, why in together.left.items():
                writing.give_up(region, by_name[name], why)
    for name, committed in together.done.items():
        if committed.version:
            lineage.tell(region, by_name[name], by_name[name].table, committed.rows)
    return together


def _permits(tx: Tx, names: Sequence[str], token: str) -> tuple[list[Permit], reading.Reading | None]:
    given = permits.permit_together(tx, names, holder=holder(), token=token, limit=passes.AT_ONCE, most=MOST_BYTES)
    if not given:
        return [], None
    length, ids = limits.of(tx.region()).driver_lease, given[0].plan.checkpoints
    return given, reading.take(tx, holder=holder(), token=f"{token}-reads", length=length, ids=ids)


def _write(region: Handle, given: Sequence[Permit], means: Means, hold: Hold, together: Together) -> None:
    plan = given[0].plan
    merged = region.plane.read(lambda reader, row: contents.rows_by_topic(reader, row, plan.filled))
    due = {p.table.name: {i: merged[i][topic_of(p.table.shape)] for i in plan.filled} for p in given}
    filled = [permit for permit in given if any(due[permit.table.name].values())]
    logs = {permit.table.name: means.logs(region, permit.table) for permit in filled}
    new = _files(region, filled, means, logs, hold, due) if filled else Made()
    region.plane.do(lambda tx: permits.note_counts(tx, [(p, due[p.table.name]) for p in given]))
    versions = {permit.table.name: "" for permit in given if permit.table.name not in logs}

    def commit(permit: Permit) -> str:
        return _commit(region, permit, logs[permit.table.name], hold, new, due[permit.table.name])

    for name, came in _each_ended(filled, commit):
        if isinstance(came, str):
            versions[name] = came
        elif isinstance(came, Exception):
            _log.info("table %s leaves the pass: %s", name, came)
            together.left[name] = came
        else:
            raise came
    hold.check()
    region.plane.do(lambda tx: _finish(tx, given, versions, due, together))


def _each_ended(filled: Sequence[Permit], commit: Callable[[Permit], str]) -> Iterator[tuple[str, str | BaseException]]:
    """The version or the error of each table, as the commits end; an error for those that do not.

    A commit that hangs leaves its thread behind. What it may still do is refused, or acknowledged, as that of a writer that died.
    """
    waiting, ended = SimpleQueue[Permit](), SimpleQueue[tuple[str, str | BaseException]]()

    def run() -> None:
        with suppress(Empty):
            while True:
                permit = waiting.get_nowait()
                try:
                    ended.put((permit.table.name, commit(permit)))
                except BaseException as error:
                    ended.put((permit.table.name, error))

    for permit in filled:
        waiting.put(permit)
    for _ in range(COMMITS):  # they wait for the disk, or the object store
        threading.Thread(target=run, name="commits", daemon=True).start()
    left = {permit.table.name for permit in filled}
    try:
        while left:
            name, came = ended.get(timeout=PATIENCE)
            left.remove(name)
            yield name, came
    except Empty:
        for name in left:
            yield (
                name,
                TableUnavailable(f"Table {name}: no commit ended for {PATIENCE:.0f} s.", hint="It is tried again."),
            )
    finally:
        with suppress(Empty):
            while True:  # nothing more is begun
                waiting.get_nowait()


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
    with pool_of(means) as pool:
        sources = pool.shares(region.storage(), plan.segments, plan.selection) if plan.segments else []
        sources += [again.Again(means.fetch_of(region), plan)] if plan.ranges else []
        new = pool.files(sources, ByTopic(tables), outputs, lambda _: hold.check())
    try:
        _check_whole(due, new)
    except DataLoss:  # each try would leave its files behind
        new.discard(outputs)
        raise
    return new


def _check_whole(due: Mapping[str, Mapping[int, int]], new: Made) -> None:
    """Every record that was merged, and not erased, is in the table of its topic."""
    for name, wanted in due.items():
        for checkpoint, rows in wanted.items():
            came = new.rows[name][checkpoint] if name in new.rows else 0
            if came != rows:
                raise DataLoss(
                    f"Table {name}: {plural(came, 'record')} of checkpoint {checkpoint} came; {rows} were merged, and not erased.",
                    hint="Nothing was committed.",
                )


def _commit(region: Handle, permit: Permit, log: TableLog, hold: Hold, new: Made, due: Mapping[int, int]) -> str:
    files = Files(new.files.get(permit.table.name, ()), numbered(NULLABLE), due)
    return Write(region, log, permit, hold, lambda: files).run(lambda *_: (permit.commit.upto, None))


def _finish(
    tx: Tx,
    given: Sequence[Permit],
    versions: Mapping[str, str],
    due: Mapping[str, Mapping[int, int]],
    together: Together,
) -> None:
    together.done.clear()  # a transaction may be tried again
    for permit in given:
        name, commit = permit.table.name, permit.commit
        if name in versions:
            counts = {i: due[name].get(i, 0) for i in permit.plan.checkpoints}
            rows = sum(counts.values())
            try:
                done = permits.finish_commit(tx, permit, version=versions[name], rows=rows, counts=counts)
            except (Refused, LeaseLost) as error:
                together.left[name] = error
            else:
                ids = permit.plan.checkpoints
                together.done[name] = Committed(name, commit.number, ids, rows, done.acknowledged, versions[name])
