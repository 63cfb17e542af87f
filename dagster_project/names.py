"""What everything of a region is called in Dagster: unique per region, so that several stand side by side."""

from __future__ import annotations

import re
from dataclasses import dataclass

import dagster as dg

WIDTH = 12
"""Digits of a partition's key: a backfill's runs are sorted as text (FACTS D5)."""


@dataclass(frozen=True)
class Names:
    """Names of one region."""

    region: str

    @property
    def slug(self) -> str:
        """The region's name in the letters that Dagster allows."""
        return re.sub(r"\W", "_", self.region, flags=re.ASCII)

    @property
    def spark(self) -> str:
        """Key of the resource with the Spark session."""
        return f"{self.slug}_spark"

    @property
    def partitions(self) -> str:
        """Name of the dynamic partitions: one per merged checkpoint with rows (SPEC A3)."""
        return f"{self.slug}_checkpoints"

    @property
    def records(self) -> dg.AssetKey:
        return dg.AssetKey([self.slug, "records"])

    @property
    def group(self) -> dg.AssetKey:
        return dg.AssetKey([self.slug, "group"])

    def topic(self, topic: str) -> dg.AssetKey:
        return dg.AssetKey([self.slug, "topics", re.sub(r"[^A-Za-z0-9_.-]", "_", topic)])

    def table(self, table: str) -> dg.AssetKey:
        return dg.AssetKey([self.slug, table])

    def of(self, what: str) -> str:
        """Name of a job, a sensor or a schedule."""
        return f"{self.slug}_{what}"


def key_of(checkpoint: int) -> str:
    """The partition's key of a checkpoint."""
    return f"{checkpoint:0{WIDTH}d}"


def checkpoint_of(key: str) -> int:
    """The checkpoint that a partition's key names; ValueError for a key that names none."""
    if not key.isascii() or not key.isdigit() or key != key_of(int(key)):
        raise ValueError(f"{key!r} names no checkpoint; a key looks like {key_of(17)}")
    return int(key)
