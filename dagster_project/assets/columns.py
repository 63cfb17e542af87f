"""The columns of topics and tables, and which column each comes from, as a catalogue shows them (SPEC A4)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import dagster as dg

from crkafka_core.config import RegionConfig
from crkafka_core.config.json_columns import PREFIX
from crkafka_core.config.sections import TableConfig
from crkafka_core.config.shapes import GOOD
from crkafka_core.model.errors import CrkafkaError
from dagster_project.names import BY_PATTERN, Names


def of_topic() -> dict[str, Any]:
    """Metadata of a topic: what Kafka knows of each record."""
    from crkafka_core.segments.batch import SCHEMA

    return {"dagster/column_schema": _schema(SCHEMA)}


def of_table(table: TableConfig, config: RegionConfig, names: Names) -> dict[str, Any]:
    """Metadata of a table whose columns are known without asking anybody: not of a registry's schema, nor of a program's shape."""
    columns = _columns(table, config)
    if columns is None:
        return {}
    topics = [names.topic(topic) for topic in table.topics or config.topics or (BY_PATTERN,)]
    lineage = {field.name: _from(field.name, topics) for field in columns}
    return {"dagster/column_schema": _schema(columns), "dagster/column_lineage": dg.TableColumnLineage(lineage)}


def _columns(table: TableConfig, config: RegionConfig) -> Any:
    from crkafka_core.decode.typed import Typing, of_file
    from crkafka_core.segments.batch import SCHEMA

    if table.shape is None:
        return SCHEMA
    if table.typed is None or table.typed.registered:
        return None
    with contextlib.suppress(OSError, CrkafkaError):  # the table's own check tells
        decoder, kind = of_file(table.typed, table.name)
        return Typing(decoder, kind, "dead_letter", keyed=bool(table.keys)).schemas()[GOOD]
    return None


def _from(column: str, topics: Sequence[dg.AssetKey]) -> list[dg.TableColumnDep]:
    """Kafka's own columns come from those of the topic, what was decoded from the value."""
    from crkafka_core.segments.batch import SCHEMA

    own = column.removeprefix(PREFIX)
    return [dg.TableColumnDep(topic, own if own in SCHEMA.names else "value") for topic in topics]


def _schema(columns: Any) -> dg.TableSchema:
    return dg.TableSchema([dg.TableColumn(field.name, str(field.type)) for field in columns])
