"""The event log of a region: what happened, to whom, who asked, and why (SPEC X8, R6)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from crkafka_core.control import Reader, Tx
from crkafka_core.model.rows import Event


def log(
    tx: Tx,
    kind: str,
    text: str = "",
    *,
    member: str = "",
    by: str = "",
    checkpoint: int = 0,
    data: Mapping[str, Any] | None = None,
) -> None:
    """Append an event of the region's current epoch."""
    region = tx.region()
    tx.add(
        Event(
            region=region.name, seq=region.next_event, at=tx.now(), kind=kind, epoch=region.epoch, checkpoint=checkpoint,
            member=member, by=by, text=text.replace("\0", "�"),
            data_json=json.dumps(data, ensure_ascii=False, default=str) if data else "{}",
        )
    )  # fmt: skip
    tx.set_region(next_event=region.next_event + 1)


def since(reader: Reader, region: str, seq: int, *, limit: int | None = None) -> list[Event]:
    """Events after `seq`, oldest first."""
    return reader.select(Event, ("region", "=", region), ("seq", ">", seq), order=("seq",), limit=limit)


def last(reader: Reader, region: str, count: int) -> list[Event]:
    """The last `count` events, oldest first."""
    return reader.select(Event, ("region", "=", region), order=("seq",), desc=True, limit=count)[::-1]
