"""By which version of its schema a typed table goes on: the newest that its columns can follow (SPEC K6)."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from crkafka_core.config.sections import TableConfig
from crkafka_core.config.shapes import GOOD
from crkafka_core.config.typed import RegistryConfig
from crkafka_core.decode import typed
from crkafka_core.decode.decoders import Decoder
from crkafka_core.decode.registry import Registry, Schema
from crkafka_core.decode.typed import Typing
from crkafka_core.lake.columns import followed
from crkafka_core.lake.transform import Transform, numbered
from crkafka_core.model.errors import ConfigError

_BACK = 20
"""Older versions that are looked at, at most."""
_PATIENCE = 2.0
"""Seconds of retries without an answer of the registry: the keeper tries again later, and other tables wait for this one's process."""


@dataclass(frozen=True)
class Chosen:
    """A transform, and the table's columns from the commit of its rows on."""

    transform: Transform
    columns: pa.Schema | None = None
    alarm: str = ""
    """The newest version is not the one that is used: why, naming both."""


def choose(table: TableConfig, registry: RegistryConfig | None, there: pa.Schema | None) -> Chosen:
    """`there`: the table's columns as they are; None: it has none yet. ConfigError where no version can be followed.

    Of a registry without a fixed version an older one is used where the newest would change a column's kind: what it does not read is
    a dead letter, and the alarm stays until a newer version fits.
    """
    how = table.typed
    assert how is not None
    if not how.registered:
        typing = _typing(table, *typed.of_file(how, table.name))
        return Chosen(typing, _columns(table, typing, there))
    assert registry is not None and how.subject is not None  # checked where the configuration is read
    asked = Registry(registry.url, registry.user, registry.headers, _PATIENCE)
    newest = asked.of_table(how)
    try:
        typing = _typing(table, *typed.of_schema(asked, how, newest))
        return Chosen(typing, _columns(table, typing, there))
    except ConfigError as error:
        if how.version is not None or there is None or not newest.version:
            raise
        why = error
    for number in range(newest.version - 1, max(0, newest.version - 1 - _BACK), -1):
        try:
            older: Schema = asked.version(how.subject, number, serialized=how.protobuf is not None)
            typing = _typing(table, *typed.of_schema(asked, how, older))
            columns = _columns(table, typing, there)
        except ConfigError:
            continue
        alarm = (
            f"Version {newest.version} of {how.subject} does not fit table {table.name}: {why.message} "
            f"Records are read by version {number}; what it does not read is a dead letter."
        )
        return Chosen(typing, columns, alarm)
    raise why


def _typing(table: TableConfig, decoder: Decoder, kind: pa.StructType) -> Typing:
    return Typing(decoder, kind, table.on_bad_record or "dead_letter", bool(table.keys))


def _columns(table: TableConfig, typing: Typing, there: pa.Schema | None) -> pa.Schema:
    wanted = numbered(typing.schemas()[GOOD])
    return wanted if there is None else followed(table.name, there, wanted)
