"""The event log of a region: what happened, to whom, who asked, and why (SPEC X8, R6)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from crkafka_core.control import Reader, Tx
from crkafka_core.model.redaction import redact_values
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
            region=region.name,
            seq=region.next_event,
            at=tx.now(),
            kind=kind,
            epoch=region.epoch,
            checkpoint=checkpoint,
            member=member,
            by=by,
            text=kept(text),
            data_json=redact_values(json.dumps(data, ensure_ascii=False, default=str)) if data else "{}",
        )
    )
    tx.set_region(next_event=region.next_event + 1)


def kept(text: str) -> str:
    """What somebody says, as every row may keep it: errors quote what they were given, a name of a file may be no UTF-8, and PostgreSQL
    takes no zero byte."""
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
"""That a member has submitted its count."""
BAD = "bad records"
"""Kind of the event that counts the records of a commit that could not be decoded."""
FENCED = "table fence"
"""That a table, which its data name, has followed a rewind to the event's checkpoint."""
SCHEMA = "table schema"
"""That the newest version of a table's schema is not the one by which its records are read, and why; or that it is again."""
UNDECLARED = "table undeclared"
"""That a table, which its text names, is let go."""


def asked_at(reader: Reader) -> float:
    """When a member last asked for a cut, as far as it is told any more, else 0; for people."""
    asked = reader.select(Event, ("kind", "=", ASKED), order=("seq",), desc=True, limit=1)
    return asked[0].at if asked else 0.0


def bad_records(reader: Reader) -> dict[str, int]:
    """Table → records that could not be decoded when they first came in, since the table was declared; for people.

    What left the table does not count: it comes in again. A rewind takes it from every table, a fence from a table by key, which may
    go back further than the region, and a table that was undeclared begins anew.
    """
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
        upto = min((to for seq, to, of in back if seq > event.seq and of in ("", table)), default=None)
        # An older crkafka told of the commit as a whole, and of the first checkpoint of it.
        counts = data.get("of") or {data.get("first", event.checkpoint): data["bad"]}
        stays = sum(count for checkpoint, count in counts.items() if upto is None or int(checkpoint) <= upto)
        if stays:
            bad[table] = bad.get(table, 0) + stays
    return bad


def bad_after(reader: Reader, table: str, checkpoint: int) -> int:
    """Records of later checkpoints that could not be decoded when they first came into the table."""
    later = reader.select(Event, ("kind", "=", BAD), ("checkpoint", ">", checkpoint))
    written = [json.loads(event.data_json) for event in later]
    return sum(int(each["bad"]) for each in written if each["new"] and each["table"] == table)


def schema_alarm(reader: Reader, table: str) -> str:
    """Why the newest version of the table's schema is not used; empty where it is, as far as that is told any more."""
    rows = reader.select(Event, ("kind", "=", SCHEMA), order=("seq",), desc=True)
    return next((data["alarm"] for row in rows if (data := json.loads(row.data_json))["table"] == table), "")


def tell_schema(tx: Tx, table: str, alarm: str) -> None:
    """Tell a change of that."""
    if schema_alarm(tx, table) != kept(alarm):
        text = alarm or f"{table}: the newest version of its schema is used again"
        log(tx, SCHEMA, text, data={"table": table, "alarm": kept(alarm)})


def drop_old(tx: Tx, keep: int) -> None:
    """Delete all but the last `keep` events."""
    region = tx.region()
    tx.delete(Event, ("seq", "<", region.next_event - keep))
