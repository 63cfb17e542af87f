"""Options of a region's component that concern Dagster alone, beside the region's own configuration."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal, TypedDict

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from crkafka_core.config import RegionConfig
from crkafka_core.model.errors import ConfigError
from dagster_project.names import RESERVED, Names

STRICT = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)  # `"1"` in YAML is a number to Dagster


class About(TypedDict):
    """What people read of an asset, as `dg.asset` and `dg.AssetSpec` take it."""

    group_name: str
    owners: list[str]
    tags: dict[str, str]
    description: str
    metadata: dict[str, Any]


class AssetOptions(BaseModel):
    """What one asset of a region has otherwise than the others."""

    model_config = STRICT

    key: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="The asset's whole key; no prefix is put before it."
    )
    group_name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_]+$", description="Its asset group.")
    description: str | None = Field(default=None, description="Its description.")
    owners: tuple[str, ...] | None = Field(default=None, description="Its owners instead of the region's.")
    tags: dict[str, str] = Field(default_factory=dict, description="Its tags, beside the region's.")
    metadata: dict[str, Any] = Field(default_factory=dict, description="More metadata of its definition.")


class Options(BaseModel):
    """The key `dagster` of a component's attributes."""

    model_config = STRICT

    sensors: Literal["running", "stopped"] = Field(
        default="running", description="Whether sensors and schedules are on in a fresh instance."
    )
    cuts: bool = Field(
        default=True,
        description="Whether Dagster opens the cuts that are due, and shows them as runs. Off: the host of the members opens them.",
    )
    host: bool = Field(
        default=True,
        description="Whether Dagster launches a run with the members when the region is started and has no host.",
    )
    pace: int = Field(
        default=1,
        ge=1,
        le=3_600,
        description="Seconds between two ticks of the sensors that publish, watch, observe, host and keep tables up, at least; the daemon "
        "looks every five. Each tick costs the daemon some time: 30 where many regions share an instance.",
    )
    keep_up: int = Field(default=200, ge=1, le=5_000, description="Most checkpoints that one run writes into a table.")
    follow: tuple[str, ...] = Field(
        default=(),
        description="Your assets over checkpoints, by key (`revenue`, `lake/revenue`), in the same code location: a resident run "
        "materializes them for each checkpoint as soon as it is merged.",
    )
    consume: str = Field(
        default="0 * * * *", description="Cron of consume_until_caught_up. Its schedule is off until it is turned on."
    )
    retire: str | None = Field(
        default=None,
        description="Cron of retire_checkpoints; by default daily after three, each region at a minute of its own.",
    )
    look: str | None = Field(
        default=None,
        description="Cron of observe_group; by default every five minutes, each region at a minute of its own.",
    )
    fresh: float = Field(
        default=3_600,
        gt=0,
        description="Seconds for which a checkpoint may wait for a table before the table's check `keeps_up` fails; it fails too when the "
        "table's commits fail, or it has not followed a rewind.",
    )
    freshness: float = Field(
        default=0,
        ge=0,
        description="Seconds within which a table is expected to be materialized, its FreshnessPolicy: longer than its topics are ever "
        "quiet, and at least 60. 0: none, since a table of a quiet topic is not late.",
    )
    check: float = Field(
        default=3_600,
        ge=0,
        description="Seconds between two runs of the checks that read data, and before the first; 0: only by hand.",
    )
    owners: tuple[str, ...] = Field(default=(), description="Owners of the assets: e-mail addresses or team:name.")
    key_prefix: tuple[str, ...] = Field(
        default=(),
        description="Begins the keys of all assets: needed where two regions of one name share a Dagster instance.",
    )
    topics_prefix: tuple[str, ...] | None = Field(
        default=None,
        description="Begins the keys of the topics instead of key_prefix and the region's name: regions with the same prefix show "
        "a topic that they share as one asset.",
    )
    group_name: str | None = Field(
        default=None, pattern=r"^[A-Za-z0-9_]+$", description="Asset group; the region's name by default."
    )
    tags: dict[str, str] = Field(default_factory=dict, description="Tags of the assets.")
    assets: dict[str, AssetOptions] = Field(
        default_factory=dict,
        description="Options of single assets, by `records`, `group`, `topics`, or the name of a table.",
    )

    @property
    def freshness_policy(self) -> dg.FreshnessPolicy | None:
        """Of the tables."""
        window = timedelta(seconds=max(self.freshness, 60.0))
        return dg.FreshnessPolicy.time_window(fail_window=window) if self.freshness else None

    def names(self, config: RegionConfig) -> Names:
        """What everything of this region is called."""
        known = ["records", "group", "topics", *(t.name for t in config.tables)]
        if unknown := sorted(set(self.assets) - set(known)):
            raise ConfigError(
                f"Region {config.region} has no asset {unknown[0]!r}, which dagster.assets names.",
                hint=f"There are: {', '.join(known)}.",
            )
        if self.topics_prefix is not None and "topics" in self.assets:
            raise ConfigError(
                f"Region {config.region}: dagster.assets says what its topics have, and with topics_prefix no region has them alone.",
                hint="Leave `topics` out of `assets`, and describe them in a `dg.AssetSpec` of your own.",
            )
        chosen = {name: one.key for name, one in self.assets.items() if one.key is not None}
        if fixed := sorted(set(chosen) & set(RESERVED)):
            raise ConfigError(
                f"The key of {fixed[0]} of region {config.region} cannot be chosen alone.",
                hint="`key_prefix` begins the keys of all its assets, `topics_prefix` those of its topics.",
            )
        return Names(config.region, self.key_prefix, self.topics_prefix, tuple(sorted(chosen.items())))

    def about(self, asset: str, *, group: str, description: str, metadata: Mapping[str, Any]) -> About:
        """Of one asset: its own, else the region's."""
        own = self.assets.get(asset, AssetOptions())
        return {
            "group_name": own.group_name or self.group_name or group,
            "owners": list(self.owners if own.owners is None else own.owners),
            "tags": {**self.tags, **own.tags},
            "description": own.description or description,
            "metadata": {**metadata, **{name: _link(value) for name, value in own.metadata.items()}},
        }

    @classmethod
    def parse(cls, value: Mapping[str, Any] | None, source: str) -> Options:
        """The options, or a ConfigError of one sentence."""
        try:
            return cls.model_validate(dict(value or {}))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(["dagster", *map(str, first["loc"])])
            known = ", ".join(cls.model_fields)
            raise ConfigError(f"{source}: {where}: {first['msg']}.", hint=f"Known keys of dagster: {known}.") from None


def _link(value: object) -> object:
    """An address as a link, which a person can follow."""
    address = isinstance(value, str) and value.startswith(("http://", "https://"))
    return dg.MetadataValue.url(str(value)) if address else value
