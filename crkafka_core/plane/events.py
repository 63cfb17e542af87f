"""Events and alarms of a region, for people: what happened, to whom, who asked, and why (SPEC X8, R6, G8)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from crkafka_core.control import Reader, Tx
from crkafka_core.model.redaction import redact_values
from crkafka_core.model.rows import Alarm, Event, Region


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
    evidence = redact_values(json.dumps(data, ensure_ascii=False, default=str)) if data else "{}"
    event = Event(
        region.name, region.next_event, tx.now(), kind, region.epoch, checkpoint, member, by, kept(text), evidence
    )
    tx.add(event)
    tx.set_region(next_event=region.next_event + 1)


def kept(text: str) -> str:
    """A foreign text as every row may keep it: without secrets, valid UTF-8, and without zero bytes, which PostgreSQL refuses."""
    return redact_values(text.replace("\0", "�").encode(errors="replace").decode())


def since(reader: Reader, seq: int, *, limit: int | None = None) -> list[Event]:
    """Events after `seq`, oldest first."""
    return reader.select(Event, ("seq", ">", seq), order=("seq",), limit=limit)


def after(reader: Reader, at: float) -> list[Event]:
    """Events of this time and later, oldest first."""
    return reader.select(Event, ("at", ">=", at), order=("seq",))


def last(reader: Reader, count: int) -> list[Event]:
    """The last `count` events, oldest first."""
    return reader.select(Event, order=("seq",), desc=True, limit=count)[::-1]


ASKED = "cut asked"
BAD = "bad records"
"""Kind of the event that counts the records of a commit that could not be decoded."""
FENCED = "table fence"
"""That a table, which its data name, has followed a rewind to the event's checkpoint."""
SCHEMA = "table schema"
"""That the newest version of a table's schema is not the one by which its records are read, and why; or that it is again."""
UNDECLARED = "table undeclared"
"""That a table, which its text names, is let go."""


def asked_at(reader: Reader) -> float:
    """Time at which a member last asked for a cut, by the events that are kept, else 0; for people."""
    asked = reader.select(Event, ("kind", "=", ASKED), order=("seq",), desc=True, limit=1)
    return asked[0].at if asked else 0.0


def bad_records(reader: Reader) -> dict[str, int]:
    """Table → records that could not be decoded when they first came in, since the table was declared; for people. What left the table does
    not count: it comes in again. A rewind takes it from every table, a fence from a table by key, which may go back further than the
    region, and a table that was undeclared starts empty."""
    bad: dict[str, int] = {}
    back = [(e.seq, e.checkpoint, "") for e in reader.select(Event, ("kind", "=", "rewind"))]
    back += [
        (e.seq, e.checkpoint, json.loads(e.data_json)["table"]) for e in reader.select(Event, ("kind", "=", FENCED))
    ]
    back += [(e.seq, 0, e.text) for e in reader.select(Event, ("kind", "=", UNDECLARED))]
    for event in reader.select(Event, ("kind", "=", BAD)):
        data = json.loads(event.data_json)
        if not data["new"]:
            continue
        table = data["table"]
        upto = min((to for seq, to, whose in back if seq > event.seq and whose in ("", table)), default=None)
        # An older crkafka counted the whole commit, for its first checkpoint.
        counts = data.get("of") or {data.get("first", event.checkpoint): data["bad"]}
        stays = sum(count for checkpoint, count in counts.items() if upto is None or int(checkpoint) <= upto)
        if stays:
            bad[table] = bad.get(table, 0) + stays
    return bad


def bad_after(reader: Reader, table: str, checkpoint: int) -> int:
    """Records of later checkpoints that could not be decoded when they first came into the table."""
    later = reader.select(Event, ("kind", "=", BAD), ("checkpoint", ">", checkpoint))
    written = (json.loads(event.data_json) for event in later)
    return sum(int(each["bad"]) for each in written if each["new"] and each["table"] == table)


def schema_alarm(reader: Reader, table: str) -> str:
    """Why the newest version of the table's schema is not used; empty where it is, by the events that are kept."""
    rows = reader.select(Event, ("kind", "=", SCHEMA), order=("seq",), desc=True)
    return next((data["alarm"] for row in rows if (data := json.loads(row.data_json))["table"] == table), "")


def tell_schema(tx: Tx, table: str, alarm: str) -> None:
    if schema_alarm(tx, table) != kept(alarm):
        text = alarm or f"{table}: the newest version of its schema is used again"
        log(tx, SCHEMA, text, data={"table": table, "alarm": kept(alarm)})


def drop_old(tx: Tx, keep: int) -> None:
    tx.delete(Event, ("seq", "<", tx.region().next_event - keep))


UNSETTLED, STRANGERS, NO_MERGE, NO_LAST_CUT = "unsettled", "foreign members", "no merge", "no last cut"
"""Kinds of alarms; the first two are raised once in an epoch at most, the others once until the next merge."""


def raise_alarm(tx: Tx, kind: str, text: str, *, by: str = "") -> None:
    """Once, with an event for people."""
    region = tx.region()
    if raised(tx, region, kind) is None:
        tx.put(Alarm(region.name, kind, region.epoch, tx.now(), kept(text)))
        log(tx, kind, text, by=by)


def raised(reader: Reader, region: Region, kind: str) -> Alarm | None:
    """The alarm of this kind that still holds: since the last completed cut if it is about merges, else of the current epoch."""
    row = reader.get(Alarm, kind)
    if row is None:
        return None
    holds = row.at > region.last_cut_at if kind in (NO_MERGE, NO_LAST_CUT) else row.epoch == region.epoch
    return row if holds else None
