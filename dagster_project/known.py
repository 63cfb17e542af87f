"""Topics and tables of a region when its definitions load: of the configuration, and of patterns and templates so far (SPEC A4, K6)."""

from __future__ import annotations

from dataclasses import dataclass

from crkafka_core.config import RegionConfig
from crkafka_core.config.sections import TableConfig
from crkafka_core.control import Reader
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.plane import starts, templates
from dagster_project.names import RESERVED, Names
from dagster_project.resources import RegionResource

LIMIT = 200
"""Tables of templates that have definitions, at most: each delays the start of every run by some 5 ms."""


@dataclass(frozen=True)
class Known:
    """What has a definition; the rest has one once the code location is loaded again."""

    topics: tuple[str, ...]
    tables: tuple[TableConfig, ...]


def known(region: RegionResource, names: Names) -> Known:
    """Asks the control plane only where the configuration has a pattern or a template; without an answer, what the configuration names."""
    config = region.settings
    declared = Known(config.topics or (), config.tables)
    if config.topics and not config.templates:
        return declared
    try:
        topics, made = region.read(lambda reader, _: _look(reader, config))
    except CrkafkaError:  # not made yet, or away: runs and sensors say so
        return declared
    taken = {names.table(t.name) for t in config.tables}
    new = [t for t in made if t.name not in RESERVED and names.table(t.name) not in taken]
    return Known(topics, (*config.tables, *new[:LIMIT]))


def _look(reader: Reader, config: RegionConfig) -> tuple[tuple[str, ...], list[TableConfig]]:
    topics = config.topics or tuple(sorted({tp.topic for tp in starts.known(reader)}))
    tables = [config.table(table.name, table.shape, table.output) for table in templates.of_topics(reader)]
    return topics, [table for table in tables if table is not None]
