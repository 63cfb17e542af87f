"""What a permitted pass brings into each of its tables: segments as they are, or files of rows that are made of them (SPEC K6).

Rows of typed tables and of Arrow's shapes are made by a pool of processes, those of a shape on DataFrames by tasks of Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from crkafka_core.config.sections import TableConfig
from crkafka_core.config.shapes import DEAD, GOOD, arrow_of, has_records, name_of, on_frames
from crkafka_core.config.template import most_of
from crkafka_core.config.typed import RegistryConfig
from crkafka_core.decode import typed
from crkafka_core.decode.batch import BadRecord
from crkafka_core.decode.decoders import Decoder
from crkafka_core.decode.registry import Registry, RegistryAway
from crkafka_core.decode.typed import Typing
from crkafka_core.lake import files, standing
from crkafka_core.lake.columns import (
    DELETED,
    RAW,
    NoPlace,
    followed,
    keys_of,
    parts_of,
    place_in,
    properties_of,
    stored,
)
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.means import Means, fetched
from crkafka_core.lake.new_files import Output
from crkafka_core.lake.port import CannotCommit, Moved, NewFile, Snapshot, Stamp, TableLog, mark_of
from crkafka_core.lake.transform import Identity, Shape, Transform, numbered
from crkafka_core.lake.values import ByValue
from crkafka_core.lake.worker import Made, Task, make
from crkafka_core.model.errors import ConfigError, DataLoss
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Table
from crkafka_core.model.selection import Selection
from crkafka_core.plane import contents, tables, templates
from crkafka_core.plane.permits import Permit
from crkafka_core.plane.reading import ReadPlan

_BACK = 20
"""Older versions of a schema that are looked at, at most."""
_PATIENCE = 2.0
"""Seconds of retries without an answer of the registry: the keeper tries again later, and other tables wait for this one's process."""


@dataclass(frozen=True)
class Files:
    """What comes into one table."""

    new: Sequence[NewFile] = ()
    columns: pa.Schema | None = None
    """Columns that the table needs for them; None: it has all."""
    counts: Mapping[int, int] | None = None
    """Checkpoint → rows; None: as merged."""
    bad: Mapping[int, int] = field(default_factory=dict)
    """Checkpoint → records that could not be decoded, and are not among them."""
    alarm: str = ""
    """Why its rows are not by the newest version of the schema."""


NOTHING = Files()


def folder_of_commit(permit: Permit) -> str:
    """Of the files that the permit is for, below the table's own folder."""
    return f"{permit.plan.uid}/{permit.commit.number:08d}-{mark_of(permit.commit.token):016x}"


def create(region: Handle, log: TableLog, permit: Permit, columns: pa.Schema) -> None:
    """Make the table without rows."""
    table, stamp = permit.table, Stamp(permit.plan.uid, permit.table.name, 0, mark_of(permit.commit.token), 0)
    log.create(columns, parts_of(region.config, table), stamp, properties_of(region.config, table))


def as_they_are(region: Handle, means: Means, log: TableLog, permit: Permit) -> Files:
    """Segments, by a link or a copy, or in pieces by partition; what is archived is read from Kafka again."""
    plan, storage, folder = permit.plan, log.storage, folder_of_commit(permit)
    if not (parts := parts_of(region.config, permit.table)):
        adopted = files.adopted(region.storage(), plan.segments, plan, storage, folder)
        return Files(adopted + fetched(means.fetch_of(region), plan, storage, folder))
    made, transform, outputs = Made(), Identity(), {GOOD: Output(storage, folder, parts, RAW)}
    try:
        for source in means.sources(region, plan):
            made.add(make(Task(source, transform, outputs), transform.open()))
        check_whole({GOOD: plan.rows_for_tables}, made)
    except BaseException:
        made.discard(outputs)
        raise
    return Files(made.files.get(GOOD, []))


def check_whole(due: Mapping[str, Mapping[int, int]], made: Made) -> None:
    """Refuse files without a record that was merged, and not erased. `due`: output → checkpoint → records."""
    for name, wanted in due.items():
        came = made.rows.get(name, Counter())
        for checkpoint, rows in wanted.items():
            if came[checkpoint] != rows:
                raise DataLoss(
                    f"{plural(came[checkpoint], 'record')} of checkpoint {checkpoint} came for {name}; {rows} were merged, and not erased.",
                    hint="Nothing was committed.",
                )


def by_shape(
    region: Handle, means: Means, permits: Sequence[Permit], logs: Mapping[str, TableLog], check: Callable[[], object]
) -> dict[str, Files]:
    """Table → its files, for the permitted tables of one shape. `check` is called meanwhile, and ends it by an error."""
    plan, first = permits[0].plan, permits[0].table
    declared = configured(region, first)
    records = plan.selecting(Selection.of(topics=declared.topics))
    with _naming(declared.name):
        snapshots = {name: log.look() for name, log in logs.items()}
        for permit in permits:  # before files are made, which each try of a table that is refused would leave behind
            standing.check(region, permit, snapshots[permit.table.name])
        family = {t.output or GOOD: t for t in region.plane.read(lambda reader, _: tables.siblings(reader, first))}

        good = family.get(GOOD)
        shown = good and (snapshots[good.name] if good.name in snapshots else means.logs(region, good).look())
        if on_frames(declared.shape or ""):
            maker = means.frames_of(declared)(region.config, declared, records, family)
            schemas, make_files, alarm = maker.schemas(), maker.make, ""
        else:
            transform, alarm = _transform(region, declared, first.shape, shown and shown.schema)
            schemas, make_files = transform.schemas(), partial(means.files, region, records, transform)
        taken = _taken(declared, family) if declared.typed else _taken_by_shape(schemas, declared.shape, family)
        outputs = _outputs(region, schemas, taken, permits, logs, snapshots)
        try:
            made = make_files(outputs, check) if records.segments or records.ranges else Made()
            _check_outputs(region, plan, declared, made)
        except BaseException:  # also files of tasks of Spark whose answer did not come, as another one failed
            for output in outputs.values():
                with suppress(Exception):
                    for file in output.storage.list(output.folder):
                        output.storage.delete(file.path)
            raise
    return _by_table(permits, outputs, made, alarm)


def _by_table(permits: Sequence[Permit], outputs: Mapping[str, Output], made: Made, alarm: str) -> dict[str, Files]:
    checkpoints = permits[0].plan.checkpoints
    counts = {name: {i: rows[i] for i in checkpoints} for name, rows in made.rows.items()}
    none = dict.fromkeys(checkpoints, 0)
    by_table: dict[str, Files] = {}
    for permit in permits:
        name = permit.table.output or GOOD
        target = outputs.get(name)
        by_table[permit.table.name] = Files(
            made.files.get(name, ()),
            target and target.columns,
            counts.get(name, none) if target else none,
            counts.get(DEAD, {}) if name == GOOD else {},
            alarm if name == GOOD else "",
        )
    return by_table


def _transform(region: Handle, declared: TableConfig, shape: str, present: pa.Schema | None) -> tuple[Transform, str]:
    if (template := region.config.template_of(shape)) is not None:
        values, taken = region.plane.read(
            lambda reader, _: (templates.values_of(reader, shape), templates.taken(reader))
        )
        return ByValue(template, shape, values, taken, max(0, most_of(template) - len(values))), ""
    if has_records(shape):
        return Identity(), ""
    if function := arrow_of(shape):
        return Shape(function), ""
    return choose(declared, region.config.registry, present)


def choose(table: TableConfig, registry: RegistryConfig | None, present: pa.Schema | None) -> tuple[Transform, str]:
    """The transform of a typed table's rows, and an alarm where it is not by the newest version of its schema: why, naming both.

    `present`: the table's columns; None: it has none yet. ConfigError where no version can be followed. Of a registry without a fixed
    version an older one is used where the newest would change a column's kind: what it does not read is a dead letter, and the alarm
    stays until a newer version fits.
    """
    how = table.typed
    assert how is not None

    def fitting(decoder: Decoder, kind: pa.StructType) -> Typing:
        typing = Typing(decoder, kind, table.on_bad_record or "dead_letter", bool(table.keys))
        if present is not None:
            followed(table.name, present, numbered(typing.schemas()[GOOD]))
        return typing

    if not how.registered:
        return fitting(*typed.of_file(how, table.name)), ""
    assert registry is not None and how.subject is not None  # checked where the configuration is read
    asked = Registry(registry.url, registry.user, registry.headers, _PATIENCE)
    newest = asked.of_table(how)
    try:
        return fitting(*typed.of_schema(asked, how, newest)), ""
    except ConfigError as error:
        if how.version is not None or present is None or not newest.version:
            raise
        why = error
    for number in range(newest.version - 1, max(0, newest.version - 1 - _BACK), -1):
        try:
            older = asked.version(how.subject, number, serialized=how.protobuf is not None)
            typing = fitting(*typed.of_schema(asked, how, older))
        except ConfigError:
            continue
        return typing, (
            f"Version {newest.version} of {how.subject} does not fit table {table.name}: {why.message} "
            f"Records are read by version {number}; what it does not read is a dead letter."
        )
    raise why


def _outputs(
    region: Handle,
    schemas: Mapping[str, pa.Schema],
    taken: Collection[str],
    permits: Sequence[Permit],
    logs: Mapping[str, TableLog],
    snapshots: Mapping[str, Snapshot | None],
) -> dict[str, Output]:
    """Where the rows of each permitted table's output go. `taken`: outputs that have a table."""
    outputs: dict[str, Output] = {}
    for permit in permits:
        table, output, snapshot = permit.table, permit.table.output or GOOD, snapshots[permit.table.name]
        if output not in taken:
            continue
        log, keys = logs[table.name], keys_of(region.config, table)
        place = place_in(schemas[output].names, table)
        given, parts = _columns(table, schemas[output], keys, place), parts_of(region.config, table)
        columns = _as_stored(table, log, given)
        if missing := [part.column for part in parts if part.column not in columns.names]:
            has = f"its rows have no such column; they have {', '.join(columns.names)}."
            hint = "Name another column, or give it in the shape."
            raise _misfit(table, f"is declared with partition_by: {missing[0]}, and {has}", hint)
        if snapshot is not None:
            columns = followed(table.name, snapshot.schema, columns, widens=log.widens)
            parts = tuple(snapshot.parts)
        elif log.placed_late:  # only the catalog of a table without rows knows where its files are to be
            standing.check_place(table, None)
            with suppress(Moved):
                create(region, log, permit, columns)
        outputs[output] = Output(log.storage, folder_of_commit(permit), parts, columns, keys, place)
    return outputs


def _as_stored(table: Table, log: TableLog, given: pa.Schema) -> pa.Schema:
    """Columns with the types that the table's format has for their values. Refused before the table is made where there is none."""
    columns = list[pa.Field]()
    for column in given:
        try:
            columns += log.stored(pa.schema([column.with_type(stored(column.type))]))
        except (NoPlace, CannotCommit) as error:
            why = error.message.rstrip(".") if isinstance(error, CannotCommit) else error
            raise ConfigError(
                f"Column {column.name} of table {table.name} is {column.type}, which has no place in it: {why}.",
                hint="Give it another type in the shape. Nothing was written.",
            ) from error
    return pa.schema(columns)


def _columns(table: Table, given: pa.Schema, keys: Sequence[str], place: Sequence[str]) -> pa.Schema:
    """A table's columns by those of its output. Where it has one row for each key, they include the key and the order of records."""
    if not keys:
        return numbered(given)
    if missing := [name for name in keys if name not in given.names]:
        has = f"its rows have no column {missing[0]}; they have {', '.join(given.names)}"
        raise _misfit(table, f"is kept by {', '.join(keys)}, and {has}.", "Give it in the shape.")
    if nested := [name for name in keys if pa.types.is_nested(given.field(name).type)]:
        kind = f"which is {given.field(nested[0]).type}: a key is a value without parts."
        hint = "Name its parts, or give them as columns in the shape."
        raise _misfit(table, f"is kept by {nested[0]}, {kind}", hint)
    numbers = [given.field(name) for name in place if not name.endswith("topic")]
    if len(numbers) < 2:
        text = "keeps the last record of each key, and its rows do not tell which that is."
        raise _misfit(table, text, "Keep the columns partition and offset in the shape.")
    if other := [column for column in numbers if not pa.types.is_integer(column.type)]:
        kind = f"its column {other[0].name} is {other[0].type}, which does not keep their order."
        text = f"keeps the last record of each key, by partition and offset, and {kind}"
        raise _misfit(table, text, "Give partition and offset as whole numbers, as they come.")
    return numbered(pa.schema([column for column in given if column.name != DELETED]))


def _misfit(table: Table, text: str, hint: str) -> ConfigError:
    """The error of a shape whose rows do not fit its table."""
    return ConfigError(f"Table {table.name} {text}", hint=f"{hint} Nothing was written.")


def configured(region: Handle, table: Table) -> TableConfig:
    """The configuration of the table with this one's shape."""
    name = name_of(table.shape) or table.name
    declared = region.config.table(name, table.shape)
    if declared is None or declared.shape != table.shape:
        raise ConfigError(
            f"Table {name} of region {region.config.region} is declared with the shape {table.shape}, and the configuration here does not "
            "say what that is.",
            hint="Write it with the configuration that has it, or `crkafka tables undeclare` it.",
        )
    return declared


def first_columns(region: Handle, means: Means, log: TableLog, table: Table) -> Files:
    """For a fence: of a partitioned table that is not in its place, which cannot be made without its columns."""
    if not table.shape or not parts_of(region.config, table) or log.look() is not None:
        return NOTHING
    declared, output = configured(region, table), table.output or GOOD
    if on_frames(table.shape):
        schemas = means.frames_of(declared)(region.config, declared, None, {output: table}).schemas()
    else:
        schemas = _transform(region, declared, table.shape, None)[0].schemas()
    return Files(columns=_as_stored(table, log, numbered(schemas[output])))


def _taken(declared: TableConfig, family: Mapping[str, Table]) -> set[str]:
    """Outputs that have a table. Dead letters are rows of theirs only while they are kept."""
    keeps = declared.on_bad_record in (None, "dead_letter")
    if keeps and DEAD not in family:
        raise ConfigError(
            f"Table {declared.name} keeps dead letters, and no table is declared for them.",
            hint="`crkafka init` declares it, with the configuration of today.",
        )
    return {*family} if keeps else {*family} - {DEAD}


def _taken_by_shape(given: Collection[str], shape: str | None, family: Mapping[str, Table]) -> set[str]:
    """Refused unless each output has its table and each table its output."""
    for name in sorted(set(given) ^ family.keys()):
        if name in family:
            raise ConfigError(
                f"A table takes the output {name} of the shape {shape}, which gives {', '.join(given)}.",
                hint="Return it from the shape, or name another output.",
            )
        raise ConfigError(
            f"The shape {shape} gives rows as {name}, which no table takes.",
            hint=f'Declare a table with shape: "{shape}" and output: {name}, or leave it out of what the shape returns.',
        )
    return {*family}


@contextmanager
def _naming(table: str) -> Iterator[None]:
    """Name the table in a decoder's error."""
    try:
        yield
    except (BadRecord, RegistryAway, ConfigError) as error:
        if f"able {table}" in error.message:
            raise
        raise type(error)(f"Table {table}: {error.message}", hint=error.hint) from error


def without_records(region: Handle, permit: Permit) -> bool:
    """Whether none were merged for the table: nothing has to be committed."""
    topics = configured(region, permit.table).topics if permit.plan.rows and permit.table.shape else None
    return not (permit.plan.rows if topics is None else any(_due(region, permit.plan, topics).values()))


def _due(region: Handle, plan: ReadPlan, topics: Collection[str] | None) -> Mapping[int, int]:
    """Checkpoint → records that were merged of these topics, and not erased."""
    if topics is None:
        return plan.rows_for_tables
    merged = region.plane.read(lambda reader, row: contents.of_topics(reader, row, plan.filled, topics))
    return {**dict.fromkeys(plan.checkpoints, 0), **merged}


def _check_outputs(region: Handle, plan: ReadPlan, declared: TableConfig, made: Made) -> None:
    """Every record that was merged, and not erased, is in exactly one output; a shape with one may leave rows out."""
    by_frames = on_frames(declared.shape or "")
    whole = not (by_frames or arrow_of(declared.shape or "")) or len(made.rows) > 1
    for checkpoint, rows in _due(region, plan, declared.topics).items():
        given = sum(counts[checkpoint] for counts in made.rows.values())
        came = rows if by_frames else made.records[checkpoint]  # Spark's tasks count as they read
        if rows != came or (whole and given != rows):
            each = ", ".join(f"{counts[checkpoint]} {name}" for name, counts in made.rows.items())
            raise DataLoss(
                f"Table {declared.name}: {plural(came, 'record')} of checkpoint {checkpoint} came, and {given} rows were made of them "
                f"({each}); {rows} were merged, and not erased.",
                hint="Each record has to be in exactly one output of a shape that has several. Nothing was committed.",
            )
