"""Alarms that were raised: each is told once, and stands for as long as its cause may (SPEC G8, X6)."""

from __future__ import annotations

from crkafka_core.control import Reader, Tx
from crkafka_core.model.rows import Alarm, Region
from crkafka_core.plane import events

UNSETTLED, STRANGERS, NO_MERGE, NO_LAST_CUT = "unsettled", "foreign members", "no merge", "no last cut"
"""Kinds of alarms; the first two come once in an epoch at most, the others once until the next merge."""


def raise_alarm(tx: Tx, kind: str, text: str, *, by: str = "") -> None:
    """Once, with an event for people."""
    region = tx.region()
    if raised(tx, region, kind) is None:
        tx.put(Alarm(region.name, kind, region.epoch, tx.now(), events.kept(text)))
        events.log(tx, kind, text, by=by)


def raised(reader: Reader, region: Region, kind: str) -> Alarm | None:
    """The alarm of this kind that still holds: since the last completed cut if it is about merges, else of the current epoch."""
    row = reader.get(Alarm, kind)
    if row is None:
        return None
    holds = row.at > region.last_cut_at if kind in (NO_MERGE, NO_LAST_CUT) else row.epoch == region.epoch
    return row if holds else None


def no_last_cut(tx: Tx, why: str) -> None:
    """The region was stopped, and the last cut that a stop promises did not come about (SPEC G9)."""
    raise_alarm(
        tx, NO_LAST_CUT, f"stopped without a last cut, what was not merged is read again at the next start: {why}"
    )
