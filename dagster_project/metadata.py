"""What a person wants to see of a checkpoint or a table, as Dagster metadata: numbers become plots (SPEC A4)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg

from crkafka_core.config.shapes import topic_of
from crkafka_core.control import Reader
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Table
from crkafka_core.plane import checkpoints, tables
from dagster_project.names import CHECKPOINT, TRIGGER, key_of
from dagster_project.run_identity import run_of

SHOWN = 64
"""Partitions of a checkpoint that its table of offsets shows; every value is JSON in the event log."""

OFFSETS = {"topic": "string", "partition": "int", "from": "int", "to": "int", "rows": "int"}
"""Columns of the table of offset ranges, which are half-open."""

ROWS, ALL_ROWS = "dagster/partition_row_count", "dagster/row_count"
"""Rows of a partition, and of the whole asset."""


def rows_metadata(rows: int | None) -> dict[str, int]:
    """How many rows a table has of a checkpoint, if that is known."""
    return {} if rows is None else {ROWS: rows}


Range = tuple[str, int, int, int, int]
"""topic, partition, from, to, rows"""


def ranges(reader: Reader, of: Sequence[Checkpoint]) -> dict[int, list[Range]]:
    """What each checkpoint added to each partition, from its merge or from its archive."""
    by_checkpoint: dict[int, list[Range]] = {c.id: [] for c in of}
    merged = [c.id for c in of if c.status is CheckpointStatus.MERGED]
    if merged:
        for row in checkpoints.offsets(reader, min(merged), max(merged)):
            if row.checkpoint in by_checkpoint:
                by_checkpoint[row.checkpoint].append(
                    (row.topic, row.partition, row.from_offset, row.to_offset, row.rows)
                )
    for checkpoint in of:
        if checkpoint.status is CheckpointStatus.RETIRED:
            for topic, parts in json.loads(checkpoint.archive_json).items():
                by_checkpoint[checkpoint.id] += [
                    (topic, int(p), start, stop, rows) for p, (start, stop, rows, *_) in parts.items()
                ]
    return by_checkpoint


def landed(reader: Reader, records: dg.AssetKey, ids: Sequence[int]) -> list[dg.AssetMaterialization]:
    """Materializations of the records: their segments are there, the merge has published them (SPEC C7)."""
    if not ids:
        return []
    merged = checkpoints.within(reader, ids)
    spans = ranges(reader, merged)
    parents = {c.id: c for c in checkpoints.within(reader, {c.parent for c in merged})}
    return [
        dg.AssetMaterialization(
            asset_key=records, partition=key_of(c.id), metadata=of_checkpoint(c, parents.get(c.parent), spans[c.id])
        )
        for c in merged
    ]


def of_checkpoint(checkpoint: Checkpoint, parent: Checkpoint | None, spans: Sequence[Range]) -> dict[str, Any]:
    """Metadata of one checkpoint's partition."""
    shown = sorted(spans)[:SHOWN]
    metadata: dict[str, Any] = {
        ROWS: checkpoint.rows,
        "bytes": checkpoint.bytes,
        "segments": checkpoint.segments,
        "members": checkpoint.members,
        "drain_ms": checkpoint.drain_ms,
        "cut_ms": round((checkpoint.merged_at - checkpoint.opened_at) * 1000),
        "resets": checkpoint.epoch - (parent.epoch if parent else 1),
        "epoch": checkpoint.epoch,
        "parent": checkpoint.parent,
        "cause": checkpoint.cause or "by hand",
        "merged_at": dg.MetadataValue.timestamp(checkpoint.merged_at),
        "offsets": table(shown, **OFFSETS),
    }
    if checkpoint.without:
        metadata["without"] = ", ".join(checkpoint.without)
    if run := run_of(checkpoint.token):
        metadata["cut_by"] = dg.MetadataValue.dagster_run(run)
    elif checkpoint.token.startswith(TRIGGER):  # a run that follows it starts while it is published, or later
        metadata["cut_by"] = (
            f"{TRIGGER}; a run that follows the cut, if there is one, has the tag {CHECKPOINT}: {checkpoint.id}"
        )
    if len(spans) > len(shown):
        metadata["partitions_not_shown"] = len(spans) - len(shown)
    return metadata


def table(rows: Iterable[Sequence[Any]], /, **columns: str) -> dg.TableMetadataValue:
    """Rows as a table; `columns`: the type of each, by name."""
    return dg.MetadataValue.table(
        [dg.TableRecord(dict(zip(columns, row, strict=True))) for row in rows],
        schema=dg.TableSchema([dg.TableColumn(name, kind) for name, kind in columns.items()]),
    )


def total(metrics: Sequence[Mapping[str, Any]], name: str) -> int | None:
    """The sum of a number that members report; None when none does."""
    values = [m[name] for m in metrics if isinstance(m.get(name), int | float)]
    return round(sum(values)) if values else None


UNKNOWN = -1
Counted = tuple[int, int, int]
"""Of a table, kept by a sensor's cursor, since a history is long: the epoch of its last rewind, up to which checkpoint it is counted, and
how many rows that is, or UNKNOWN."""


def count(reader: Reader, table: Table, known: Counted | None) -> Counted:
    """The rows of all checkpoints that a table has: of those that it had got when they were counted last, and of the new ones.

    Unknown where a commit has not counted the rows of each of its checkpoints, or where it or these are not kept any more.
    """
    rewound, upto, rows = known or (0, 0, 0)
    if rewound != table.rewind_epoch or upto > table.acknowledged:
        upto = rows = 0
    new = _with_rows(reader, table, checkpoints.filled(reader, above=upto, upto=table.acknowledged))
    known_rows = tables.rows_in(reader, table, new)
    known_all = len(known_rows) == len(new) and (upto > 0 or not checkpoints.known_since(reader))
    rows = rows + sum(known_rows.values()) if known_all and rows != UNKNOWN else UNKNOWN
    return table.rewind_epoch, table.acknowledged, rows


def _with_rows(reader: Reader, table: Table, ids: Sequence[int]) -> Sequence[int]:
    """Without checkpoints that have no record of the topic, of a table that a template has given one."""
    topic = topic_of(table.shape)
    offsets = checkpoints.offsets(reader, ids[0], ids[-1]) if topic and ids else []
    quiet = {o.checkpoint for o in offsets} - {o.checkpoint for o in offsets if o.topic == topic}
    return [i for i in ids if i not in quiet]


def how_far(reader: Reader, table: Table, counted: Counted, *, keyed: bool) -> dict[str, int | str]:
    """What a table's page shows of all of it, beside the numbers of the partition that was materialized last. `keyed`: it has one row
    for each key, so that the rows it has got are not those that it holds."""
    about: dict[str, int | str] = {
        "checkpoints_behind": checkpoints.count_filled(reader, above=table.acknowledged),
        "version": table.version or "none",
    }
    if counted[2] != UNKNOWN and not keyed:
        about[ALL_ROWS] = counted[2]
    return about
