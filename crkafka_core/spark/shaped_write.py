"""Writes all tables of one declared shape together, in one pass over the rows: each row is in exactly one of them (SPEC K6).

A pass: permits for all the tables → the shape's outputs, counted against what was merged → one commit for each table, the last in
order first, under one token. If the process dies on the way, a commit is unfinished, or the latest ones carry different tokens;
whoever comes next does that pass again, for the same checkpoints and all the tables, before anything new. So no row stays in two
tables, or in none, even if the shape's code has changed in between.
"""

from __future__ import annotations

import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from crkafka_core.config.sections import GOOD
from crkafka_core.config.typed import DEAD
from crkafka_core.control import Reader, Tx
from crkafka_core.decode.batch import BadRecord
from crkafka_core.decode.registry import RegistryAway
from crkafka_core.holder import holder
from crkafka_core.lake import writing
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.hold import Hold
from crkafka_core.lake.writing import Committed, Written
from crkafka_core.model.errors import ConfigError, DataLoss, Refused, Stale
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Region, Table
from crkafka_core.model.selection import Selection
from crkafka_core.plane import contents, passes, permits
from crkafka_core.plane import tables as plane
from crkafka_core.plane.passes import Step
from crkafka_core.plane.permits import Permit
from crkafka_core.plane.reading import ReadPlan
from crkafka_core.spark import commit, frames, keys, shapes, typed
from crkafka_core.spark.decode import Decoded
from crkafka_core.spark.frame_shape import Shape
from crkafka_core.spark.one_pass import one_pass
from crkafka_core.spark.schema import CHECKPOINT
from crkafka_core.spark.typed import TypedShape

PATIENCE = 120.0
"""Seconds for which another writer of these tables is waited for."""
_pause = time.sleep


def advance(
    spark: SparkSession, region: Handle, name: str, *, limit: int | None = None, upto: int | None = None
) -> Committed | None:
    """Write what follows in all tables of this one's shape; first what was left undone between them. None: nothing new."""
    done: Committed | None = None
    kept = _kept_by_keys(region, name)
    while True:
        step = _in_turn(region, name, lambda reader, row: passes.following(reader, row, name, limit, upto, kept=kept))
        if step is None:
            return done
        done = _pass(spark, region, name, step)
        if step.onward:
            return done


def rewrite(spark: SparkSession, region: Handle, name: str, ids: Collection[int]) -> Committed | None:
    """Replace the rows of these live checkpoints in all tables of this one's shape."""
    for table in region.plane.read(lambda reader, row: plane.siblings(reader, plane.of(reader, name))):
        keys.refuse_rewrite(region, table.name)
    while True:
        step = _in_turn(region, name, lambda reader, row: passes.left_undone(reader, row, name))
        if step is None:
            break
        _pass(spark, region, name, step)
    return _pass(spark, region, name, Step(tuple(sorted(ids)))) if ids else None


def _kept_by_keys(region: Handle, name: str) -> bool:
    """Whether a table of this one's shape has one row for each key."""
    family = region.plane.read(lambda reader, row: plane.siblings(reader, plane.of(reader, name)))
    return any(keys.keys_of(region, table.name) for table in family)


def _in_turn(region: Handle, name: str, ask: Callable[[Reader, Region], Step | None]) -> Step | None:
    """What there is to do once nobody writes any of the tables: who asks for one of them is not refused for another's sake.

    Whoever writes them at this moment may do what was asked for; if it takes too long, the permit names the holder.
    """
    end = time.monotonic() + PATIENCE

    def state(reader: Reader, row: Region) -> tuple[bool, Step | None]:
        family = plane.siblings(reader, plane.of(reader, name))
        busy = len(family) > 1 and any(plane.writer(reader, t.name) for t in family)
        return busy, None if busy else ask(reader, row)

    while True:
        busy, step = region.plane.read(state)
        if not busy:
            return step
        if time.monotonic() > end:
            return region.plane.read(ask)
        _pause(0.5)


def _pass(spark: SparkSession, region: Handle, name: str, step: Step) -> Committed | None:
    family = region.plane.read(lambda reader, row: plane.siblings(reader, plane.of(reader, name)))
    shape = shapes.load(family[0], region.config)
    reading, hold = frames.take(region, ids=step.ids)
    with hold, one_pass(), _in_its_own_words(name):
        outputs = _outputs(spark, shape, family, region, reading.plan)
        hold.check()
        done: dict[str, Committed | None] = {}
        _commits(spark, region, family, step, reading.plan, outputs, f"shape-{uuid.uuid4().hex}", done)
    return done[name]


@dataclass(frozen=True)
class Outputs:
    """What a shape has made of the rows of a pass, by table."""

    rows: Mapping[str, DataFrame]
    counts: Mapping[str, Mapping[int, int]]
    """Checkpoint → rows, where that is known."""
    bad: Mapping[str, Mapping[int, int]]
    """Checkpoint → records that could not be decoded."""


def _outputs(
    spark: SparkSession,
    shape: Shape | TypedShape,
    family: Sequence[Table],
    region: Handle,
    plan: ReadPlan,
) -> Outputs:
    if not plan.rows:
        rows = frames.counted(spark, region.config, plan)
        return Outputs({t.name: rows for t in family}, {}, {})
    topics = _topics(region, family)
    merged = _merged_rows(region, plan, topics)
    read = partial(frames.counted, spark, region.config, plan.selecting(Selection.of(topics=topics)))
    if isinstance(shape, TypedShape):
        parted = typed.frames(shape.now(), read)
        counts = _checked(_parted(parted, family), merged)
        return Outputs(shapes.outputs(parted, family), counts, _undecoded(family, counts))
    given = shape(read())
    made = shapes.outputs(given, family)
    decoded = isinstance(given, Decoded)
    skipped = given.skipped if isinstance(given, Decoded) else None
    counts = _checked(_count(made, skipped), merged) if decoded or len(made) > 1 else {}
    return Outputs(made, counts, _undecoded(family, counts) if decoded else {})


def _parted(made: Decoded, family: Sequence[Table]) -> dict[str, dict[int, int]]:
    """Rows of each table by checkpoint, where nobody but us has parted them: counted before, in half the time."""
    fine, wrong = made.by_checkpoint()
    dead = wrong if made.on_bad_record == "dead_letter" else {}
    found = {t.name: dead if t.output == DEAD else fine for t in family}
    return found if made.skipped is None else {**found, SKIPPED: wrong}


@contextmanager
def _in_its_own_words(name: str) -> Iterator[None]:
    """Raises what a task of ours has raised: Spark puts two stack traces around it."""
    try:
        yield
    except PySparkException as error:
        said = _SAID.search(str(error))
        if said is None:
            raise
        kind = {each.__name__: each for each in (BadRecord, RegistryAway, ConfigError)}[said[1]]
        raise kind(f"Table {name}: {said[2].strip()}") from error


_SAID = re.compile(r"crkafka_core\.\w+\.\w+\.(BadRecord|RegistryAway|ConfigError): (.*)")


def _commits(
    spark: SparkSession,
    region: Handle,
    family: Sequence[Table],
    step: Step,
    plan: ReadPlan,
    outputs: Outputs,
    token: str,
    done: dict[str, Committed | None],
) -> None:
    """Permits from the first table to the last, then commits from the last to the first: nothing is written before all are permitted."""
    table = family[0]

    def write(permit: Permit, hold: Hold) -> Written:
        if family[1:]:
            _commits(spark, region, family[1:], step, plan, outputs, token, done)
        hold.check()
        rows, expected = outputs.rows[table.name], outputs.counts.get(table.name)
        written = commit.write(spark, region, permit, hold, rows, expected)
        return replace(written, bad=outputs.bad.get(table.name, {}), counts=expected)

    ask = partial(_permit, region, table, step, plan)
    done[table.name] = writing.commit(region, table.name, ask, write, token=token)


def _permit(region: Handle, table: Table, step: Step, plan: ReadPlan, tx: Tx, token: str) -> Permit:
    """For the very checkpoints and records that were read; refused if they are not what the table has to get any more."""
    advancing = table.name in step.advancing
    if not advancing:
        keys.refuse_rewrite(region, table.name, joined=min(step.advancing, default=""))
    ids, upto = (None, step.ids[-1]) if advancing else (step.ids, None)
    permit = permits.permit_commit(tx, table.name, holder=holder(), token=token, ids=ids, upto=upto)
    if permit is None or permit.plan.checkpoints != step.ids:
        raise Stale(
            f"Table {table.name} of region {table.region} was written by somebody else meanwhile.", hint="Write again."
        )
    if permit.plan.selection != plan.selection:
        raise Stale(
            f"Records were erased while the rows of table {table.name} of region {table.region} were read.",
            hint="Write again.",
        )
    return permit


def _undecoded(family: Sequence[Table], counts: Mapping[str, Mapping[int, int]]) -> dict[str, Counter[int]]:
    """Table of decoded rows → records that could not be decoded, by checkpoint."""
    dead = [SKIPPED, *(t.name for t in family if t.output == DEAD)]
    found: Counter[int] = Counter()
    for name in dead:
        found.update(counts.get(name, {}))
    return {t.name: found for t in family if t.output in ("", GOOD)}


def _topics(region: Handle, family: Sequence[Table]) -> tuple[str, ...] | None:
    """Those of which the tables take records; None: of all."""
    declared = [found for table in family if (found := region.config.table(table.name)) is not None]
    if not declared and family[0].shape:
        name = family[0].name
        raise Refused(
            f"Table {name} is not in the configuration here, which says of which topics it has records.",
            hint=f"Write it there again, or start anew what began before it was there, or `crkafka tables undeclare {name}`.",
        )
    return declared[0].topics if declared else None


def _merged_rows(region: Handle, plan: ReadPlan, topics: Collection[str] | None) -> dict[int, int]:
    """Checkpoint → rows that were merged, of these topics."""
    if topics is None:
        return plan.rows_for_tables
    found = region.plane.read(lambda reader, row: contents.of_topics(reader, row, plan.filled, topics))
    return {**dict.fromkeys(plan.checkpoints, 0), **found}


SKIPPED = ""
"""Stands for the table that nobody has declared: rows that are left out on purpose, and counted."""


def _count(made: Mapping[str, DataFrame], skipped: DataFrame | None) -> dict[str, dict[int, int]]:
    """Rows of each output by checkpoint."""
    if skipped is not None:
        made = {**made, SKIPPED: skipped}
    each = [
        frame.groupBy(CHECKPOINT).count().select(F.lit(name).alias("table"), CHECKPOINT, "count")
        for name, frame in made.items()
    ]
    together = each[0]
    for one in each[1:]:
        together = together.unionAll(one)
    counts: dict[str, dict[int, int]] = {name: {} for name in made}
    for row in together.collect():
        counts[row[0]][row[1]] = row[2]
    return counts


def _checked(counts: dict[str, dict[int, int]], merged: Mapping[int, int]) -> dict[str, dict[int, int]]:
    """The same; refused if together they are not the rows that were merged."""
    for checkpoint, rows in merged.items():
        found = {name: of.get(checkpoint, 0) for name, of in counts.items()}
        if sum(found.values()) != rows:
            given = ", ".join(f"{rows} to {name or 'nobody'}" for name, rows in found.items())
            raise DataLoss(
                f"Of {plural(rows, 'row')} of checkpoint {checkpoint} the shape gives {given}.",
                hint="A shape with several outputs has to give each row to exactly one of them. Nothing was written.",
            )
    return counts
