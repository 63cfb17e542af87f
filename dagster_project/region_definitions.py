"""Everything that a region is in Dagster, from its configuration: the one function behind the component and behind Python (SPEC A5)."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import dagster as dg

from crkafka_core.config import RegionConfig
from crkafka_core.config.location import project_of
from crkafka_core.model.errors import ConfigError
from dagster_project import jobs as jobs_
from dagster_project import rows, schedules
from dagster_project.assets import checks, external, records, tables
from dagster_project.job_set import CHECKS_DATA, WRITES, Jobs
from dagster_project.names import RESERVED, Names
from dagster_project.options import Options
from dagster_project.resources import RegionResource, SparkSessionResource
from dagster_project.sensors import check, host, observe, publish, trigger, watch
from dagster_project.sensors.shared import SensorSetup, UnresolvedJob

_made: WeakValueDictionary[str, RegionResource] = WeakValueDictionary()
"""The regions of this process whose definitions somebody has, by the keys of their resources; the first begins their jobs' names."""


def consistent_region(
    config: RegionConfig | Mapping[str, Any] | str | Path, *, file: str | Path | None = None, **dagster: Any
) -> dg.Definitions:
    """Definitions of a region: of its configuration, a mapping of the same keys, or the YAML file that has them.

    Relative paths of a mapping mean the project of `file`, usually `__file__`; without it, the current folder. `dagster` are the keys
    of `Options`. Nothing is connected.
    """
    if isinstance(config, str | Path):
        if not (path := Path(config).absolute()).exists():
            hint = "A code server may run in any folder: write Path(__file__).parent / “the file's name”."
            raise ConfigError(f"There is no configuration file {path}.", hint=hint)
        config = RegionConfig.load(path)
    elif not isinstance(config, RegionConfig):
        config = RegionConfig.parse(config, base=None if file is None else project_of(Path(file)))
    return build(config, Options.parse(dagster, f"region {config.region}"))


def build(config: RegionConfig, options: Options) -> dg.Definitions:
    """The definitions, once both are validated."""
    names = options.names(config)
    _refuse_reserved(config)
    _refuse_one_key(config, names)
    region = RegionResource.of(config, names, cuts=options.cuts)
    _refuse_twins(region, names)
    spark = SparkSessionResource(definition=region.definition)
    jobs = jobs_.make(names, region, spark)
    of_records = checks.of_records(names)
    of_tables = [checks.of_table(table, names) for table in config.tables]
    check_data = _check_data(names, of_records, of_tables)
    write_tables = _write_tables(names, [t.name for t in config.tables]) if config.tables else None
    return dg.Definitions(
        assets=_assets(config, names, options),
        asset_checks=[
            of_records,
            checks.of_group(names, options),
            *of_tables,
            *(checks.of_table_state(table, names, options) for table in config.tables),
        ],
        jobs=[*jobs, check_data, *([] if write_tables is None else [write_tables])],
        sensors=_sensors(config, SensorSetup(names, options, region), jobs, check_data, write_tables),
        schedules=schedules.make(names, jobs, options, region),
        resources={names.slug: region, names.spark: spark, names.rows: rows.manager(names)},
    )


def _refuse_twins(region: RegionResource, names: Names) -> None:
    """Regions of one code location whose jobs or resources would have one name."""
    for key in (names.slug, names.spark, names.rows):
        other = _other(key, names.region)
        if other is not None:
            same = other.names.slug == names.slug
            what = (
                f"the jobs of both would be called {names.of('…')}"
                if same
                else f"both would have a resource called {key}"
            )
            raise ConfigError(
                f"Regions {other.settings.region} and {names.region} cannot be in one code location: {what}.",
                hint="Rename one, or give it a code location of its own.",
            )
    _made.update(dict.fromkeys((names.slug, names.spark, names.rows), region))


def _other(key: str, region: str) -> RegionResource | None:
    """Another region that has this key. Those that nobody has any more do not count."""
    if (other := _made.get(key)) is not None and other.settings.region != region:
        del other
        gc.collect()
        other = _made.get(key)
    return other if other is not None and other.settings.region != region else None


def _refuse_one_key(config: RegionConfig, names: Names) -> None:
    """Keys that were chosen, table by table."""
    taken = {names.records: "records", names.group: "group"}
    for table in config.tables:
        other = taken.setdefault(key := names.table(table.name), table.name)
        if other != table.name:
            raise ConfigError(
                f"Assets {other} and {table.name} of region {config.region} have one key, {key.to_user_string()}.",
                hint=f"Choose another `key` for {table.name} under `assets`.",
            )


def _refuse_reserved(config: RegionConfig) -> None:
    taken = sorted({t.name for t in config.tables} & set(RESERVED))
    if taken:
        raise ConfigError(
            f"Region {config.region}: a table cannot be called {taken[0]} in Dagster, which has an asset of that name.",
            hint=f"Give it another name; not {', '.join(RESERVED)}.",
        )


def _assets(config: RegionConfig, names: Names, options: Options) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # backfill_policy of an asset is beta in 1.13
        return [
            *external.topics(config, names, options),
            external.group(config, names, options),
            records.make(names, options),
            *(tables.make(table, config, names, options) for table in config.tables),
        ]


def _check_data(
    names: Names, of_records: dg.AssetChecksDefinition, of_tables: Sequence[dg.AssetChecksDefinition]
) -> UnresolvedJob:
    return dg.define_asset_job(
        names.of(CHECKS_DATA),
        selection=dg.AssetSelection.checks(of_records, *of_tables),
        executor_def=dg.in_process_executor,
        # Else the launchpad begins with all of the region's configuration, once for each resource.
        config={"resources": {}},
        description="Run the checks that read the data: the latest checkpoints, and the tables.",
        tags=names.tags,
    )


def _write_tables(names: Names, declared: Sequence[str]) -> UnresolvedJob:
    return dg.define_asset_job(
        names.of(WRITES),
        selection=dg.AssetSelection.assets(*(names.table(name) for name in declared)),
        executor_def=dg.in_process_executor,
        description="Bring tables what they have not got yet; the sensor launches it, for one table and a range of checkpoints.",
        tags=names.tags,
    )


def _advances(config: RegionConfig, jobs: Jobs) -> list[dg.JobDefinition]:
    """The job for tables, or checkpoints, that are in no definition."""
    return [jobs.advance_table] if config.tables or config.templates else []


def _sensors(
    config: RegionConfig, setup: SensorSetup, jobs: Jobs, check_data: UnresolvedJob, write_tables: UnresolvedJob | None
) -> list[dg.SensorDefinition]:
    """The region's sensors: the trigger only where Dagster cuts."""
    declared = [t.name for t in config.tables]
    return [
        *([trigger.sensor(setup, jobs.cut)] if setup.options.cuts else []),
        watch.sensor(setup, jobs.reset_region, jobs.stopped_alarm),
        publish.sensor(setup, [*([] if write_tables is None else [write_tables]), *_advances(config, jobs)]),
        observe.sensor(setup, declared),
        check.sensor(setup, check_data, shared=bool(config.tables)),
        host.sensor(setup, jobs.host_members),
    ]
