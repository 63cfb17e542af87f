"""Refuses changes of the configuration that would lose what declared tables have, or wait for (SPEC K6)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from crkafka_core.config import RegionConfig, redact
from crkafka_core.config.location import overlap
from crkafka_core.config.sections import TableConfig
from crkafka_core.config.shapes import by_value, name_of, topic_of
from crkafka_core.config.template import OF_VALUE, of_value
from crkafka_core.model.errors import Refused
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Table
from crkafka_core.plane import life, tables, templates
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.segments.storage import Storage


def refuse_other_keys(was: str, config: RegionConfig, known: Iterable[Table]) -> None:
    """Refuse other keys of a table with rows. `was`: the present configuration, as JSON. A writer would refuse them too, but only once the
    region has the new configuration and the table is late."""
    before = {table["name"]: tuple(table.get("keys", ())) for table in json.loads(was or "{}").get("tables", ())}
    filled = {table.name for table in known if table.version}
    for table in config.tables:
        keys = tuple(table.keys or ())
        if table.name in filled and before.get(table.name, keys) != keys:
            raise Refused(
                f"Table {table.name} of region {config.region} has one row for each {_in_words(before[table.name])}, and is declared now "
                f"with one for each {_in_words(keys)}: its rows would be others.",
                hint="Nothing was changed. Write `mode` and `keys` as they were, and declare the new rows as a table of another name; or "
                f"`crkafka tables undeclare {table.name}`, and declare it at a new path.",
            )


def refuse_other_templates(config: RegionConfig, known: Iterable[Table]) -> None:
    """Refuse templates that would give a topic another table than it has, or none."""
    gone = list[str]()
    for row in known:
        for table in _of_template(config, row):
            same = (table.shape, table.format, table.path) == (row.shape, row.format, row.path)
            if not same if table.name == row.name else overlap(table.path, row.path):
                raise Refused(
                    f"Table {row.name} of region {config.region} is {row.format} at {row.path}, with shape {row.shape}; its template would "
                    f"make it {table.name}, {table.format} at {table.path}, with shape {table.shape}.",
                    hint="Nothing was changed. Write the template as it was; or give a new one another name and path, which fills its "
                    "tables from what is kept.",
                )
        of_template = topic_of(row.shape) or by_value(row.shape)
        if of_template and config.table(name_of(row.shape) or row.name, row.shape) is None:
            gone.append(row.name)
    if gone:
        lines = ", ".join(f"`crkafka tables undeclare {name}`" for name in gone)
        raise Refused(
            f"Region {config.region} has {plural(len(gone), 'table')} that no template gives any more: {', '.join(gone)}. "
            "Nothing could be written there.",
            hint=f"Nothing was changed. Run {lines} first, and what is there stays as it is; or write the templates as they were.",
        )


def declare_new(plane: ControlPlane, config: RegionConfig, *, by: str) -> None:
    """Declare the tables that topics lack, by a program that is no host: under other templates that is refused."""
    if config.templates:
        refuse_other_templates(config, plane.read(lambda reader, _: life.tables_of(reader)))
        templates.declare_new(plane, config, by=by)


def refuse_storage_without_segments(plane: ControlPlane, config: RegionConfig, was: str) -> None:
    """Refuse a new storage without segments that a table still has to take: it would wait for ever. `was`: the old configuration."""
    before, now = json.loads(was or "{}"), (config.storage, config.storage_options)
    if not before or (before.get("storage"), before.get("storage_options", {})) == now:
        return
    waits = plane.read(tables.first_that_waits)
    if waits is not None and not Storage.of(config).exists(waits[1].path):
        table, segment = waits
        uid = segment.path.partition("/")[0]
        raise Refused(
            f"Table {table.name} lacks checkpoint {segment.checkpoint}, whose segments lie in {redact(str(before.get('storage')))}: "
            f"{redact(config.storage)} has none of them.",
            hint=f"Copy the folder {uid} and owner-{uid}.json from there, or leave `storage` as it was until the table has all.",
        )


def _of_template(config: RegionConfig, row: Table) -> Iterator[TableConfig]:
    if (template := config.template_of(row.shape)) is not None and row.output:
        yield of_value(template, row.output.removeprefix(OF_VALUE))
    if topic := topic_of(row.shape):
        yield from (table for section in config.of_topic(topic) for table in section.own)


def _in_words(keys: tuple[str, ...]) -> str:
    return ", ".join(keys) or "record"
