"""Tables of templates, which are declared once their topic is known (SPEC K6)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from crkafka_core.config.region_config import RegionConfig
from crkafka_core.config.sections import TableConfig
from crkafka_core.config.template import OfTopic
from crkafka_core.config.typed import topic_of
from crkafka_core.control import Reader, Tx
from crkafka_core.model.rows import Initial, MergedOffset, Region, Table, TableCommit
from crkafka_core.plane import events, tables
from crkafka_core.plane.transact import ControlPlane


@dataclass(frozen=True)
class _New:
    """What a template gives a topic, and the checkpoint before the first rows of it."""

    topic: str
    tables: OfTopic
    begins: int


def of_topics(reader: Reader) -> list[Table]:
    """Tables that templates have given topics, by name."""
    return [table for table in reader.select(Table, order=("name",)) if topic_of(table.shape)]


def declare_new(
    plane: ControlPlane, config: RegionConfig, *, known: Collection[str] = (), again: bool = False, by: str = ""
) -> frozenset[str]:
    """Declare the tables of topics that have none, but of those that are `known` already; all topics of the region.

    A table that was undeclared is declared again only if so asked: it has had commits.
    """
    if not config.templates:
        return frozenset()
    topics, new = plane.read(lambda reader, row: _look(config, reader, row, known, again=again))
    if new:
        plane.do(lambda tx: _declare(config, tx, new, by))
    return topics


def _look(
    config: RegionConfig, reader: Reader, row: Region, known: Collection[str], *, again: bool
) -> tuple[frozenset[str], list[_New]]:
    read = reader.column(Initial, "topic", ("forgotten", "=", False))
    topics, new = frozenset([*read, *(config.topics or ())]), list[_New]()
    if topics <= frozenset(known):
        return topics, new
    shapes = {table.shape for table in reader.select(Table)}
    for topic in sorted(topics.difference(known)):
        for of in config.of_topic(topic):
            either = (of.own[0], of.unplaced)
            gone = not again and any(_was_let_go(reader, table) for table in either)
            if shapes.isdisjoint(table.shape for table in either) and not gone:
                new.append(_New(topic, of, _before_first(reader, row, topic)))
    return topics, new


def _was_let_go(reader: Reader, table: TableConfig) -> bool:
    """Whether it was undeclared: it has had commits."""
    return reader.get(Table, table.name) is None and reader.count(TableCommit, ("table", "=", table.name)) > 0


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
    there = reader.select(MergedOffset, ("checkpoint", "=", first.checkpoint), ("topic", "=", topic))
    if any(o.from_offset != initial.get((o.topic_id, o.partition)) for o in there):
        return 0  # what is archived by now may have had more of it
    return max((i for i in line if i < first.checkpoint or not first.rows), default=0)


def _declare(config: RegionConfig, tx: Tx, new: Collection[_New], by: str) -> None:
    for each in new:
        others = {t.name: t.path for t in tx.select(Table) if t.shape != each.tables.own[0].shape}
        whys = [why for table in each.tables.own if (why := config.clash(table, others))]
        if whys:
            events.log(tx, "topic without its table", f"{whys[0]}; its records come into {each.tables.unplaced.name}")
        for table in (each.tables.unplaced,) if whys else each.tables.own:
            shape, output = table.shape or "", table.output or ""
            about = (tx, table.name, table.format, table.path)
            tables.declare(*about, shape=shape, output=output, here=True, begins=each.begins, by=by)
