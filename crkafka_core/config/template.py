"""A template of tables, `each: topic`: which topics have a table by it, and how each of these tables is declared (SPEC K6)."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crkafka_core.config import location, typed_tables
from crkafka_core.config.sections import TableConfig
from crkafka_core.config.shapes import RECORDS, UNPLACED
from crkafka_core.config.typed import RegistryConfig

TOPIC = "{topic}"
VALUE = "{value}"
OF_VALUE = "="
"""Begins the output of a value, which may be called like an output of another shape."""
MOST_TABLES = 100
"""How many tables a template by value has at most, where the configuration has no `most_tables`."""
LONGEST = 128
"""Letters of a table's name."""


@dataclass(frozen=True)
class OfTopic:
    """What one template gives a topic."""

    own: tuple[TableConfig, ...]
    """Its table, and that of its dead letters where it is typed; without a name where none fits."""
    unplaced: TableConfig
    """For its records as they are, where it cannot have its own."""


def takes(template: TableConfig, topic: str) -> bool:
    """Whether the topic has a table by the template."""
    if template.by_value:
        return False
    named = template.topics is None or any(_fits(each, topic) for each in template.topics)
    return named and not any(_fits(each, topic) for each in template.except_ or ())


def _fits(named: str, topic: str) -> bool:
    return re.search(named, topic) is not None if named.startswith("^") else named == topic


def of_topic(template: TableConfig, topic: str, registry: RegistryConfig | None) -> OfTopic:
    typed = template.typed
    if typed is not None:
        given = {key: getattr(typed, key) for key in ("json_file", "subject")}
        typed = typed.model_copy(update={key: text.replace(TOPIC, topic) for key, text in given.items() if text})
    own = {
        "name": _filled(template.name, topic),
        "path": template.path.replace(TOPIC, _safe(topic) if in_catalog(template) else topic),
        "topics": (topic,),
        "typed": typed,
        **dict.fromkeys(("each", "except_")),
    }
    tables = []
    for table in typed_tables.expanded([template.model_copy(update=own)], [topic], registry):
        name = table.name if len(table.name) <= LONGEST else ""
        tables.append(table.model_copy(update={"name": name, "shape": f"{table.shape}@{topic}"}))
    unplaced = f"{UNPLACED}{zlib.crc32(f'{template.name} {topic}'.encode()):08x}"
    other = {
        "name": unplaced,
        "path": typed_tables.sibling(template.path.replace(TOPIC, "topic"), unplaced),
        "shape": f"{RECORDS}{unplaced}@{topic}",
        "topics": (topic,),
        "partition_by": template.partition_by if template.typed is None else None,
        **dict.fromkeys(("each", "except_", "typed", "on_bad_record")),
    }
    return OfTopic(tuple(tables), template.model_copy(update=other))


def most_of(template: TableConfig) -> int:
    """How many tables a template by value has at most."""
    return template.most_tables or MOST_TABLES


def of_value(template: TableConfig, value: str) -> TableConfig:
    """The table of the records with this value; without a name where none fits."""
    name, path = _filled(template.name, value, VALUE), template.path.replace(VALUE, _safe(value))
    about = {"name": name if len(name) <= LONGEST else "", "path": path, "output": f"{OF_VALUE}{value}"}
    return typed_tables.without_value(template).model_copy(update=about)


def placed(template: TableConfig, value: str, taken: Mapping[str, str]) -> TableConfig | None:
    """The table of a value beside others, by their names in lower case and their paths; None: it can have none."""
    if not value or not value.isprintable():
        return None
    table = of_value(template, value)
    named = bool(table.name) and table.name.lower() not in taken
    beside = any(path and location.overlap(table.path, path) for path in taken.values())
    return table if named and not beside else None


def _filled(name: str, given: str, hole: str = TOPIC) -> str:
    """A name of a topic or value: what a name cannot have becomes an underscore, and one stands before a digit at its beginning."""
    filled = name.replace(hole, _safe(given))
    return f"_{filled}" if filled[0].isdigit() else filled


def _safe(topic: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", topic)


def in_catalog(template: TableConfig) -> bool:
    """Whether the tables are in a catalog."""
    return location.in_catalog(template.path.replace(TOPIC, "topic").replace(VALUE, "value"))


def clash(table: TableConfig, taken: Mapping[str, str], beside: Sequence[tuple[str, str]]) -> str:
    """Why a topic cannot have its table: by name and path of other topics' tables, and of what else there is; empty if it can."""
    topic = (table.topics or ("",))[0]
    if not table.name:
        return f"no name of a table has room for topic {topic}"
    at = f"the table of topic {topic} would be {table.name} at {table.path}"
    if table.name in taken or any(location.overlap(table.path, path) for path in taken.values()):
        return f"{at}, which is another table's name or place"
    for what, path in beside:
        if what == table.name or location.overlap(path, table.path):
            return f"{at}, and {what} is at {path}"
    return ""


def check(tables: Sequence[TableConfig], storage: str, topics: Sequence[str] | None) -> None:
    """Refuse templates whose tables would lie in others or among segments, and topics that the region does not read."""
    for template in (each for each in tables if each.each is not None):
        for other in tables:
            if other is not template and location.overlap(other.path, template.path):
                raise ValueError(
                    f"the tables of {template.name} ({template.path}) and {other.name} ({other.path}) would lie in one another: "
                    "cleaning up one would delete the other; give each a folder of its own"
                )
        folder = template.path.partition(VALUE if template.by_value else TOPIC)[0].rpartition("/")[0]
        if not in_catalog(template) and location.overlap(folder, storage):
            text = f"the tables of {template.name} would lie in {folder}, where the storage is too; give them a folder of their own"
            raise ValueError(text)
        for topic in template.topics or ():
            if topics is not None and not topic.startswith("^") and topic not in topics:
                raise ValueError(f"{template.name} names the topic {topic}, which the region does not read")
