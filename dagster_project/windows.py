"""Hours or days over checkpoints: which were merged within one, and which windows a rewind has made old (SPEC A3, X4)."""

from __future__ import annotations

import time
from bisect import bisect_left

import dagster as dg

from crkafka_core.control import Reader
from crkafka_core.model.errors import Refused
from crkafka_core.model.rows import Region
from crkafka_core.plane import checkpoints, resets
from dagster_project.resources import RegionResource

PATIENCE_S = 30.0
"""Tolerated lag of the database's clock behind the clock of the asker."""


def merged_within(region: RegionResource, window: dg.TimeWindow) -> list[int]:
    """Live checkpoints with rows that were merged within a window that is over, oldest first; refused where some may be forgotten.

    Asked under the region's lock, so that no merge of the window is still to come.
    """
    start, end = window.start.timestamp(), window.end.timestamp()
    left = PATIENCE_S
    while True:
        now, ids, known = region.plane.do(
            lambda tx: (tx.now(), checkpoints.filled(tx, merged=(start, end)), checkpoints.known_since(tx))
        )
        if start < known:
            raise Refused(
                f"The window from {window.start:%Y-%m-%d %H:%M} begins before the oldest checkpoint that the region still knows: what was "
                "merged within it is not known any more.",
                hint="What was made of it stays. The region's tables have all rows; its `history` says how many checkpoints it knows.",
            )
        if now >= end:
            return ids
        if end - now > left:
            raise Refused(
                f"The window up to {window.end:%Y-%m-%d %H:%M} is not over: the control plane's clock is {end - now:.0f} s before its end.",
                hint="Materialize it once it is over; later checkpoints would be missing in it.",
            )
        left -= end - now
        time.sleep(end - now)


def superseded(reader: Reader, region: Region) -> list[tuple[float, float]]:
    """Of each superseded checkpoint with rows: when it was merged, and when it was superseded; in the order of merges."""
    left = checkpoints.left_behind(reader)
    begun = resets.after(reader) if left else []
    return sorted(
        (at, next((r.at for r in begun if r.at >= at and r.target < checkpoint), at)) for checkpoint, at in left.items()
    )


def outdated(
    instance: dg.DagsterInstance, region: RegionResource, asset: dg.AssetKey, windows: dg.TimeWindowPartitionsDefinition
) -> list[str]:
    """Windows of an asset that were read before a rewind superseded a checkpoint of theirs, oldest first."""
    gone = region.read(superseded)
    old = []
    for key in sorted(instance.get_materialized_partitions(asset)) if gone else ():
        window = windows.time_window_for_partition_key(key)
        first, end = (bisect_left(gone, (at.timestamp(), 0.0)) for at in (window.start, window.end))
        last_superseded = max((at for _, at in gone[first:end]), default=0.0)
        if last_superseded and last_superseded > _read_at(instance, asset, key):
            old.append(key)
    return old


def _read_at(instance: dg.DagsterInstance, asset: dg.AssetKey, partition: str) -> float:
    """When the run began that materialized it last: what was superseded while it ran may be in it."""
    wanted = dg.AssetRecordsFilter(asset_key=asset, asset_partitions=[partition])
    records = instance.fetch_materializations(wanted, limit=1).records
    if not records:
        return 0.0
    run = instance.get_run_record_by_id(records[0].run_id)
    return records[0].timestamp if run is None or run.start_time is None else run.start_time
