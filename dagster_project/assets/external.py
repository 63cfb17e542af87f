"""Topics, the group and the checkpointed records: external assets, observed or landed by members, and not made (SPEC A3, A4, C7).

Nothing in Dagster makes the records, so that nothing there can wake all that follows them; checks read them back.
"""

from __future__ import annotations

from collections.abc import Collection

import dagster as dg

from crkafka_core.config import RegionConfig
from dagster_project import partitions
from dagster_project.assets import columns
from dagster_project.names import Names
from dagster_project.options import Options


def topics(config: RegionConfig, names: Names, options: Options, known: Collection[str]) -> list[dg.AssetSpec]:
    """One asset for each topic that is known, and one for all that match a pattern. Topics that regions share are only named."""
    observed = f"The job {names.of('observe_group')} records end offsets and the group's lag on a schedule."

    def spec(key: dg.AssetKey, text: str, deps: Collection[dg.AssetKey] = (), **metadata: str) -> dg.AssetSpec:
        about = options.about(
            "topics", group=names.slug, description=f"{text} {observed}", metadata={**metadata, **columns.of_topic()}
        )
        return dg.AssetSpec(key, deps=deps, kinds={"kafka"}, **about)

    own = known if options.topics_prefix is None else ()
    specs = [spec(names.topic(topic), f"Kafka topic {topic}.", topic=topic) for topic in own]
    if config.pattern:
        text = f"All Kafka topics that match {config.pattern}. Each has an asset of its own once a member reads it."
        specs.append(spec(names.topics, text, [names.topic(topic) for topic in known], pattern=config.pattern))
    return specs


def group(config: RegionConfig, names: Names, options: Options) -> dg.AssetSpec:
    """The consumer group, which is the region's alone (SPEC G1)."""
    return dg.AssetSpec(
        names.group,
        deps=[names.topic(topic) for topic in config.topics or ()] or [names.topics],
        kinds={"kafka"},
        **options.about(
            "group",
            group=names.slug,
            description=f"Kafka consumer group of region {config.region}: members, epoch, latest checkpoint, lag, resets. The sensor "
            f"{names.of('observe')} records them.",
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
            description="Records read from Kafka, each exactly once, as Parquet segments. One partition per checkpoint with records; the "
            f"sensor {names.of('publish')} adds it after the merge. Missing numbers: checkpoints without records, aborted or superseded "
            f"ones. The job {names.of('check_data')} checks the files.",
            metadata={"region": names.region},
        ),
    ).with_io_manager_key(names.rows)
