"""Bounded runs: ends seen once at the start, and what members have reached of them (SPEC V3)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace

from crkafka_core.control import Reader, Tx
from crkafka_core.model.errors import Refused
from crkafka_core.model.offsets import TP, pack, pack_offsets, unpack, unpack_offsets
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Goal
from crkafka_core.plane import events, roster

MOST = 20
"""Goals that are kept; the goal of a killed run is dropped only by newer ones."""


def aim(tx: Tx, token: str, ends: Mapping[TP, int]) -> dict[TP, int]:
    """Store the ends once; the same token finds those stored first. Runs do not disturb each other: each has ends of its own."""
    region = tx.region()
    row = tx.get(Goal, token)
    if row is None:
        row = Goal(region.name, token, pack_offsets(ends), at=tx.now())
        for old in sorted(current(tx), key=lambda goal: goal.at)[: -MOST + 1 or None]:
            drop(tx, old.token)
        tx.put(row)
        evidence = {str(tp): o for tp, o in list(ends.items())[:50]}
        events.log(tx, "goal", f"consume until caught up: {plural(len(ends), 'partition')}", data=evidence)
    return unpack_offsets(row.ends_json)


def reach(
    tx: Tx, token: str, begun: float, *, member: str, incarnation: str, epoch: int, reached: Collection[TP]
) -> None:
    """Store which ends a member has reached in this epoch; a report of another epoch, or of an earlier run, is void."""
    region = tx.region()
    row = tx.get(Goal, token)
    if row is None or row.at != begun or epoch != region.epoch:
        return
    roster.of(tx, member, incarnation)
    reports = json.loads(row.reached_json)
    reports[member] = [incarnation, epoch, json.loads(pack(reached))]
    text = json.dumps(reports, ensure_ascii=False, sort_keys=True)
    if text != row.reached_json:
        tx.put(replace(row, reached_json=text))
        tx.set_region()


def missing(reader: Reader, epoch: int, token: str) -> frozenset[TP]:
    """Partitions of the goal that no live member has reached in this epoch. A goal that is gone was not reached. What a member had that was
    started again since is read again from the head, and not reached yet."""
    row = reader.get(Goal, token)
    if row is None:
        why = f"The bounded run {token} of region {reader.region().name} is not known any more"
        raise Refused(f"{why}: more than {MOST} were begun after it.", hint="Begin it again.")
    reached = [reached_by(row, m.name, m.incarnation, epoch) for m in roster.live(reader)]
    return frozenset(unpack_offsets(row.ends_json).keys() - frozenset().union(*reached))


def reached_by(row: Goal, member: str, incarnation: str, epoch: int) -> frozenset[TP]:
    """Partitions whose ends a member has reported as reached, as this incarnation and in this epoch."""
    who, at, tps = json.loads(row.reached_json).get(member, ("", 0, {}))
    return unpack(json.dumps(tps)) if (who, at) == (incarnation, epoch) else frozenset()


def leave_out(tx: Tx, topic: str) -> None:
    """Drop the ends of a forgotten topic, also for a later topic of its name."""
    for goal in current(tx):
        ends = unpack_offsets(goal.ends_json)
        kept = {tp: end for tp, end in ends.items() if tp.topic != topic}
        if len(kept) < len(ends):
            tx.put(replace(goal, ends_json=pack_offsets(kept)))


def drop(tx: Tx, token: str) -> None:
    if tx.delete(Goal, ("token", "=", token)):
        tx.set_region()


def current(reader: Reader) -> list[Goal]:
    return reader.select(Goal)
