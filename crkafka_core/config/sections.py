"""Sections of a region's configuration: start, trigger, tables, host."""

from __future__ import annotations

import datetime as dt
import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictInt, StrictStr, model_validator

from crkafka_core.config import reference
from crkafka_core.config.quantity import Seconds

STRICT = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
_SPECIFIC = (
    "a specific offset cannot be the start of a group: an offset belongs to one partition, and Kafka deals those out; "
    "use beginning, end, timestamp or default, or `crkafka reset` to a checkpoint"
)


def _no_offset(value: Any) -> Any:
    if isinstance(value, int | dict) and not isinstance(value, bool):
        raise ValueError(_SPECIFIC)
    if isinstance(value, list):
        raise ValueError(f"two start positions ({', '.join(map(str, value))}); a region has one: choose")
    if isinstance(value, str) and (
        value.strip().lstrip("-").isdigit() or value.strip().lower() in ("offset", "offsets")
    ):
        raise ValueError(_SPECIFIC)
    return value


def _moment(value: Any) -> Any:
    """Milliseconds since 1970, from ISO 8601 or the number itself; no zone means UTC."""
    if isinstance(value, str):
        if value.strip().isdigit():
            return int(value)
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(
                f"must be ISO 8601 such as 2026-01-31T08:00:00Z, or milliseconds since 1970, not {value!r}"
            ) from None
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day)
    if isinstance(value, dt.datetime):
        value = round((value if value.tzinfo else value.replace(tzinfo=dt.UTC)).timestamp() * 1000)
    if isinstance(value, int) and value < 0:
        raise ValueError("must not be before 1970")
    return value


Position = Annotated[Literal["beginning", "end", "timestamp", "default"], BeforeValidator(_no_offset)]


class StartConfig(BaseModel):
    """Where partitions start that have no checkpoint yet."""

    model_config = STRICT

    position: Position = "beginning"
    """`beginning`, `end`, `timestamp`, or `default`: the group's committed offset, else `auto_offset_reset`."""
    timestamp: Annotated[StrictInt, BeforeValidator(_moment)] | None = None
    """For `position: timestamp`: ISO 8601 or milliseconds since 1970; past the end means the end."""
    new_partitions: Annotated[Literal["beginning", "end"], BeforeValidator(_no_offset)] = "beginning"
    """Where partitions start that appear after the region's birth; `beginning` loses nothing."""
    auto_offset_reset: Literal["earliest", "latest", "error"] | None = None
    """For `position: default`, when the group has no committed offset; else Kafka's own setting, else `latest`."""
    adopt: StrictStr | None = None
    """Uid of a region, deleted since, whose committed offsets and tables this one takes over; only with `default`."""

    @model_validator(mode="before")
    @classmethod
    def _shape(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(f"write {{position: {value}}}")
        if isinstance(value, int):
            raise ValueError(_SPECIFIC)
        if isinstance(value, dict):
            for key in ("offset", "offsets"):
                if key in value:
                    raise ValueError(_SPECIFIC)
        return value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.position == "timestamp" and self.timestamp is None:
            raise ValueError("position: timestamp needs a timestamp, such as 2026-01-31T08:00:00Z")
        if self.position != "timestamp" and self.timestamp is not None:
            raise ValueError(f"two start positions, {self.position} and a timestamp: choose one")
        if self.position != "default" and self.auto_offset_reset is not None:
            raise ValueError(
                f"two start positions, {self.position} and auto_offset_reset, which only `default` uses: choose one"
            )
        if self.position != "default" and self.adopt is not None:
            raise ValueError("adopt takes over another region's committed offsets and needs position: default")
        return self


class TriggerConfig(BaseModel):
    """What makes a cut: a period, a number of tuples (with a period as upper bound), or a person."""

    model_config = STRICT

    period: Seconds | None = None
    """Time since the last completed cut."""
    tuples: StrictInt | None = None
    """A member that has submitted so many since the last cut asks for one (operator-driven)."""
    manual: StrictBool = False
    """Only by hand or by a bounded run."""

    @model_validator(mode="before")
    @classmethod
    def _shape(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError("write {manual: true}" if value == "manual" else f"write {{period: {value}}}")
        if isinstance(value, int | float):
            raise ValueError(f"write {{period: {value}s}} or {{tuples: {value}}}")
        return value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.manual and (self.period is not None or self.tuples is not None):
            raise ValueError("manual: true goes with neither period nor tuples: choose one")
        if not self.manual and self.period is None and self.tuples is None:
            raise ValueError("says nothing; write {period: 60s}, {tuples: 100000} or {manual: true}")
        if self.period is not None and self.period <= 0:
            raise ValueError(f"period must be above 0, not {self.period:g}")
        if self.tuples is not None and self.tuples <= 0:
            raise ValueError(f"tuples must be above 0, not {self.tuples}")
        return self

    @property
    def operator_driven(self) -> bool:
        """Whether members ask for cuts (SPEC V2); nothing is drained then (SPEC D1)."""
        return self.tuples is not None


class TableConfig(BaseModel):
    """A declared table: it holds back retirement and follows resets."""

    model_config = STRICT

    name: StrictStr = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")
    """Letters, digits and underscores; unique in the region."""
    format: Literal["parquet", "delta", "iceberg"]
    path: StrictStr
    """Folder or URL."""
    options: dict[str, StrictStr] = Field(default_factory=dict)
    """Passed to the format's writer."""


class HostConfig(BaseModel):
    """Who runs the members: tasks of a Spark, or local processes."""

    model_config = STRICT

    spark: StrictStr | None = None
    """Master or Connect URL: `local[4]`, `spark://…`, `yarn`, `k8s://…`, `sc://…`."""
    processes: StrictBool = False
    """Local processes, without Spark."""
    conf: dict[str, StrictStr] = Field(default_factory=dict)
    """Spark properties."""
    shared_disk: StrictBool = False
    """Local paths of storage and tables are on a disk that each machine of the cluster mounts at the same place."""

    @model_validator(mode="before")
    @classmethod
    def _shape(cls, value: Any) -> Any:
        if value == "processes":
            return {"processes": True}
        if isinstance(value, str):
            raise ValueError(f'write {{spark: "{value}"}}, or processes')
        return value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.processes == (self.spark is not None):
            raise ValueError('must be either {spark: "local[4]"} (or spark://…, sc://…) or processes')
        if self.spark is not None and not reference.has_reference(self.spark) and not _MASTER.match(self.spark):
            raise ValueError(
                f"no Spark master: {self.spark!r}; write local[4], spark://host:7077, yarn, k8s://… or sc://host:15002"
            )
        if self.processes and self.conf:
            raise ValueError("conf holds Spark properties and goes with spark")
        return self

    @property
    def remote(self) -> bool:
        """Whether members may run on another machine. A master on the loopback address is only reached from here."""
        if self.spark is None or self.spark.startswith("local"):
            return False
        if self.spark.startswith(("spark://", "sc://")):
            host = urlsplit(self.spark.split(",")[0]).hostname or ""
            return not (host == "localhost" or host == "::1" or host.startswith("127."))
        return True

    @property
    def connect(self) -> bool:
        """Whether Spark is reached by Spark Connect."""
        return self.spark is not None and self.spark.startswith("sc://")


_MASTER = re.compile(r"local(\[[^\]]*\])?$|local-cluster\[[^\]]*\]$|spark://.+|sc://.+|k8s://.+|yarn$")
