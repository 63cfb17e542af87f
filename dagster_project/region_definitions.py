"""Everything that a region is in Dagster, from its configuration: the one function behind the component and behind Python (SPEC A5)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from crkafka_core.config import RegionConfig
from dagster_project import jobs as jobs_
from dagster_project import schedules
from dagster_project.assets import checks, records, seen, tables
from dagster_project.names import Names
from dagster_project.options import Options
from dagster_project.resources import RegionResource, SparkSessionResource
from dagster_project.sensors import hosting, keep_up, observe, publish, trigger, watch
from dagster_project.sensors.asking import Made


def consistent_region(config: RegionConfig | Mapping[str, Any] | str | Path, **dagster: Any) -> dg.Definitions:
    """Definitions of a region: of its configuration, a mapping of the same keys, or the YAML file that has them.

    `dagster` are the keys of `Options`. Nothing is connected.
    """
    if isinstance(config, str | Path):
        config = RegionConfig.load(config)
    elif not isinstance(config, RegionConfig):
        config = RegionConfig.parse(config)
    return build(config, Options.parse(dagster, f"region {config.region}"))


def build(config: RegionConfig, options: Options) -> dg.Definitions:
    """The definitions, once both are validated."""
    names = Names(config.region)
    region = RegionResource.of(config)
    spark = SparkSessionResource(definition=config.to_json())
    jobs = jobs_.make(names, region, spark)
    made = Made(names, options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # backfill_policy of an asset is beta in 1.13
        assets: list[dg.AssetsDefinition | dg.AssetSpec] = [
            *seen.topics(config, names, options),
            seen.group(config, names, options),
            records.make(names, options),
            *(tables.make(table, names, options) for table in config.tables),
        ]
    sensors = [
        trigger.sensor(made, jobs.cut),
        watch.sensor(made, jobs.reset_region, jobs.stopped_alarm),
        publish.sensor(made),
        observe.sensor(made),
        hosting.sensor(made, jobs.host_members),
    ]
    if config.tables:
        sensors.append(keep_up.sensor(made, [t.name for t in config.tables]))
    return dg.Definitions(
        assets=assets,
        asset_checks=[checks.of_records(names), checks.of_group(names)],
        jobs=list(jobs),
        sensors=sensors,
        schedules=schedules.make(names, jobs, options),
        resources={names.slug: region, names.spark: spark},
    )
