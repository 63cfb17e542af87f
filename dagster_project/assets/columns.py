"""The columns of topics and tables, and which column each comes from, as a catalogue shows them (SPEC A4)."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Any

import dagster as dg

from crkafka_core.config import RegionConfig
from crkafka_core.config.json_columns import PREFIX
from crkafka_core.config.sections import TableConfig
from crkafka_core.config.shapes import DEAD, GOOD, by_value, has_records, name_of
from crkafka_core.model.errors import CrkafkaError
from dagster_project.names import Names


def of_topic() -> dict[str, Any]:
    """Metadata of a topic: what Kafka knows of each record."""
    from crkafka_core.segments.batch import SCHEMA

    return {"dagster/column_schema": _schema(SCHEMA)}


def of_table(table: TableConfig, config: RegionConfig, names: Names, topics: Collection[str]) -> dict[str, Any]:
    """Metadata of a table whose columns are known without asking anybody: not of a registry's schema, nor of a program's shape.

    `topics`: those that have an asset; the asset of all topics stands for the others.
    """
    from crkafka_core.segments.batch import CHECKPOINT, SCHEMA

    columns = _columns(table)
    if columns is None:
        return {}
    of = [names.topic(t) if t in topics else names.topics for t in table.topics or config.topics or ("",)]
    prefix = PREFIX if table.typed else ""
    of_kafka = {prefix + name: name for name in SCHEMA.names}
    lineage = {
        name: [dg.TableColumnDep(topic, of_kafka.get(name, "value")) for topic in dict.fromkeys(of)]
        for name in columns.names
        if name != CHECKPOINT
    }
    return {"dagster/column_schema": _schema(columns), "dagster/column_lineage": dg.TableColumnLineage(lineage)}


def _columns(table: TableConfig) -> Any:
    """As its writer makes them."""
    from pyarrow import field, string

    from crkafka_core.decode.batch import REASON
    from crkafka_core.decode.typed import Typing, of_file
    from crkafka_core.lake.columns import RAW
    from crkafka_core.lake.transform import NULLABLE, numbered

    shape = table.shape or ""
    if not shape:
        return RAW
    if has_records(shape) or by_value(shape):
        return numbered(NULLABLE)
    if name_of(shape) and table.output == DEAD:
        return numbered(NULLABLE.append(field(REASON, string())))
    if table.typed is None or table.typed.registered:
        return None
    with contextlib.suppress(OSError, CrkafkaError):  # the table's own check tells
        decoder, kind = of_file(table.typed, table.name)
        return numbered(Typing(decoder, kind, "dead_letter", keyed=bool(table.keys)).schemas()[GOOD])
    return None


def _schema(columns: Any) -> dg.TableSchema:
    return dg.TableSchema([dg.TableColumn(field.name, str(field.type)) for field in columns])
