"""Topics and the group: external assets, observed and not made (SPEC A4)."""

from __future__ import annotations

import dagster as dg

from crkafka_core.config import RegionConfig
from dagster_project.names import Names
from dagster_project.options import Options


def topics(config: RegionConfig, names: Names, options: Options) -> list[dg.AssetSpec]:
    """One asset per topic; with a pattern, one for all that match it."""
    if config.topics:
        return [
            dg.AssetSpec(
                names.topic(topic),
                group_name=names.slug,
                kinds={"kafka"},
                owners=list(options.owners),
                description=f"The topic {topic} in Kafka.",
                metadata={"topic": topic},
            )
            for topic in config.topics
        ]
    return [
        dg.AssetSpec(
            names.topic("by_pattern"),
            group_name=names.slug,
            kinds={"kafka"},
            owners=list(options.owners),
            description=f"All topics that match {config.pattern}.",
            metadata={"pattern": config.pattern or ""},
        )
    ]


def group(config: RegionConfig, names: Names, options: Options) -> dg.AssetSpec:
    """The consumer group, which is the region's alone (SPEC G1)."""
    return dg.AssetSpec(
        names.group,
        deps=[t.key for t in topics(config, names, options)],
        group_name=names.slug,
        kinds={"kafka"},
        owners=list(options.owners),
        description=f"The consumer group of region {config.region}: members, epoch, head, lag, resets.",
        metadata={"region": config.region, "region_index": config.region_index},
    )
