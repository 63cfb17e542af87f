"""What needs a person's attention: a stop, no host, no merge, an unsettled group, a silent partition, a late table (SPEC G8, X8, K6)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace

from crkafka_core.control import Cond, Reader, Tx
from crkafka_core.model import limits
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase, Wanted
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Alarm, Region, Reset, ResetCause
from crkafka_core.plane import cuts, events, hosts, lateness, roster, settling, starts
from crkafka_core.plane.events import NO_LAST_CUT, NO_MERGE, STRANGERS, UNSETTLED, raise_alarm, raised

PERIODS = 3
"""Periods of the trigger without a merge after which an alarm is raised (SPEC X6)."""
AT_LEAST = 60.0
"""Least seconds without a merge, however short the period is: a start or a rewind takes moments. The view v_regions reads both."""
KEYS_MOVE = 3_600.0
"""Seconds for which it is an alarm that keys may have moved to new partitions; the event `partitions found` stays."""
_NAMED = 3


def overdue(reader: Reader, region: Region) -> bool:
    """Whether the region has been coming to rest for longer than `settle_timeout`."""
    resting = region.phase in (Phase.BIRTH, Phase.RESETTING)
    return resting and reader.now() - region.reset_at > limits.of(region).settle_timeout


def unsettled(tx: Tx) -> None:
    if text := _unsettled_now(tx, tx.region()):
        raise_alarm(tx, UNSETTLED, text)


def _unsettled_now(reader: Reader, region: Region) -> str:
    """What keeps the group from being settled now, if it should be settled by now."""
    if not overdue(reader, region) or not (missing := settling.unsettled(reader, region)):
        return ""
    text = f"not settled for {reader.now() - region.reset_at:.0f} s: {missing}"
    return "; ".join(filter(None, (text, settling.held_up(reader))))


def no_merge(reader: Reader, region: Region) -> str:
    """Why no cut was merged for three periods of the trigger (a minute at least); empty when all is well (SPEC X6). A start, or a rewind
    that a person asked for, restarts the wait; the table that such a rewind waits for is an alarm of `lateness`."""
    if region.wanted is Wanted.STOP or region.phase in (Phase.IDLE, Phase.STOPPED):
        return ""
    if not region.period:
        return _no_merge_by_count(reader, region)
    now, allowed = reader.now(), max(PERIODS * region.period, AT_LEAST)
    if now - region.last_cut_at <= allowed:
        return ""
    started, latest = reader.get(Reset, region.started_epoch), reader.get(Reset, region.epoch)
    since = max(region.last_cut_at, started.at if started is not None else region.created_at)
    if latest is not None and latest.cause is ResetCause.PERSON:
        since = now if region.phase is Phase.REWINDING else max(since, region.reset_at)
    if now - since <= allowed:
        return ""
    what, why = "checkpoint", f"; it is {region.phase}"
    fits: list[Cond] = [("epoch", ">", region.proven_epoch), ("lacking", ">", 0)]
    if without := reader.select(Reset, *fits, order=("epoch",), desc=True, limit=1):  # a handover's (SPEC X10)
        what, why = "cut of all members", f"; cut {without[0].lacking} went without a member: {without[0].text}"
    elif region.phase is Phase.CUTTING:
        why += f": checkpoint {region.open_cut} is not complete"
    elif region.phase is Phase.RUNNING:
        why += ", and no cut is open: `crkafka show` has what a cut waits for; `crkafka host` or Dagster opens one"
    else:
        why += f": {region.reset_cause}"
    if waits := settling.held_up(reader):
        why += f"; {waits}"
    return f"no {what} was merged for {now - since:.0f} s, with a period of {region.period:g} s{why}"


def _no_merge_by_count(reader: Reader, region: Region) -> str:
    """Where cuts come by count: one that a member asked for, and waits for, is not opened; or resets back off again and again (SPEC V2)."""
    now, limit = reader.now(), limits.of(region)
    asked = events.asked_at(reader) if cuts.due_at(region, period=None, counted=True) is not None else 0.0
    if asked and now - asked > AT_LEAST:
        return (
            f"{region.asked_by} asked for a cut {now - asked:.0f} s ago, and submits nothing until then: `crkafka host` or Dagster "
            "should open it, and does not; `crkafka cut` opens one"
        )
    resets, ago = region.consecutive + region.failing, now - region.reset_at
    if resets < PERIODS or ago > limit.backoff_cap + limit.reset_timeout:
        return ""
    return f"{plural(resets, 'reset')} in a row without a completed cut, the last {ago:.0f} s ago: {region.reset_cause}"


def watch_merges(tx: Tx) -> None:
    if text := no_merge(tx, tx.region()):
        raise_alarm(tx, NO_MERGE, text)


def last_cut_missed(reader: Reader, region: Region) -> str:
    """Why the last stop came without its last cut; empty when all is well."""
    alarm = raised(reader, region, NO_LAST_CUT)
    return alarm.text if alarm is not None else ""


def is_foreign(uid: str, region: str, client_id: str) -> bool:
    """Whether a client of the group is not a member of the region with this uid, by the form of its id."""
    return not client_id.startswith(f"crkafka-{uid[:8]}-{region}/")


def client_id(uid: str, member: str, incarnation: str) -> str:
    """A member's id in Kafka; unique (SPEC U1). It contains the uid, since two control planes may have a region of one name (SPEC G1)."""
    return f"crkafka-{uid[:8]}-{member}-{incarnation}"


def strangers(tx: Tx, client_ids: Collection[str], *, by: str) -> None:
    """Raise the alarm for foreign members of the group, which hold partitions that this region waits for; drop it without any (SPEC G8)."""
    region = tx.region()
    if not client_ids:
        tx.delete(Alarm, ("kind", "=", STRANGERS))
    elif overdue(tx, region):
        names = ", ".join(sorted(client_ids))
        text = f"group {region.group_id} has members that are not of this region: {names}"
        standing = raised(tx, region, STRANGERS)
        if standing is not None and standing.text != text:
            tx.put(replace(standing, text=events.kept(text)))
        raise_alarm(tx, STRANGERS, text, by=by)


def _silent(silent: Mapping[str, float], why: Mapping[str, str], count: int) -> str:
    """Partitions that give no records, each with its reason if it is known."""
    named = [
        f"{tp} has given nothing for {seconds:.0f} s: {why.get(tp) or 'Kafka has records behind where it stands'}"
        for tp, seconds in sorted(silent.items())[:_NAMED]
    ]
    return "; ".join(named) + (f"; and {count - len(named)} more" if count > len(named) else "")


def stalled(tx: Tx, silent: Mapping[TP, float], why: Mapping[TP, str], *, by: str) -> None:
    """Log partitions that give no records, with the seconds of each, though Kafka has more to read."""
    text = _silent({str(tp): s for tp, s in silent.items()}, {str(tp): w for tp, w in why.items()}, len(silent))
    events.log(tx, "stalled", text, by=by)


def _keys_moved(reader: Reader, region: Region) -> str:
    """Topics that were given partitions lately, behind a table that has one row for each key. An older record of a key may still come out
    of its old partition after a newer one of the new."""
    tables = [t for t in json.loads(region.config_json or "{}").get("tables", ()) if t.get("mode") == "upsert"]
    if not tables:
        return ""
    known = list(starts.known(reader).values())
    begun: dict[str, float] = {}
    for i in known:
        begun[i.topic] = min(i.at, begun.get(i.topic, i.at))
    new = [i for i in known if begun[i.topic] + AT_LEAST < i.at and reader.now() < i.at + KEYS_MOVE]
    moved = {
        topic: [t["name"] for t in tables if topic in t.get("topics", [topic])] for topic in {i.topic for i in new}
    }
    return "; ".join(
        f"topic {topic} was given partitions: where a key came into another one, table {', '.join(names)} may keep its older record "
        "(docs/cdc.md, Adding partitions)"
        for topic, names in sorted(moved.items())
        if names
    )


def current(reader: Reader, region: Region) -> str:
    """What is wrong now, in words; empty when nothing is."""
    if region.phase is Phase.STOPPED:
        return f"stopped: {region.stop_reason}"
    silences = []
    for m in roster.live(reader) if region.phase is Phase.RUNNING else ():
        metrics = m.metrics
        if silent := metrics.get("stalled"):
            count = metrics.get("nStalled", len(silent))
            silences.append(f"{m.name}: {_silent(silent, metrics.get('stalledBecause') or {}, count)}")
    alarms = [
        last_cut_missed(reader, region),
        hosts.missing(reader, region),
        no_merge(reader, region),
        *silences,
        *lateness.late(reader, region),
        _keys_moved(reader, region),
    ]
    if overdue(reader, region):
        strangers_now = raised(reader, region, STRANGERS)
        alarms += [_unsettled_now(reader, region), strangers_now.text if strangers_now is not None else ""]
    return "; ".join(filter(None, alarms))
