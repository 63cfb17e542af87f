"""Publishing: merged checkpoints become partitions and materializations, superseded ones leave (SPEC A3, A4, X4)."""

from __future__ import annotations

from dataclasses import dataclass

import dagster as dg

from crkafka_core.control import Reader
from crkafka_core.model.rows import Checkpoint, Region
from dagster_project import metadata, partitions
from dagster_project.names import Names, checkpoint_of, key_of
from dagster_project.sensors.asking import Made, asked

CHUNK = 500
"""Changes of one tick: the daemon takes some 3 ms for a partition and 8 ms for an event, and 60 s at most (FACTS D1, D5)."""


@dataclass(frozen=True)
class Published:
    """What one tick publishes."""

    change: partitions.Change
    events: list[dg.AssetMaterialization]
    live: int


def look(reader: Reader, region: Region, *, names: Names, present: list[str], history: int) -> Published:
    """Compare what is live with what Dagster has, and describe what is new."""
    live = partitions.live(reader, region, limit=history)
    change = partitions.reconcile(present, [key_of(c.id) for c in live], chunk=CHUNK)
    fresh = {checkpoint_of(k) for k in change.add}
    return Published(change, describe(reader, region, names, [c for c in live if c.id in fresh]), len(live))


def describe(reader: Reader, region: Region, names: Names, fresh: list[Checkpoint]) -> list[dg.AssetMaterialization]:
    """Materializations of the records: their segments are there, the merge has published them (SPEC C7)."""
    if not fresh:
        return []
    spans = metadata.ranges(reader, region, fresh)
    parents = {
        c.id: c
        for c in reader.select(
            Checkpoint, ("region", "=", region.name), ("id", "in", sorted({c.parent for c in fresh}))
        )
    }
    return [
        dg.AssetMaterialization(
            asset_key=names.records,
            partition=key_of(c.id),
            metadata=metadata.of_checkpoint(c, parents.get(c.parent), spans[c.id]),
        )
        for c in fresh
    ]


def sensor(made: Made) -> dg.SensorDefinition:
    names = made.names

    @dg.sensor(
        name=names.of("publish"),
        minimum_interval_seconds=1,
        default_status=made.status,
        required_resource_keys=made.resources,
        description="Adds a partition for each merged checkpoint with rows, in order; removes those that were superseded.",
    )
    def publish(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        region = made.region(context)
        present = list(context.instance.get_dynamic_partitions(names.partitions))
        history = region.settings.ui_history
        found = asked(region, lambda reader, row: look(reader, row, names=names, present=present, history=history))
        if isinstance(found, dg.SkipReason):
            return found
        change = found.change
        if not change.add and not change.remove:
            return dg.SkipReason(f"{found.live} checkpoints are published")
        definition = partitions.definition(names)
        requests: list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest] = []
        if change.remove:
            requests.append(definition.build_delete_request(list(change.remove)))
        if change.add:
            requests.append(definition.build_add_request(list(change.add)))
        return dg.SensorResult(
            dynamic_partitions_requests=requests,
            asset_events=found.events,
            skip_reason=dg.SkipReason(
                f"{len(change.add)} published, {len(change.remove)} removed" + (", more to come" if change.more else "")
            ),
        )

    return publish
