"""What a person wants to see of a checkpoint, as Dagster metadata: numbers become plots (SPEC A4)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from crkafka_core.control import Reader
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Region
from crkafka_core.plane.checkpoints import offsets as merged_offsets
from dagster_project.names import CHECKPOINT, TRIGGER
from dagster_project.run_identity import run_of

SHOWN = 64
"""Partitions of a checkpoint that its table of offsets shows; every value is JSON in the event log."""

ROWS = "dagster/partition_row_count"
"""Dagster shows it with the partition; `dagster/row_count` would be taken for the whole asset's."""


def rows_metadata(rows: int | None) -> dict[str, int]:
    """How many rows a table has of a checkpoint, if that is known."""
    return {} if rows is None else {"rows": rows, ROWS: rows}


Range = tuple[str, int, int, int, int]
"""topic, partition, from, to, rows"""


def ranges(reader: Reader, region: Region, checkpoints: Sequence[Checkpoint]) -> dict[int, list[Range]]:
    """What each checkpoint added to each partition, from its merge or from its archive."""
    by_checkpoint: dict[int, list[Range]] = {c.id: [] for c in checkpoints}
    merged = [c.id for c in checkpoints if c.status is CheckpointStatus.MERGED]
    if merged:
        for row in merged_offsets(reader, min(merged), max(merged)):
            if row.checkpoint in by_checkpoint:
                by_checkpoint[row.checkpoint].append(
                    (row.topic, row.partition, row.from_offset, row.to_offset, row.rows)
                )
    for checkpoint in checkpoints:
        if checkpoint.status is CheckpointStatus.RETIRED:
            for topic, parts in json.loads(checkpoint.archive_json).items():
                by_checkpoint[checkpoint.id] += [
                    (topic, int(p), start, stop, rows) for p, (start, stop, rows, *_) in parts.items()
                ]
    return by_checkpoint


def of_checkpoint(checkpoint: Checkpoint, parent: Checkpoint | None, spans: Sequence[Range]) -> dict[str, Any]:
    """Metadata of one checkpoint's partition."""
    shown = sorted(spans)[:SHOWN]
    metadata: dict[str, Any] = {
        ROWS: checkpoint.rows,
        "rows": checkpoint.rows,
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
        "offsets": table(shown),
    }
    if checkpoint.without:
        metadata["without"] = ", ".join(checkpoint.without)
    if run := run_of(checkpoint.token):
        metadata["cut_by"] = dg.MetadataValue.dagster_run(run)
    elif checkpoint.token.startswith(TRIGGER):  # its run starts while it is published, or later
        metadata["cut_by"] = f"{TRIGGER}; its run has the tag {CHECKPOINT}: {checkpoint.id}"
    if len(spans) > len(shown):
        metadata["partitions_not_shown"] = len(spans) - len(shown)
    return metadata


def table(spans: Sequence[Range]) -> dg.TableMetadataValue:
    """Offset ranges, half-open, as a table."""
    columns = [("topic", "string"), ("partition", "int"), ("from", "int"), ("to", "int"), ("rows", "int")]
    return dg.MetadataValue.table(
        [dg.TableRecord(dict(zip((c for c, _ in columns), span, strict=True))) for span in spans],
        schema=dg.TableSchema([dg.TableColumn(name, kind) for name, kind in columns]),
    )


def total(metrics: Sequence[Mapping[str, Any]], name: str) -> int | None:
    """The sum of a number that members report; None when nobody does."""
    values = [m[name] for m in metrics if isinstance(m.get(name), int | float)]
    return round(sum(values)) if values else None
