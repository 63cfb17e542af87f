"""A resident run that brings assets of yours each checkpoint once it is merged: no queue and no process stands in its way (SPEC A7)."""

import time

import dagster as dg
from pydantic import Field

from crkafka_core.control import Reader
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Region as Row
from crkafka_core.plane import checkpoints
from crkafka_core.region.lease import DriverLease
from dagster_project import partitions
from dagster_project.failures import as_dagster_failure
from dagster_project.metadata import landed
from dagster_project.names import FOLLOWED, PARTITION, RANGE_END, RANGE_START, checkpoint_of, key_of, keys_of
from dagster_project.resources import RegionResource
from dagster_project.run_identity import asker, token

LEASE = "follower"
"""Kind of the lease of the run that follows the merges."""
PATIENCE_S = 5.0
"""Seconds between two looks at a quiet region."""


class Follow(dg.Config):
    """How long, and how much at once."""

    seconds: float = Field(
        3_600.0,
        description="Seconds after which the run ends; the sensor launches the next, with the code of that time.",
    )
    limit: int = Field(200, description="Most checkpoints of one run of the assets.")


@dg.op
def follow(context: dg.OpExecutionContext, config: Follow, region: RegionResource) -> None:
    """Materialize the assets under `follow` for each checkpoint as soon as it is merged, in this process."""
    with as_dagster_failure(), DriverLease(region.plane, LEASE, asker(context), token=token(context)) as lease:
        follower = _Follower(context, region, config.limit)
        end, left = time.monotonic() + config.seconds, config.seconds
        while follower.turn(left) and left > 0:
            lease.check()
            left = end - time.monotonic()


class _Follower:
    """The assets of one region's job `followed`, and how far they are."""

    def __init__(self, context: dg.OpExecutionContext, region: RegionResource, limit: int) -> None:
        self._instance, self._log, self._region, self._limit = context.instance, context.log, region, limit
        self._job = context.repository_def.get_job(region.names.of(FOLLOWED))
        self._done = self._begin()

    def _begin(self) -> int:
        """The latest checkpoint that an asset has got; where none has any, the latest one that there is."""
        keys = self._job.asset_layer.selected_asset_keys
        got = [key for asset in keys for key in self._instance.get_materialized_partitions(asset)]
        if not got:
            return self._region.read(lambda _, row: row.head)
        lowest = partitions.lowest(self._instance, self._region.names)
        return max(checkpoint_of(max(got)), checkpoint_of(lowest) - 1 if lowest else 0)

    def turn(self, left: float) -> bool:
        """Bring what is merged, or wait for it; whether there is anything to wait for."""
        row, ids, before = self._region.read(self._look)
        if ids and self._published(before):
            self._publish(ids)
            self._run(ids)
            self._done = ids[-1]
        elif row.phase is Phase.IDLE or left <= 0:
            return False
        else:
            self._region.plane.wait(row.version, min(PATIENCE_S, left) if not ids else 0.2)
        return True

    def _look(self, reader: Reader, row: Row) -> tuple[Row, list[int], int]:
        """The next checkpoints, and the one before them."""
        ids = checkpoints.filled(reader, above=self._done, oldest=self._limit)
        return row, ids, max(checkpoints.filled(reader, upto=self._done, latest=1), default=0)

    def _published(self, before: int) -> bool:
        """Whether the publishing sensor has begun, and what comes before is a partition: they are appended in order (SPEC A3)."""
        names, key = self._region.names, key_of(before)
        known = self._instance.has_dynamic_partition(names.partitions, key)
        begun = not before or known or key < partitions.lowest(self._instance, names)
        return begun and partitions.ours(self._instance, self._region)

    def _publish(self, ids: list[int]) -> None:
        """What the sensor has not published yet; events go first, as there."""
        name, keys = self._region.names.partitions, keys_of(ids)
        known = {*self._instance.get_existing_dynamic_partitions(name, keys)}
        new = [i for i, key in zip(ids, keys, strict=True) if key not in known]
        for event in self._region.read(lambda reader, row: landed(reader, self._region.names.records, new)):
            self._instance.report_runless_asset_event(event)
        self._instance.add_dynamic_partitions(name, keys_of(new))

    def _run(self, ids: list[int]) -> None:
        first, last = key_of(ids[0]), key_of(ids[-1])
        which = {PARTITION: first} if first == last else {RANGE_START: first, RANGE_END: last}
        done = self._job.execute_in_process(
            instance=self._instance, tags={**self._region.names.tags, **which}, raise_on_error=False
        )
        what = f"{first}" if first == last else f"{first} to {last}"
        if done.success:
            self._log.info(f"{what}: run {done.run_id}")
        else:
            self._log.error(
                f"{what}: run {done.run_id} has failed; materialize what it was for once the cause is mended"
            )
