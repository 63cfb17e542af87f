"""For a user's own assets: the rows of each checkpoint as an input, and what a rewind has left behind in them (SPEC A3, A7, X4)."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import dagster as dg

from crkafka_core.config import RegionConfig
from crkafka_core.plane import checkpoints
from dagster_project import partitions, windows
from dagster_project.names import Names, key_of
from dagster_project.resources import RegionResource

Key = dg.AssetKey | str | Sequence[str]
"""Of a user's asset, as `dg.asset` and its `deps` take it."""

_OVER = dg.AutomationCondition.on_missing().without(dg.AutomationCondition.in_latest_time_window())
"""Dagster's own looks at the latest window alone: those that end while its daemon is away would stay missing."""

REMOVED = "crkafka/removed"
"""Metadata of the observation that tells so."""


def checkpointed(
    region: str, *, by: dg.TimeWindowPartitionsDefinition | None = None, key_prefix: Sequence[str] = (), **asset: Any
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """An asset with a partition per checkpoint, whose argument `records` has the rows of the partition or range that is materialized.

    With `by`, such as `dg.DailyPartitionsDefinition(…)`, a partition per hour or day: the checkpoints that were merged within it. It
    materializes by itself once it is over (`AutomationCondition.on_missing`, of all that are over since Dagster looked last).

    `records` is a Spark DataFrame; annotate it as `pandas.DataFrame` or `pyarrow.Table` to get that. The asset writes what it makes
    and returns nothing or a `MaterializeResult`. It follows each publication (`AutomationCondition.eager`), one run at a time where
    the instance limits pools. `asset` are further arguments of `dg.asset`.
    """
    names = Names(region, tuple(key_prefix))
    given: dict[str, Any] = {
        "partitions_def": by or partitions.definition(names),
        "backfill_policy": dg.BackfillPolicy.single_run(),
        "automation_condition": _OVER if by else dg.AutomationCondition.eager(),
        "pool": names.spark,
        **asset,
    }
    # Which checkpoints a window has is found in SQL when it is materialized: Dagster's daemon knows no mapping but its own.
    mapping = dg.LastPartitionMapping() if by else None
    given["ins"] = {"records": dg.AssetIn(names.records, partition_mapping=mapping), **given.get("ins", {})}

    def decorate(function: Callable[..., Any]) -> dg.AssetsDefinition:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dg.BetaWarning)
            decorated: dg.AssetsDefinition = dg.asset(**given)(function)
            return decorated

    return decorate


class Rewound(dg.AutomationCondition[dg.AssetKey]):
    """True of the hours or days of an asset that a rewind has made old, until they are materialized again."""

    def __init__(self, region: RegionResource, by: dg.TimeWindowPartitionsDefinition) -> None:
        self._region = region
        self._by = by

    def evaluate(self, context: dg.AutomationContext[dg.AssetKey]) -> dg.AutomationResult[dg.AssetKey]:
        old = windows.outdated(context.asset_graph_view.instance, self._region, context.key, self._by)
        subset = context.candidate_subset.compute_intersection_with_partition_keys({*old})
        return dg.AutomationResult(context, subset)


def over_or_rewound(region: RegionConfig, by: dg.TimeWindowPartitionsDefinition) -> dg.AutomationCondition[dg.AssetKey]:
    """The condition of an asset `by` hours or days: each once it is over, and again after a rewind of a checkpoint of its own.

    It asks the region's control plane, so that its sensor has to be evaluated in the code server (`use_user_code_server=True`).
    """
    return _OVER | Rewound(RegionResource.of(region), by).newly_true()


def superseded(
    instance: dg.DagsterInstance,
    region: RegionResource,
    asset: Key,
    by: dg.TimeWindowPartitionsDefinition | None = None,
) -> list[str]:
    """Partitions of an asset that were materialized from checkpoints which a rewind has left behind, oldest first.

    Once their rows are removed, `removed` takes them off this list; an hour or day leaves it when it is materialized again.
    """
    asset = dg.AssetKey.from_coercible(asset)
    if by is not None:
        return windows.outdated(instance, region, asset, by)

    gone = [key_of(checkpoint) for checkpoint in region.read(lambda reader, _: list(checkpoints.left_behind(reader)))]
    if not gone:
        return []
    materialized = instance.get_materialized_partitions(asset)
    left_in = [key for key in gone if key in materialized]
    if not left_in:
        return []
    observed = instance.fetch_observations(
        dg.AssetRecordsFilter(asset_key=asset, asset_partitions=left_in), limit=10 * len(left_in)
    )
    done = {
        r.partition_key for r in observed.records if (o := r.asset_observation) is not None and REMOVED in o.metadata
    }
    return [key for key in left_in if key not in done]


def removed(instance: dg.DagsterInstance, asset: Key, keys: Sequence[str]) -> None:
    """Tell that the rows of these superseded partitions are gone from the asset; a checkpoint's number never comes again (SPEC C5)."""
    asset = dg.AssetKey.from_coercible(asset)
    for key in keys:
        instance.report_runless_asset_event(
            dg.AssetObservation(
                asset, partition=key, description="Its rows were removed after a rewind.", metadata={REMOVED: True}
            )
        )


def nothing_superseded(
    asset: Key, region: str, *, by: dg.TimeWindowPartitionsDefinition | None = None, key_prefix: Sequence[str] = ()
) -> dg.AssetChecksDefinition:
    """A check of a user's asset that fails while rows of superseded checkpoints are in it; `by` as in `checkpointed`."""
    names = Names(region, tuple(key_prefix))
    remedy = "Materialize {} again." if by else "Remove the rows of {}, then call `removed`."

    @dg.asset_check(
        name="nothing_superseded",
        asset=asset,
        required_resource_keys={names.slug},
        description="The asset has no rows of checkpoints that a rewind has superseded.",
    )
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        left = superseded(context.instance, getattr(context.resources, names.slug), asset, by)
        return dg.AssetCheckResult(
            passed=not left,
            description=remedy.format(", ".join(left[:10])) if left else None,
            metadata={"superseded": len(left)},
        )

    return check
