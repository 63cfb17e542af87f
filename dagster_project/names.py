"""What everything of a region is called in Dagster: unique per region, so that several stand side by side."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import dagster as dg

WIDTH = 12
"""Digits of a partition's key: a backfill's runs are sorted as text (docs/clients.md C-D5)."""


REGION = "crkafka/region"
"""Tag of all runs of a region: which one."""

KEEPING_UP = "crkafka/table"
"""Tag of the runs that bring a table what it has not got yet: which table."""

RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
"""Tags of a run of several partitions."""

PARTITION = "dagster/partition"
"""Tag of a run of one."""

WRITES, CHECKS_DATA, FOLLOWED = "write_tables", "check_data", "followed"
"""Jobs over assets: the tables, the checks that read the data, the assets of users that follow each merge."""

TRIGGER = "the Dagster sensor"
"""Name of the trigger as the opener of cuts; begins the token of each."""

CHECKPOINT = "crkafka/checkpoint"
"""Tag of a run that follows a cut: its number."""

CUT, FOLLOWS = ".dagster/crkafka_cut", ".dagster/crkafka_follows"
"""Tags of runs that sensors launch: the token of the cut, and the epoch of the reset, that they follow. Dagster shows no tag that begins
so, and no launchpad offers it."""

RESERVED = ("records", "group", "topics")
"""Assets of every region: no declared table may be called so, and a topic's table of such a name has no asset."""


@dataclass(frozen=True)
class Names:
    """Names of one region.

    Partitions and asset keys have the region's name as it is, since they are shared by all code locations of an instance:
    `shop.orders`, `shop-orders` and `shop_orders` are three regions. Jobs, sensors and resources belong to one code location,
    and have it in the letters that Dagster allows; it refuses two of one name.
    """

    region: str
    prefix: tuple[str, ...] = ()
    """Begins each asset key and the partitions' name: regions of one name in two control planes need different ones."""
    topics_prefix: tuple[str, ...] | None = None
    """Begins the keys of topics instead of `prefix` and the region, so that regions that read one topic show it as one asset."""
    table_keys: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Tables with a key of their own, and these keys."""

    @property
    def slug(self) -> str:
        """The region's name in the letters that Dagster allows."""
        return re.sub(r"\W", "_", self.region, flags=re.ASCII)

    @property
    def spark(self) -> str:
        """Key of the resource with the Spark session."""
        return f"{self.slug}_spark"

    @property
    def rows(self) -> str:
        """Key of the I/O manager that loads records."""
        return f"{self.slug}_rows"

    @property
    def unique(self) -> str:
        """The region among all of the instance; jobs of two regions of one name are called the same."""
        return "/".join([*self.prefix, self.region])

    @property
    def tags(self) -> dict[str, str]:
        """Of all runs of the region."""
        return {REGION: self.unique}

    @property
    def partitions(self) -> str:
        """Name of the dynamic partitions: one per merged checkpoint with rows (SPEC A3). No region's name has a slash."""
        return f"{self.unique}_checkpoints"

    @property
    def records(self) -> dg.AssetKey:
        return self._key("records")

    @property
    def group(self) -> dg.AssetKey:
        return self._key("group")

    @property
    def topics(self) -> dg.AssetKey:
        """Of all topics that match a pattern: a new one is in the graph only once the code location is loaded again."""
        return self._key("topics")

    def topic(self, topic: str) -> dg.AssetKey:
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", topic)
        return self._key("topics", name) if self.topics_prefix is None else dg.AssetKey([*self.topics_prefix, name])

    def table(self, table: str) -> dg.AssetKey:
        chosen = dict(self.table_keys).get(table)
        return self._key(table) if chosen is None else dg.AssetKey(list(chosen))

    def _key(self, *parts: str) -> dg.AssetKey:
        return dg.AssetKey([*self.prefix, self.region, *parts])

    def of(self, what: str) -> str:
        """Name of a job, a sensor or a schedule."""
        return f"{self.slug}_{what}"


def key_of(checkpoint: int) -> str:
    """The partition's key of a checkpoint."""
    return f"{checkpoint:0{WIDTH}d}"


def keys_of(checkpoints: Iterable[int]) -> list[str]:
    """As `key_of`, of many: a history has tens of thousands."""
    return list(map(f"%0{WIDTH}d".__mod__, checkpoints))


def checkpoint_of(key: str) -> int:
    """The checkpoint that a partition's key names; ValueError for a key that names none."""
    if not key.isascii() or not key.isdigit() or key != key_of(int(key)):
        raise ValueError(f"{key!r} names no checkpoint; a key looks like {key_of(17)}")
    return int(key)
