"""Declared tables: what is declared of each, and which commits to it were permitted (SPEC K6)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import replace

from crkafka_core.config.location import has_log
from crkafka_core.config.shapes import GOOD, by_value, on_frames, topic_of
from crkafka_core.control import Cond, Reader, Tx
from crkafka_core.model.errors import Refused
from crkafka_core.model.rows import Lease, Region, Segment, Table, TableCommit
from crkafka_core.plane import checkpoints, epochs, events, leases

ADVANCE, REWRITE, FENCE = "advance", "rewrite", "fence"
UNDECLARED = "undeclared"
"""Kind of the last row of a topic's table that was undeclared: it permits no commit, and its token is the table's shape."""
FILES = "files"
"""The layout of a table that takes files by one commit of its own log; one without a shape adopts segments."""
FEEDER = "feeder"
"""Kind of the feeder's lease, which brings each checkpoint into such tables as soon as it is merged."""
SPARK_FEEDER = "spark-feeder"
"""The same for tables whose rows Spark makes; its data names those that it leaves to others."""
OPEN, DONE, FAILED = "OPEN", "DONE", "FAILED"


def declare(
    tx: Tx,
    name: str,
    format: str,
    path: str,
    *,
    shape: str = "",
    output: str = "",
    here: bool = False,
    begins: int = 0,
    by: str = "",
) -> Table:
    """Declare a table; it starts at birth, needs no fence, and holds back retirement from now on. `here`: it is written without Spark, also
    one of a shape, or by a name in a catalog. `begins`: a checkpoint up to which there are no rows for it; a rewind before it takes it back
    too."""
    region = tx.region()
    old = tx.get(Table, name)
    refuse_taken(tx.select(Table, ("shape", "=", shape)) if shape else (), name, shape, output)
    layout = FILES if here or (not shape and has_log(path)) else ""
    if old is not None:
        return _declared_again(tx, old, format, path, shape, output, layout, by=by)
    if same := tx.select(Table, ("path", "=", path)):
        other = same[0].name
        raise Refused(
            f"Tables {other} and {name} of region {region.name} are declared at one path: {path}.",
            hint="Each would take all rows of the region, and take them from the other: give one another path. A table takes no other name "
            f"where it lies: keep {other}, or `crkafka tables undeclare {other}`, and {name} is filled at a path of its own.",
        )
    acknowledged = begins if begins in tx.line(region.head, after=begins - 1) else 0
    table = Table(region.name, name, format, path, acknowledged, layout=layout, shape=shape, output=output)
    if before := commits(tx, table):  # it was declared before: its commits go on from that number
        table = replace(table, commits=before[-1].number)
        if layout == FILES:  # it may hold what was superseded meanwhile
            table = replace(table, rewind_epoch=region.epoch, fenced_epoch=region.epoch - 1)
    tx.add(table)
    events.log(tx, "table declared", f"{name}: {format} at {path}{_shape_in_words(table)}", by=by)
    return table


def _declared_again(
    tx: Tx, old: Table, format: str, path: str, shape: str, output: str, layout: str, *, by: str
) -> Table:
    """Another shape is another table's rows: only one that has none yet may get one."""
    if (old.format, old.path) != (format, path):
        raise Refused(
            f"Table {old.name} of region {old.region} is declared as {old.format} at {old.path}.",
            hint=f"{format} at {path} would be another table, filled from birth: give it a name of its own, "
            f"or `crkafka tables undeclare {old.name}` first; what the old one holds is not deleted.",
        )
    if (old.shape, old.output) == (shape, output):
        if shape and not old.version and layout != old.layout:  # as `mode` was changed
            tx.put(old := replace(old, layout=layout))
        return old
    new = replace(old, shape=shape, output=output, layout=layout)
    if old.shape or old.acknowledged:
        is_, would = (_shape_in_words(old) or " without a shape", _shape_in_words(new) or " without one")
        raise Refused(
            f"Table {old.name} of region {old.region} is declared{is_} and holds such rows;{would} its rows would be others.",
            hint=f"Declare them as a table of another name, or `crkafka tables undeclare {old.name}` first; a shape's own code may change, "
            "and `crkafka tables replay` writes again what is there.",
        )
    tx.put(new)
    events.log(tx, "table declared", f"{old.name}: {old.format} at {old.path}{_shape_in_words(new)}", by=by)
    return new


def refuse_taken(others: Iterable[Table], name: str, shape: str, output: str) -> None:
    """Each row of a shape is in one table: beside a second one for it neither could be written."""
    for other in others:
        if other.name != name and (other.shape, other.output or GOOD) == (shape, output or GOOD):
            raise Refused(
                f"Table {other.name} of region {other.region} takes the output {output or GOOD} of the shape {shape}, and {name} would "
                "take it too: each row of a shape is in one table.",
                hint=f"If {name} is to take its place: `crkafka tables undeclare {other.name}` first; its rows stay where they are.",
            )


def _shape_in_words(table: Table) -> str:
    return f" with shape {table.shape}{f', output {table.output}' if table.output else ''}" if table.shape else ""


def siblings(reader: Reader, table: Table) -> list[Table]:
    """All tables of its shape, which are written together, in the order in which they are written."""
    family = reader.select(Table, ("shape", "=", table.shape)) if table.shape else [table]
    return next(iter(families(family)), [])


def last_done(reader: Reader, table: Table, *where: Cond) -> TableCommit | None:
    """The latest acknowledged commit of a table, of those that fit."""
    fits: list[Cond] = [("table", "=", table.name), ("status", "=", DONE), *where]
    return next(iter(reader.select(TableCommit, *fits, order=("number",), desc=True, limit=1)), None)


def last_write(reader: Reader, table: Table, *where: Cond) -> TableCommit | None:
    """The latest acknowledged commit that gave the table rows, of those that fit."""
    return last_done(reader, table, ("kind", "in", [ADVANCE, REWRITE]), *where)


def unfinished_rewrites(reader: Reader, table: Table) -> list[TableCommit]:
    """Unfinished rewrites since the last acknowledged commit: the table may hold what they wrote."""
    last = last_write(reader, table)
    since: list[Cond] = [("table", "=", table.name), ("number", ">", last.number if last is not None else 0)]
    return reader.select(TableCommit, *since, ("kind", "=", REWRITE), ("status", "!=", DONE))


def unsure(reader: Reader, declared: Collection[Table]) -> set[str]:
    """Names of tables that may show a commit which SQL has not acknowledged: the last one permitted was not finished."""
    last = {table.name: table.commits for table in declared}
    if not last:
        return set()
    near: list[Cond] = [("table", "in", list(last)), ("number", ">=", min(last.values())), ("status", "!=", DONE)]
    return {c.table for c in reader.select(TableCommit, *near) if c.number == last[c.table]}


def needs_spark(table: Table) -> bool:
    """Whether Spark makes the rows of the table, or writes it."""
    return table.layout != FILES or on_frames(table.shape)


def adopts(table: Table) -> bool:
    """Whether segments become its data files as they are."""
    return table.layout == FILES and not table.shape


def feeder_of(reader: Reader, table: Table) -> str:
    """The feeder, which brings each checkpoint into the table as soon as it is merged; empty without one."""
    held = leases.held(reader, SPARK_FEEDER if needs_spark(table) else FEEDER)
    return next((lease.holder for lease in held if table.name not in json.loads(lease.data_json).get("left", ())), "")


def left_out(names: Collection[str]) -> str:
    """For a feeder's lease: the tables that it leaves to others."""
    return json.dumps({"left": sorted(names)})


def fed_by_spark(reader: Reader, region: Region, left: Collection[str]) -> list[list[Table]]:
    """Tables that need Spark, those of one shape together; without those that are left to others."""
    needing = filter(needs_spark, reader.select(Table, order=("name",)))
    return families(table for table in needing if table.name not in left)


def families(declared: Iterable[Table]) -> list[list[Table]]:
    """Those of one shape together, as they are written, in that order."""
    by_shape: dict[str, list[Table]] = {}
    for table in declared:
        by_shape.setdefault(table.shape or f":{table.name}", []).append(table)
    return [sorted(family, key=lambda table: (table.output, table.name)) for family in by_shape.values()]


def undeclare(tx: Tx, name: str, *, by: str = "") -> None:
    """Forget a table that is gone: it holds nothing back any more, and needs no fence (SPEC X4)."""
    table = of(tx, name)
    tx.delete(Table, ("name", "=", name))
    held = tx.get(Lease, kind_of_lease(name), "")
    if held is not None:
        tx.put(replace(held, until=0.0, token=""))
    # Kept: declared again, its commits go on from these numbers, or the format would drop them.
    tx.put(*(replace(c, status=FAILED, at=0.0) for c in commits(tx, table)))
    if topic_of(table.shape) or by_value(table.shape):
        number, mark = table.commits + 1, f"{table.shape}@{table.output}" if by_value(table.shape) else table.shape
        tx.add(TableCommit(table.region, name, number, UNDECLARED, 0, 0, "[]", token=mark, status=FAILED))
    events.log(tx, events.UNDECLARED, name, by=by)
    epochs.after_fence(tx)


def of(reader: Reader, name: str) -> Table:
    table = reader.get(Table, name)
    if table is None:
        known = ", ".join(t.name for t in reader.select(Table)) or "none"
        raise Refused(f"Region {reader.region().name} declares no table {name!r}.", hint=f"Declared: {known}.")
    return table


def written_here(reader: Reader) -> list[Table]:
    return [table for table in reader.select(Table, ("layout", "=", FILES)) if not needs_spark(table)]


def advances(reader: Reader, *where: Cond) -> list[TableCommit]:
    """Acknowledged commits that brought tables forward, in the order of their numbers, of those that fit."""
    return reader.select(TableCommit, ("status", "=", DONE), ("kind", "=", ADVANCE), *where, order=("number",))


def advanced(reader: Reader, table: Table, *, by: float) -> int:
    """Up to which checkpoint commits had brought the table by this time; 0 where no commit shows it."""
    last = last_done(reader, table, ("kind", "=", ADVANCE), ("at", "<=", by))
    return min(last.upto, table.acknowledged) if last else 0


def behind(reader: Reader, region: Region, table: Table) -> list[int]:
    """Checkpoints on the line that the table has not acknowledged, oldest first."""
    return reader.line(region.head, after=table.acknowledged)


def first_that_waits(reader: Reader, region: Region, *, known: Collection[str] = ()) -> tuple[Table, Segment] | None:
    """A table that has not got all, and the first segment that it waits for, other than those that are `known`; None if there is none."""
    for table in reader.select(Table, order=("name",)):
        ids = set(behind(reader, region, table))
        kept = reader.select(Segment, ("checkpoint", ">=", min(ids)), order=("checkpoint",)) if ids else []
        for segment in kept:
            if segment.checkpoint in ids and segment.path not in known:
                return table, segment
    return None


def rows_in(reader: Reader, table: Table, ids: Collection[int]) -> dict[int, int]:
    """Checkpoint → its rows in the table, of those that it has; for a table of a shape, where a commit has counted them."""
    if not table.shape or not ids:
        return checkpoints.rows_of(reader, ids)
    own: Cond = ("table", "=", table.name)
    rewrites = reader.select(TableCommit, own, ("status", "=", DONE), ("kind", "=", REWRITE))
    commits = [*advances(reader, own, ("upto", ">=", min(ids))), *rewrites]
    counted: dict[int, int] = {}
    for commit in sorted(commits, key=lambda each: each.number):
        written, counts = commit.checkpoints, commit.counts
        if not counts and len(written) == 1:
            counts = {written[0]: commit.rows}
        for checkpoint in written:
            counted.pop(checkpoint, None)
        counted |= counts
    return {checkpoint: counted[checkpoint] for checkpoint in ids if checkpoint in counted}


def late(reader: Reader, region: Region, left: Collection[str]) -> dict[str, int]:
    """Tables that have not got all that is merged, with what they have acknowledged; without those that are left to others."""
    declared = reader.select(Table, order=("name",))
    return {t.name: t.acknowledged for t in declared if t.acknowledged < region.head and t.name not in left}


def commits(reader: Reader, table: Table) -> list[TableCommit]:
    return reader.select(TableCommit, ("table", "=", table.name), order=("number",))


def writer(reader: Reader, name: str) -> str:
    return next((lease.holder for lease in leases.held(reader, kind_of_lease(name))), "")


def fencer(reader: Reader, table: Table) -> str:
    """The process that makes the fence which the table lacks; empty without one."""
    held = leases.held(reader, kind_of_lease(table.name))
    return next((lease.holder for lease in held if lease.data_json == fence_data(table)), "")


def kind_of_lease(name: str) -> str:
    return f"writer:{name}"


def fence_data(table: Table) -> str:
    return json.dumps({"fence": table.rewind_epoch})
