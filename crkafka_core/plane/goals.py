"""Bounded runs: ends seen once at the start, and what members have reached of them (SPEC V3)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace

from crkafka_core.control import Reader, Tx
from crkafka_core.model.offsets import TP, pack, pack_offsets, unpack, unpack_offsets
from crkafka_core.model.rows import Goal
from crkafka_core.plane import events, members


def aim(tx: Tx, token: str, ends: Mapping[TP, int]) -> dict[TP, int]:
    """Store the ends once; the same token finds those stored first."""
    region = tx.region()
    row = tx.get(Goal, region.name, token)
    if row is None:
        row = Goal(region.name, token, pack_offsets(ends), at=tx.now())
        tx.delete(Goal, ("region", "=", region.name))
        tx.put(row)
        tx.set_region()
        events.log(
            tx,
            "goal",
            f"consume until caught up: {len(ends)} partitions",
            data={str(tp): o for tp, o in list(ends.items())[:50]},
        )
    return unpack_offsets(row.ends_json)


def reach(tx: Tx, token: str, *, member: str, incarnation: str, epoch: int, reached: Collection[TP]) -> None:
    """What a member has reached in this epoch of what it holds now; its word from another epoch is void."""
    region = tx.region()
    row = tx.get(Goal, region.name, token)
    if row is None or epoch != region.epoch:
        return
    members.of(tx, member, incarnation)
    said = json.loads(row.reached_json)
    said[member] = [incarnation, epoch, json.loads(pack(reached))]
    text = json.dumps(said, ensure_ascii=False, sort_keys=True)
    if text != row.reached_json:
        tx.put(replace(row, reached_json=text))
        tx.set_region()


def missing(reader: Reader, region: str, epoch: int, token: str) -> frozenset[TP]:
    """Partitions of the goal that nobody has reached in this epoch."""
    row = reader.get(Goal, region, token)
    if row is None:
        return frozenset()
    there: set[TP] = set()
    for _, at, tps in json.loads(row.reached_json).values():
        if at == epoch:
            there |= unpack(json.dumps(tps))
    return frozenset(unpack_offsets(row.ends_json).keys() - there)


def drop(tx: Tx, token: str) -> None:
    """The run is over."""
    if tx.delete(Goal, ("region", "=", tx.region().name), ("token", "=", token)):
        tx.set_region()


def current(reader: Reader, region: str) -> Goal | None:
    """The goal that members work towards."""
    found = reader.select(Goal, ("region", "=", region), limit=1)
    return found[0] if found else None
