"""Topics, the group and the checkpointed records: external assets, observed or landed by members, and not made (SPEC A3, A4, C7).

Nothing in Dagster makes the records, so that nothing there can wake all that follows them; checks read them back.
"""

from __future__ import annotations

import dagster as dg

from crkafka_core.config import RegionConfig
from dagster_project import partitions
from dagster_project.assets import columns
from dagster_project.names import BY_PATTERN, Names
from dagster_project.options import Options


def topics(config: RegionConfig, names: Names, options: Options) -> list[dg.AssetSpec]:
    """One asset per topic, or one for all that match a pattern. None where regions share topics: then they are only named."""
    if options.topics_prefix is not None:
        return []
    by = f" The job {names.of('observe_group')} observes them on a schedule: ends and lag. Nothing materializes them."
    about = {topic: (f"Records of topic {topic} in Kafka.{by}", {"topic": topic}) for topic in config.topics or ()} or {
        BY_PATTERN: (
            f"Records of all topics that match {config.pattern}; each has an asset of its own once it is read.{by}",
            {"pattern": config.pattern or ""},
        )
    }
    return [
        dg.AssetSpec(
            names.topic(topic),
            kinds={"kafka"},
            **options.about("topics", group=names.slug, description=text, metadata={**metadata, **columns.of_topic()}),
        )
        for topic, (text, metadata) in about.items()
    ]


def group(config: RegionConfig, names: Names, options: Options) -> dg.AssetSpec:
    """The consumer group, which is the region's alone (SPEC G1)."""
    return dg.AssetSpec(
        names.group,
        deps=[names.topic(topic) for topic in config.topics or (BY_PATTERN,)],
        kinds={"kafka"},
        **options.about(
            "group",
            group=names.slug,
            description=f"The consumer group of region {config.region}: members, epoch, head, lag, resets. The sensor "
            f"{names.of('observe')} observes it; nothing materializes it.",
            metadata={"region": config.region, "region_index": config.region_index},
        ),
    )


def records(names: Names, options: Options) -> dg.AssetSpec:
    """The records of each checkpoint; the merge publishes them."""
    return dg.AssetSpec(
        names.records,
        deps=[names.group],
        partitions_def=partitions.definition(names),
        kinds={"parquet"},
        **options.about(
            "records",
            group=names.slug,
            description="The records of each checkpoint, exactly once. A partition appears with the merge, by the sensor "
            f"{names.of('publish')}; nothing in Dagster makes them. A number that is missing was a cut without records or an "
            f"aborted one, or is superseded. The job {names.of('check_data')} reads them back.",
            metadata={"region": names.region},
        ),
    ).with_io_manager_key(names.rows)
