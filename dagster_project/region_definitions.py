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
from dagster_project.assets import checks, external, tables
from dagster_project.known import Known, known
from dagster_project.names import CHECKS_DATA, FOLLOWED, RESERVED, WRITES, Names
from dagster_project.options import Options
from dagster_project.resources import RegionResource, SparkSessionResource
from dagster_project.sensors import check, host, observe, publish, trigger, watch
from dagster_project.sensors.shared import SensorSetup, UnresolvedJob

_made: WeakValueDictionary[str, RegionResource] = WeakValueDictionary()
"""Regions of this process whose definitions are referenced, by the keys of their resources; the first key begins their jobs' names."""


def consistent_region(
    config: RegionConfig | Mapping[str, Any] | str | Path, *, file: str | Path | None = None, **dagster: Any
) -> dg.Definitions:
    """Definitions of a region: of its configuration, a mapping of the same keys, or the YAML file that has them.

    Relative paths of a mapping mean the project of `file`, usually `__file__`; without it, the current folder. `dagster` are the keys
    of `Options`. Nothing is connected but, for topics of a pattern and tables of templates, the control plane.
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
    _check_keys(config, names)
    region = RegionResource.of(config, options)
    _refuse_twins(region, names)
    spark = SparkSessionResource(definition=region.definition)
    defined = known(region, names)
    jobs = jobs_.make(names, region, spark, follow=bool(options.follow))
    reading = [checks.of_records(names), *(checks.of_table(table, names) for table in defined.tables)]
    of_assets = _jobs_of_assets(defined, names, options, reading)
    return dg.Definitions(
        assets=_assets(config, names, options, defined),
        asset_checks=[*reading, *checks.of_state(names, options, [t.name for t in defined.tables])],
        jobs=[*jobs.values(), *of_assets.values()],
        sensors=_sensors(config, SensorSetup(names, options, region, defined), jobs, of_assets),
        schedules=schedules.make(names, jobs, options, region),
        resources={names.slug: region, names.spark: spark, names.rows: rows.manager(names)},
    )


def _refuse_twins(region: RegionResource, names: Names) -> None:
    """Regions of one code location whose jobs or resources would have one name."""
    for key in (names.slug, names.spark, names.rows):
        other = _other(key, names.region)
        if other is not None:
            what = f"both would have a resource called {key}"
            if other.names.slug == names.slug:
                what = f"the jobs of both would be called {names.of('…')}"
            raise ConfigError(
                f"Regions {other.settings.region} and {names.region} cannot be in one code location: {what}.",
                hint="Rename one, or give it a code location of its own.",
            )
    _made.update(dict.fromkeys((names.slug, names.spark, names.rows), region))


def _other(key: str, region: str) -> RegionResource | None:
    """Another region with this key, if its definitions are still referenced."""
    if (other := _made.get(key)) is not None and other.settings.region != region:
        del other
        gc.collect()
        other = _made.get(key)
    return other if other is not None and other.settings.region != region else None


def _check_keys(config: RegionConfig, names: Names) -> None:
    """Refuse a table whose name or key another asset of the region has."""
    taken = {names.records: "records", names.group: "group", names.topics: "topics"}
    for table in config.tables:
        if table.name in RESERVED:
            raise ConfigError(
                f"Region {config.region}: a table cannot be called {table.name} in Dagster, which has an asset of that name.",
                hint=f"Give it another name; not {', '.join(RESERVED)}.",
            )
        other = taken.setdefault(key := names.table(table.name), table.name)
        if other != table.name:
            raise ConfigError(
                f"Assets {other} and {table.name} of region {config.region} have one key, {key.to_user_string()}.",
                hint=f"Choose another `key` for {table.name} under `assets`.",
            )


def _assets(
    config: RegionConfig, names: Names, options: Options, defined: Known
) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # backfill_policy of an asset is beta in 1.13
        return [
            *external.topics(config, names, options, defined.topics),
            external.group(config, names, options),
            external.records(names, options),
            *(tables.make(table, config, names, options, defined.topics) for table in defined.tables),
        ]


def _jobs_of_assets(
    defined: Known, names: Names, options: Options, checks: Sequence[dg.AssetChecksDefinition]
) -> dict[str, UnresolvedJob]:
    """Jobs over assets and checks, by what they are called in every region."""
    select = dg.AssetSelection
    chosen: dict[str, tuple[dg.AssetSelection, str]] = {
        CHECKS_DATA: (
            select.checks(*checks),
            "Run the checks that read data: of the latest checkpoints, and of the tables.",
        )
    }
    if defined.tables:
        chosen[WRITES] = (
            select.assets(*(names.table(table.name) for table in defined.tables)),
            f"Write new checkpoints into a table. The sensor {names.of('publish')} launches it for one table and a range of checkpoints.",
        )
    if options.follow:
        chosen[FOLLOWED] = (
            select.assets(*map(dg.AssetKey.from_user_string, options.follow)).without_checks(),
            f"Assets under `follow`: the run {names.of('follow_merges')} materializes them for each new checkpoint.",
        )
    return {
        job: dg.define_asset_job(
            names.of(job),
            selection=selection,
            executor_def=dg.in_process_executor,
            # Else the launchpad begins with all of the region's configuration, once for each resource.
            config={"resources": {}} if job == CHECKS_DATA else None,
            description=description,
            tags=names.tags,
        )
        for job, (selection, description) in chosen.items()
    }


def _sensors(
    config: RegionConfig,
    setup: SensorSetup,
    jobs: Mapping[str, dg.JobDefinition],
    of_assets: Mapping[str, UnresolvedJob],
) -> list[dg.SensorDefinition]:
    """The region's sensors: the trigger only where Dagster cuts."""
    writes = [of_assets[job] for job in (WRITES,) if job in of_assets]
    if config.tables or config.templates:  # tables, or checkpoints, that are in no definition
        writes.append(jobs["advance_table"])
    return [
        *([trigger.sensor(setup, jobs["cut"])] if setup.options.cuts else []),
        watch.sensor(setup, jobs["reset_region"], jobs["stopped_alarm"]),
        publish.sensor(setup, writes),
        observe.sensor(setup),
        check.sensor(setup, of_assets[CHECKS_DATA], shared=bool(setup.known.tables)),
        host.sensor(setup, jobs["host_members"]),
        *([host.of_follower(setup, jobs["follow_merges"])] if setup.options.follow else []),
    ]
