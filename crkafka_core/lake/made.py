"""What a permitted pass brings into each of its tables: segments as they are, or files of rows that are made of them (SPEC K6).

Rows of typed tables and of Arrow's shapes are made by a pool of processes, those of a shape on DataFrames by tasks of Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pyarrow as pa

from crkafka_core.config.sections import TableConfig
from crkafka_core.config.shapes import DEAD, GOOD, arrow_of, has_records, name_of, on_frames
from crkafka_core.config.template import most_of
from crkafka_core.decode.batch import BadRecord
from crkafka_core.decode.registry import RegistryAway
from crkafka_core.lake import again, columns, files, standing, typed
from crkafka_core.lake.columns import DELETED, RAW, followed, keys_of, parts_of, place_in, properties_of
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.means import Maker, Means
from crkafka_core.lake.new_files import Output
from crkafka_core.lake.port import CannotCommit, Moved, NewFile, Part, Snapshot, Stamp, TableLog, mark_of
from crkafka_core.lake.transform import Identity, Shape, numbered
from crkafka_core.lake.values import ByValue
from crkafka_core.lake.worker import Made, Source, Task, make
from crkafka_core.model.errors import ConfigError, DataLoss
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Table
from crkafka_core.model.selection import Selection
from crkafka_core.plane import contents, tables, templates
from crkafka_core.plane.permits import Permit
from crkafka_core.plane.reading import ReadPlan


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


def as_they_are(region: Handle, means: Means, log: TableLog, permit: Permit) -> Files:
    """Segments, by a link or a copy, or in pieces by partition; what is archived is read from Kafka again."""
    plan, storage, folder = permit.plan, log.storage, folder_of_commit(permit)
    if parts := parts_of(region.config, permit.table):
        return Files(_in_pieces(means.sources(region, plan), Output(storage, folder, parts, RAW), plan.rows_for_tables))
    made = files.adopted(region.storage(), plan.segments, plan, storage, folder)
    return Files(made + again.fetched(means.fetch_of(region), plan, storage, folder))


def _in_pieces(sources: Iterable[Source], output: Output, due: Mapping[int, int]) -> Sequence[NewFile]:
    """New files with the records, each of one partition."""
    made, transform = Made(), Identity()
    try:
        for source in sources:
            made.add(make(Task(source, transform, {GOOD: output}), transform.open()))
        check_whole({GOOD: due}, made)
    except BaseException:
        made.discard({GOOD: output})
        raise
    return made.files.get(GOOD, [])


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


@dataclass(frozen=True)
class _ByPool:
    """A `Maker`: a transform, run by a pool of processes."""

    region: Handle
    means: Means
    plan: ReadPlan
    chosen: typed.Chosen

    @property
    def alarm(self) -> str:
        return self.chosen.alarm

    def schemas(self) -> Mapping[str, pa.Schema]:
        return self.chosen.transform.schemas()

    def make(self, outputs: Mapping[str, Output], check: Callable[[], object]) -> Made:
        return self.means.files(self.region, self.plan, self.chosen.transform, outputs, check)


def by_shape(
    region: Handle, means: Means, permits: Sequence[Permit], logs: Mapping[str, TableLog], check: Callable[[], object]
) -> dict[str, Files]:
    """Table → its files, for the permitted tables of one shape. `check` is called meanwhile, and ends it by an error."""
    plan, first = permits[0].plan, permits[0].table
    declared = configured(region, first)
    records = plan.selecting(Selection.of(topics=declared.topics))
    with _named(declared.name):
        snapshots = {name: log.look() for name, log in logs.items()}
        for permit in permits:  # before files are made, which each try of a table that is refused would leave behind
            standing.check(region, permit, snapshots[permit.table.name])
        related = region.plane.read(lambda reader, _: tables.siblings(reader, first))
        if on_frames(declared.shape or ""):
            of_output = {t.output or GOOD: t for t in related}
            maker: Maker = means.frames_of(declared)(region.config, declared, records, of_output)
        else:
            good = next((table for table in related if table.output in ("", GOOD)), None)
            shown = good and (snapshots[good.name] if good.name in snapshots else means.logs(region, good).look())
            maker = _ByPool(region, means, records, _choose(region, declared, first.shape, shown and shown.schema))
        schemas = maker.schemas()
        taken = _taken(declared, related) if declared.typed else _taken_by_shape(schemas, related)
        outputs = _outputs(region, schemas, taken, permits, logs, snapshots)
        try:
            made = maker.make(outputs, check) if records.segments or records.ranges else Made()
            _check_whole(region, plan, declared, made)
        except BaseException:  # each try would leave its files behind
            _discard(outputs.values())
            raise
    return _by_table(permits, outputs, made, maker.alarm)


def _discard(outputs: Iterable[Output]) -> None:
    """Remove all files of a permit that made none: also those of tasks of Spark whose answer did not come, as another one failed."""
    for output in outputs:
        with suppress(Exception):
            for stored in output.storage.list(output.folder):
                output.storage.delete(stored.path)


def _by_table(permits: Sequence[Permit], outputs: Mapping[str, Output], made: Made, alarm: str) -> dict[str, Files]:
    checkpoints = permits[0].plan.checkpoints
    counts = {name: {i: of[i] for i in checkpoints} for name, of in made.rows.items()}
    none = dict.fromkeys(checkpoints, 0)
    files: dict[str, Files] = {}
    for permit in permits:
        name = permit.table.output or GOOD
        of = outputs.get(name)
        files[permit.table.name] = Files(
            made.files.get(name, ()),
            of and of.columns,
            counts.get(name, none) if of else none,
            counts.get(DEAD, {}) if name == GOOD else {},
            alarm if name == GOOD else "",
        )
    return files


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
        keys = keys_of(region.config, table)
        place = place_in(schemas[output].names, table)
        given, parts = _columns(table, schemas[output], keys, place), parts_of(region.config, table)
        columns = _as_stored(table, logs[table.name], given)
        if missing := [part.column for part in parts if part.column not in columns.names]:
            raise ConfigError(
                f"Table {table.name} is declared with partition_by: {missing[0]}, and its rows have no such column; they have "
                f"{', '.join(columns.names)}.",
                hint="Name another column, or give it in the shape. Nothing was written.",
            )
        if snapshot is None and logs[table.name].placed_late:
            _place(region, logs[table.name], permit, columns, parts)
        if snapshot is not None:
            columns = followed(table.name, snapshot.schema, columns, widens=logs[table.name].widens)
            parts = tuple(snapshot.parts)
        outputs[output] = Output(logs[table.name].storage, folder_of_commit(permit), parts, columns, keys, place)
    return outputs


def _as_stored(table: Table, log: TableLog, given: pa.Schema) -> pa.Schema:
    """Columns with the types that the table's format has for their values. Refused before the table is made where there is none."""
    fields = list[pa.Field]()
    for field in given:
        try:
            fields += log.stored(pa.schema([field.with_type(columns.stored(field.type))]))
        except (columns.NoPlace, CannotCommit) as error:
            why = error.message.rstrip(".") if isinstance(error, CannotCommit) else error
            raise ConfigError(
                f"Column {field.name} of table {table.name} is {field.type}, which has no place in it: {why}.",
                hint="Give it another type in the shape. Nothing was written.",
            ) from error
    return pa.schema(fields)


def _columns(table: Table, given: pa.Schema, keys: Sequence[str], place: Sequence[str]) -> pa.Schema:
    """A table's columns by those of its output. Where it has one row for each key, they include the key and the order of records."""
    if not keys:
        return numbered(given)
    if missing := [name for name in keys if name not in given.names]:
        raise ConfigError(
            f"Table {table.name} is kept by {', '.join(keys)}, and its rows have no column {missing[0]}; they have "
            f"{', '.join(given.names)}.",
            hint="Give it in the shape. Nothing was written.",
        )
    if nested := [name for name in keys if pa.types.is_nested(given.field(name).type)]:
        raise ConfigError(
            f"Table {table.name} is kept by {nested[0]}, which is {given.field(nested[0]).type}: a key is a value without parts.",
            hint="Name its parts, or give them as columns in the shape. Nothing was written.",
        )
    numbers = [given.field(name) for name in place if not name.endswith("topic")]
    if len(numbers) < 2:
        raise ConfigError(
            f"Table {table.name} keeps the last record of each key, and its rows do not tell which that is.",
            hint="Keep the columns partition and offset in the shape. Nothing was written.",
        )
    if other := [column for column in numbers if not pa.types.is_integer(column.type)]:
        raise ConfigError(
            f"Table {table.name} keeps the last record of each key, by partition and offset, and its column {other[0].name} is "
            f"{other[0].type}, which does not keep their order.",
            hint="Give partition and offset as whole numbers, as they come. Nothing was written.",
        )
    return numbered(pa.schema([column for column in given if column.name != DELETED]))


def _place(region: Handle, log: TableLog, permit: Permit, columns: pa.Schema, parts: Sequence[Part]) -> None:
    """Make a table without rows, since only its catalog knows where its files are to be."""
    standing.check_place(permit.table, None)
    with suppress(Moved):
        stamp = Stamp(permit.plan.uid, permit.table.name, 0, mark_of(permit.commit.token), 0)
        log.create(columns, parts, stamp, properties_of(region.config, permit.table))


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


def _choose(region: Handle, declared: TableConfig, shape: str, there: pa.Schema | None) -> typed.Chosen:
    if (template := region.config.template_of(shape)) is not None:
        return typed.Chosen(_by_value(region, template, shape))
    if has_records(shape):
        return typed.Chosen(Identity())
    function = arrow_of(shape)
    return typed.Chosen(Shape(function)) if function else typed.choose(declared, region.config.registry, there)


def _by_value(region: Handle, template: TableConfig, shape: str) -> ByValue:
    values, taken = region.plane.read(lambda reader, _: (templates.values_of(reader, shape), templates.taken(reader)))
    return ByValue(template, shape, values, taken, max(0, most_of(template) - len(values)))


def first_columns(region: Handle, means: Means, log: TableLog, table: Table) -> Files:
    """For a fence: of a partitioned table that is not there, which cannot be made without its columns."""
    if not table.shape or not parts_of(region.config, table) or log.look() is not None:
        return NOTHING
    declared, output = configured(region, table), table.output or GOOD
    if on_frames(table.shape):
        schemas = means.frames_of(declared)(region.config, declared, None, {output: table}).schemas()
    else:
        schemas = _choose(region, declared, table.shape, None).transform.schemas()
    return Files(columns=_as_stored(table, log, numbered(schemas[output])))


def _taken(declared: TableConfig, family: Sequence[Table]) -> set[str]:
    """Outputs that have a table. Dead letters are rows of theirs only while they are kept."""
    taken, keeps = {table.output or GOOD for table in family}, declared.on_bad_record in (None, "dead_letter")
    if keeps and DEAD not in taken:
        raise ConfigError(
            f"Table {declared.name} keeps dead letters, and no table is declared for them.",
            hint="`crkafka init` declares it, with the configuration of today.",
        )
    return taken if keeps else taken - {DEAD}


def _taken_by_shape(given: Collection[str], family: Sequence[Table]) -> set[str]:
    """Refused unless each output has its table and each table its output."""
    shape, taken = family[0].shape, {table.output or GOOD for table in family}
    for name in sorted(set(given) ^ taken):
        if name in taken:
            raise ConfigError(
                f"A table takes the output {name} of the shape {shape}, which gives {', '.join(given)}.",
                hint="Return it from the shape, or name another output.",
            )
        raise ConfigError(
            f"The shape {shape} gives rows as {name}, which no table takes.",
            hint=f'Declare a table with shape: "{shape}" and output: {name}, or leave it out of what the shape returns.',
        )
    return taken


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Says of which table a decoder's error is."""
    try:
        yield
    except (BadRecord, RegistryAway, ConfigError) as error:
        if f"able {name}" in error.message:
            raise
        raise type(error)(f"Table {name}: {error.message}", hint=error.hint) from error


def without_records(region: Handle, permit: Permit) -> bool:
    """Whether none were merged for the table: nothing has to be committed."""
    topics = configured(region, permit.table).topics if permit.plan.rows and permit.table.shape else None
    return not (permit.plan.rows if topics is None else any(due(region, permit.plan, topics).values()))


def due(region: Handle, plan: ReadPlan, topics: Collection[str] | None) -> dict[int, int]:
    """Checkpoint → records that were merged of these topics, and not erased."""
    if topics is None:
        return plan.rows_for_tables
    found = region.plane.read(lambda reader, row: contents.of_topics(reader, row, plan.filled, topics))
    return {**dict.fromkeys(plan.checkpoints, 0), **found}


def _check_whole(region: Handle, plan: ReadPlan, declared: TableConfig, made: Made) -> None:
    """Every record that was merged, and not erased, is in exactly one output; a shape with one may leave rows out."""
    for checkpoint, rows in due(region, plan, declared.topics).items():
        given = sum(of[checkpoint] for of in made.rows.values())
        by_shape_of_user = arrow_of(declared.shape or "") or on_frames(declared.shape or "")
        whole = not by_shape_of_user or len(made.rows) > 1
        came = rows if on_frames(declared.shape or "") else made.records[checkpoint]  # Spark's tasks count as they read
        if rows != came or (whole and given != rows):
            each = ", ".join(f"{of[checkpoint]} {name}" for name, of in made.rows.items())
            raise DataLoss(
                f"Table {declared.name}: {plural(came, 'record')} of checkpoint {checkpoint} came, and {given} rows were made of them "
                f"({each}); {rows} were merged, and not erased.",
                hint="Each record has to be in exactly one output of a shape that has several. Nothing was committed.",
            )
