"""How far declared tables are behind, and which of them need attention; what was merged since an earlier look (SPEC K6, X8)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from crkafka_core.config.shapes import UNPLACED, by_value, has_records, topic_of
from crkafka_core.control import Cond, Reader
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Checkpoint, Region, Table, TableCommit
from crkafka_core.plane import checkpoints, events, tables

LATE = 120.0
"""Seconds that the oldest checkpoint may wait for a table, or the region for a table's fence. The view v_tables has the same number."""
BAD_SHARE, BAD_LEAST, RECENT = 0.1, 10, 20
"""Share, and least number, of bad records among the latest `RECENT` commits that is an alarm."""


@dataclass(frozen=True)
class TableLag:
    """One declared table: what it has, what waits for it, and who writes it."""

    table: Table
    waiting: int
    seconds: float
    """How long the first of them has waited."""
    writer: str
    """Its writer at this moment; empty without one."""
    feeder: str
    """The feeder, which brings in each checkpoint as soon as it is merged; empty without one."""
    owes_fence: bool
    unfenced: float = 0.0
    """Seconds for which the region has waited for that fence."""
    failing: float = 0.0
    """Seconds since the first failure among the commits of what waits; 0 if none has failed."""
    bad: int = 0
    """Records that could not be decoded, of a typed table: dead letters, or skipped."""
    recent: int = 0
    recent_bad: int = 0
    schema: str = ""
    """Why its records are not read by the newest version of its schema."""
    idle: bool = False
    """The region is not wanted to run: what waits is not late."""
    left: bool = False
    """`kept_fresh: false`: the program that writes it, or Dagster, decides how fresh it is. The view v_tables asks the same."""

    @property
    def unplaced(self) -> str:
        """Why a template's topic has no table of its own; empty for another table."""
        name, topic = self.table.name, topic_of(self.table.shape)
        if not topic or not name.startswith(UNPLACED):
            return ""
        return (
            f"topic {topic} has no table of its own, since that would have another table's name or place, or too long a name: its "
            f"records come into {name} as they are; `crkafka tables undeclare {name}`, and write it under `except`"
        )

    @property
    def stuck(self) -> bool:
        """Whether its fence is owed, or its commits have failed, for minutes: more time alone mends neither."""
        return not self.idle and (self.failing > LATE or (self.owes_fence and self.unfenced > LATE))

    @property
    def late(self) -> str:
        """Why it needs attention; empty when it keeps up."""
        if self.idle:
            return ""
        who = self.writer or self.feeder
        by = f"; {who} writes it" if who else "; nobody writes it"
        if self.owes_fence and self.unfenced > LATE:
            return f"table {self.table.name} has not followed the rewind for {self.unfenced:.0f} s, and the region waits for it{by}"
        if not self.waiting or self.seconds <= LATE or self.left:
            return ""
        why = f"; its commits have failed for {self.failing:.0f} s, `crkafka events` has why" if self.failing else ""
        if self.owes_fence and not why:
            why = "; it takes nothing before the fence that it owes: its host, Dagster or `crkafka reset --to head` makes that"
        return (
            f"table {self.table.name} is at checkpoint {self.table.acknowledged}: {self.waiting} wait for it, the first for "
            f"{self.seconds:.0f} s{by}{why}"
        )

    @property
    def spoilt(self) -> str:
        """Why its records need attention; empty when few are bad."""
        if self.recent_bad < max(BAD_LEAST, BAD_SHARE * self.recent):
            return ""
        return (
            f"table {self.table.name}: {self.recent_bad} of its latest {self.recent} records could not be decoded; its dead letters, or "
            "`crkafka events`, have why"
        )


def lags(reader: Reader, region: Region) -> list[TableLag]:
    declared = reader.select(Table, order=("name",))
    bad = events.bad_records(reader) if any(t.shape for t in declared) else {}
    return [_lag(reader, region, table, bad.get(table.name, 0)) for table in declared]


def late(reader: Reader, region: Region) -> list[str]:
    """What is wrong with the tables, in words."""
    return [text for lag in lags(reader, region) for text in (lag.late, lag.spoilt, lag.schema, lag.unplaced) if text]


def _lag(reader: Reader, region: Region, table: Table, bad: int) -> TableLag:
    first = checkpoints.filled(reader, above=table.acknowledged, oldest=1)
    waits = reader.get(Checkpoint, first[0]) if first else None
    held_up = table.owes_fence and region.phase is Phase.REWINDING
    decoded = bool(table.shape) and not (has_records(table.shape) or by_value(table.shape))
    configured = json.loads(region.config_json or "{}").get("tables", ())
    recent = recent_bad = 0
    failing = 0.0
    own: Cond = ("table", "=", table.name)
    if decoded:
        done: list[Cond] = [own, ("kind", "=", tables.ADVANCE), ("status", "=", tables.DONE)]
        if latest := reader.select(TableCommit, *done, order=("number",), desc=True, limit=RECENT):
            recent_bad = events.bad_after(reader, table.name, latest[-1].after)
            recent = sum(commit.rows for commit in latest) + recent_bad
    if waits:  # since the first failed attempt to bring it in; a rewrite of older checkpoints (`replay`) is none
        last = tables.last_done(reader, table)
        since: list[Cond] = [own, ("number", ">", last.number if last else 0), ("at", ">", 0.0)]
        failed: list[Cond] = [("status", "=", tables.FAILED), ("kind", "!=", tables.REWRITE)]
        if first_failed := reader.column(TableCommit, "at", *since, *failed, order=("number",), limit=1):
            failing = max(0.0, reader.now() - first_failed[0])
    return TableLag(
        table=table,
        waiting=checkpoints.count_filled(reader, above=table.acknowledged) if waits else 0,
        seconds=max(0.0, reader.now() - waits.merged_at) if waits else 0.0,
        writer=tables.writer(reader, table.name),
        feeder=tables.feeder_of(reader, table),
        owes_fence=table.owes_fence,
        unfenced=max(0.0, reader.now() - region.phase_since) if held_up else 0.0,
        failing=failing,
        idle=region.phase is Phase.IDLE,
        left=any(t["name"] == table.name and not t.get("kept_fresh", True) for t in configured),
        bad=bad,
        recent=recent,
        recent_bad=recent_bad,
        schema=events.schema_alarm(reader, table.name) if decoded else "",
    )


@dataclass(frozen=True)
class Landed:
    """Of one region, between two looks."""

    uid: str
    top: int
    """The latest checkpoint that was ever merged."""
    merged: tuple[Checkpoint, ...]
    commits: Mapping[str, int]
    """Table → the number of its latest commit that brought it forward."""
    waited: Mapping[str, tuple[float, ...]]
    """Table → for each of its new commits, the seconds since the merge of the newest checkpoint in it."""


def landed(reader: Reader, region: Region, last: Landed | None) -> Landed:
    """What is new since the last look; nothing at the first one, or where another region of the name has followed."""
    latest = reader.column(Checkpoint, "id", ("merged_at", ">", 0.0), order=("id",), desc=True, limit=1)
    top = latest[0] if latest else 0
    known = last if last is not None and last.uid == region.uid else None
    since = known.top if known else top
    commits, waited = {}, {}
    for table in reader.select(Table):
        after = known.commits.get(table.name, 0) if known else table.commits
        new = tables.advances(reader, ("table", "=", table.name), ("number", ">", after))
        newest = [(commit.at, reader.get(Checkpoint, commit.upto)) for commit in new]
        commits[table.name] = new[-1].number if new else after
        waited[table.name] = tuple(max(0.0, at - row.merged_at) for at, row in newest if row is not None)
    merged = reader.select(Checkpoint, ("id", ">", since), ("merged_at", ">", 0.0), order=("id",))
    return Landed(region.uid, top, tuple(merged), commits, waited)
