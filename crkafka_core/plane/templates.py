"""Tables of templates, which are declared once their topic is known (SPEC K6)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from crkafka_core.config.location import in_catalog
from crkafka_core.config.region_config import RegionConfig
from crkafka_core.config.sections import TableConfig
from crkafka_core.config.shapes import by_value, of_template, topic_of
from crkafka_core.config.template import OF_VALUE, most_of, placed
from crkafka_core.control import Cond, Reader, Tx
from crkafka_core.model.rows import Initial, MergedOffset, Region, Table, TableCommit
from crkafka_core.plane import events, tables
from crkafka_core.plane.tables import FAILED, UNDECLARED
from crkafka_core.plane.transact import ControlPlane

_New = tuple[Sequence[TableConfig], TableConfig | None, int]
"""Tables that a topic lacks; the one of its records where one of them cannot be declared, None: others of their shape are declared already;
and the checkpoint before the first rows of the topic."""


def of_topics(reader: Reader) -> list[Table]:
    """Tables that templates have given topics and values, by name."""
    return [t for t in reader.select(Table, order=("name",)) if of_template(t.shape, t.output)]


def values_of(reader: Reader, shape: str) -> frozenset[str]:
    """Values that have a table of this shape."""
    return frozenset(t.output.removeprefix(OF_VALUE) for t in reader.select(Table, ("shape", "=", shape)) if t.output)


def taken(reader: Reader) -> dict[str, str]:
    """Tables by their names in lower case, with their paths; empty ones of tables that were undeclared."""
    return {mark.table.lower(): "" for mark in _undeclared(reader)} | _declared(reader)


def _declared(reader: Reader) -> dict[str, str]:
    return {table.name.lower(): table.path for table in reader.select(Table)}


def _undeclared(reader: Reader) -> list[TableCommit]:
    return reader.select(TableCommit, ("kind", "=", UNDECLARED), ("status", "=", FAILED))


def declare_values(plane: ControlPlane, config: RegionConfig, shape: str, values: Collection[str], *, by: str) -> None:
    """Declare the tables of values that have come, as far as the template has room. They begin where the others of their shape are."""
    if (template := config.template_of(shape)) is not None:
        plane.do(lambda tx: _declare_values(tx, template, shape, values, taken(tx), by))


def _declare_values(
    tx: Tx, template: TableConfig, shape: str, values: Collection[str], others: dict[str, str], by: str
) -> None:
    family = tx.select(Table, ("shape", "=", shape))
    if any(table.owes_fence for table in family):
        return  # rewound meanwhile: where the tables are is known after their fence
    room, begins = most_of(template) + 1 - len(family), min((t.acknowledged for t in family), default=0)
    for value in sorted(set(values) - values_of(tx, shape)):
        if room > 0 and (table := placed(template, value, others)) is not None:
            about = (tx, table.name, table.format, table.path)
            tables.declare(*about, shape=shape, output=table.output or "", here=True, begins=begins, by=by)
            others[table.name.lower()], room = table.path, room - 1
            if not room:
                full = f"{template.name} has {most_of(template)} tables, its most_tables; further values have none"
                events.log(tx, "template without room", full)


def _declare_values_again(tx: Tx, config: RegionConfig, by: str) -> None:
    """Declare tables of values that were undeclared."""
    marks = [(shape, value) for m in _undeclared(tx) for shape, _, value in [m.token.partition("@")] if by_value(shape)]
    for shape in sorted({shape for shape, _ in marks}):
        if (template := config.template_of(shape)) is not None:
            values = [value.removeprefix(OF_VALUE) for each, value in marks if each == shape]
            _declare_values(tx, template, shape, values, _declared(tx), by)


def declare_new(
    plane: ControlPlane, config: RegionConfig, *, known: Collection[str] = (), again: bool = False, by: str = ""
) -> frozenset[str]:
    """Declare the tables that topics lack, but for topics that are `known` already; all topics of the region. A table that was undeclared
    is declared again only if so asked (`again`)."""
    if not config.templates:
        return frozenset()
    if again:
        plane.do(lambda tx: _declare_values_again(tx, config, by))
    topics, new = plane.read(lambda reader, row: _lacking(config, reader, row, known, again=again))
    if new:
        plane.do(lambda tx: _declare(config, tx, new, by))
    return topics


def _lacking(
    config: RegionConfig, reader: Reader, row: Region, known: Collection[str], *, again: bool
) -> tuple[frozenset[str], list[_New]]:
    """All topics, and what templates give those that lack it."""
    read = reader.column(Initial, "topic", ("forgotten", "=", False))
    topics, new = frozenset([*read, *(config.topics or ())]), list[_New]()
    if topics <= frozenset(known):
        return topics, new
    declared = {(table.shape, table.output) for table in reader.select(Table)}
    gone = set() if again else {(mark.table, mark.token) for mark in _undeclared(reader)}
    for topic in sorted(topics.difference(known)):
        for template in config.of_topic(topic):
            unplaced = template.unplaced
            if {_output(unplaced)} & declared or (unplaced.name, unplaced.shape) in gone:
                continue
            lacks = [t for t in template.own if _output(t) not in declared and (t.name, t.shape) not in gone]
            if lacks:
                instead = unplaced if declared.isdisjoint(map(_output, template.own)) else None
                new.append((lacks, instead, _before_first(reader, row, topic)))
    return topics, new


def _output(table: TableConfig) -> tuple[str, str]:
    return table.shape or "", table.output or ""


def _before_first(reader: Reader, row: Region, topic: str) -> int:
    """The checkpoint behind which all rows of a topic are; birth where that is not known."""
    line = reader.line(row.head) if row.head else []
    of_topic = reader.select(
        MergedOffset, ("topic", "=", topic), ("rows", ">", 0), order=("checkpoint",), limit=1
    ) or reader.select(MergedOffset, ("checkpoint", "=", row.head), ("topic", "=", topic))
    if not line or not of_topic:
        return row.head
    first = of_topic[0]
    initial = {(i.topic_id, i.partition): i.offset for i in reader.select(Initial, ("topic", "=", topic))}
    merged = reader.select(MergedOffset, ("checkpoint", "=", first.checkpoint), ("topic", "=", topic))
    if any(o.from_offset != initial.get((o.topic_id, o.partition)) for o in merged):
        return 0  # what is archived by now may have had more of it
    return max((i for i in line if i < first.checkpoint or not first.rows), default=0)


def _declare(config: RegionConfig, tx: Tx, new: Collection[_New], by: str) -> None:
    for lacks, instead, begins in new:
        others = {t.name: t.path for t in tx.select(Table) if t.shape != lacks[0].shape}
        whys = [why for t in lacks if (why := config.clash(t, others) or _of_another(tx, t))]
        if whys:
            into = f"; its records come into {instead.name}" if instead is not None else ""
            events.log(tx, "topic without its table", f"{whys[0]}{into}")
            lacks = [instead] if instead is not None else []
        for table in lacks:
            shape, output = _output(table)
            about = (tx, table.name, table.format, table.path)
            tables.declare(*about, shape=shape, output=output, here=True, begins=begins, by=by)


def _of_another(reader: Reader, table: TableConfig) -> str:
    """Why a name in a catalog has the rows of another topic, whose table was undeclared; empty if it has none."""
    fits: list[Cond] = [("table", "=", table.name), ("kind", "=", UNDECLARED), ("token", "!=", table.shape)]
    marks = reader.select(TableCommit, *fits) if in_catalog(table.path) else ()
    return next((f"{table.path} has rows of topic {topic_of(mark.token)}, which was undeclared" for mark in marks), "")
