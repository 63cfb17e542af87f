"""Expands tables with a built-in shape: `typed:` declares the table of its dead letters too, and `topics:` alone gives records as they are
(SPEC K6). An entry becomes one or two tables of the shape `crkafka.typed:NAME`; their writers read the rest from the configuration, by that
name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from crkafka_core.config import json_columns, location, secret
from crkafka_core.config.sections import ByValue, TableConfig
from crkafka_core.config.shapes import DEAD, GOOD, RECORDS, SHAPE, VALUES, by_value, name_of
from crkafka_core.config.typed import RegistryConfig, TypedConfig


def expanded(
    tables: Sequence[TableConfig], topics: Sequence[str] | None, registry: RegistryConfig | None
) -> Iterator[TableConfig]:
    """Tables with the built-in shape in the place of `typed`, each followed by its table of dead letters."""
    declared = {t.name: t for t in tables}
    for table in tables:
        if table.typed is None:
            owner = name_of(table.shape or "")
            if owner and (owner not in declared or declared[owner].typed is None):
                raise ValueError(f"table {table.name} is part of the typed table {owner}, which is not declared")
            of_topics = table.shape is None and table.topics is not None
            yield table.model_copy(update={"shape": RECORDS + table.name}) if of_topics else table
            continue
        typed = _subject(table.typed, table, table.topics or topics, registry)
        yield table.model_copy(update={"shape": SHAPE + table.name, "typed": typed})
        if (table.on_bad_record or "dead_letter") == "dead_letter":
            name, shape = table.dead_letters or f"{table.name}_dead", SHAPE + table.name
            known = declared.get(name)
            if known is None or (known.shape, known.output) != (shape, DEAD):
                own = {"name": name, "path": sibling(table.path, name), "shape": shape}
                own |= {"output": DEAD, "mode": "append"}
                none = dict.fromkeys(("typed", "on_bad_record", "dead_letters", "partition_by", "keys"))
                yield table.model_copy(update=own | none)


def _subject(
    typed: TypedConfig, table: TableConfig, topics: Sequence[str] | None, registry: RegistryConfig | None
) -> TypedConfig:
    if not typed.registered:
        return typed
    if registry is None:
        write = "write registry: {url: https://…}"
        raise ValueError(f"table {table.name} is typed by a registry, and the region names none; {write}")
    if typed.subject is not None:
        return typed
    if topics is None or len(topics) != 1:
        raise ValueError(
            f"table {table.name} is typed by a registry, in which several topics have no common subject; "
            "write topics: [ONE], or subject: NAME-value"
        )
    return typed.model_copy(update={"subject": f"{topics[0]}-value"})


def _check_topics(tables: Sequence[TableConfig], topics: Sequence[str] | None) -> None:
    """Refuse different topics in tables of one shape, and topics that the region does not read."""
    of: dict[str, TableConfig] = {}
    for table in tables:
        if table.shape is None:
            continue
        first = of.setdefault(table.shape, table)
        if set(first.topics or ()) != set(table.topics or ()):
            two = f"tables {first.name} and {table.name}"
            raise ValueError(f"{two} have one shape and take different topics; they are written together")
        for topic in table.topics or ():
            if topics is not None and topic not in topics:
                raise ValueError(f"table {table.name} takes the topic {topic}, which the region does not read")


def checked(
    tables: Sequence[TableConfig], topics: Sequence[str] | None, registry: RegistryConfig | None, base: Path
) -> tuple[TableConfig, ...]:
    """All declared tables and templates: built-in shapes expanded, names and rows apart, paths absolute."""
    templates = [t for t in tables if t.each is not None]
    given, by_values = {t.shape for t in tables}, [without_value(t) for t in templates if t.by_value]
    for table in tables:
        if by_value(table.shape or "") and table.shape not in [each.shape for each in by_values]:
            raise ValueError(f"table {table.name} names a shape of crkafka's own; write each: {{header: NAME}} instead")
    others = [each for each in by_values if each.shape not in given]
    tables = (*expanded([t for t in tables if t.each is None], topics, registry), *others, *templates)
    names = Counter(t.name for t in tables)
    taken = Counter((t.shape, t.output or GOOD) for t in tables if t.shape is not None)
    for name, count in names.items():
        if count > 1:
            raise ValueError(f"two tables are called {name!r}; each needs a name of its own")
    for table in tables:
        secret.check_none(f"table {table.name}", table.path)
    for (shape, output), count in taken.items():
        if count > 1:
            raise ValueError(f"two tables take the output {output} of {shape}; each row of a shape is in one table")
    _check_topics(tables, topics)
    anchored = []
    for table in tables:
        typed, path = table.typed, table.path
        if typed is not None and not typed.registered:
            typed = typed.model_copy(update={"json_file": location.absolute(str(typed.json_file), base)})
        path = path if location.in_catalog(path) else location.absolute(path, base)
        anchored.append(table.model_copy(update={"typed": typed, "path": path}))
    return tuple(anchored)


def without_value(template: TableConfig) -> TableConfig:
    """The table of the records for which the template has no other: dead letters."""
    name = template.dead_letters or template.name.replace("{value}", "dead_letters")
    assert isinstance(template.each, ByValue)
    by = f"header.{template.each.header}" if template.each.header else f"field.{template.each.field}"
    shape = f"{VALUES}{name}.{re.sub('[^A-Za-z0-9_.]', '_', by)}"
    about = {"name": name, "path": template.path.replace("{value}", "dead_letters"), "shape": shape}
    return template.model_copy(update={**about, **dict.fromkeys(("each", "most_tables", "dead_letters"))})


def sibling(path: str, name: str) -> str:
    """The path, or identifier in a catalog, of a table `name` beside `path`."""
    separator = "/" if "/" in path else "."
    head, slash, _ = path.rstrip(separator).rpartition(separator)
    return f"{head}{slash}{name}"


def check_schemas(tables: Sequence[TableConfig]) -> None:
    """Refuse a schema file that is missing or gives no columns."""
    for table in tables:
        if table.typed is not None and not table.typed.registered:
            try:
                json_columns.load(str(table.typed.json_file))
            except json_columns.NoColumns as error:
                raise ValueError(f"table {table.name} is typed by a schema that cannot be used: {error}") from None
