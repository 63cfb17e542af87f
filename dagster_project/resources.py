"""Resources: a region with its control plane, and a Spark session; nothing is connected before it is used (docs/clients.md C-D12)."""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import dagster as dg
from pydantic import Field

from crkafka_core.config import RegionConfig
from crkafka_core.control import Reader, Store
from crkafka_core.lake.handle import Opened
from crkafka_core.model.errors import NoControlPlane
from crkafka_core.model.rows import Region as RegionRow
from crkafka_core.plane import templates
from crkafka_core.plane.transact import ControlPlane, initialise, open_store
from crkafka_core.still import starting
from dagster_project import opened, partitions
from dagster_project.names import Names, checkpoint_of
from dagster_project.options import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from crkafka_core.region import Region

T = TypeVar("T")

DEFAULT_MASTER = "local[2]"
"""For tables of a region whose members are processes."""

STORE, SPARK = "store", "spark"
"""Kinds of what is opened once per process."""


@lru_cache(maxsize=64)
def _parsed(definition: str) -> RegionConfig:
    return RegionConfig.from_json(definition)


@lru_cache(maxsize=64)
def _options(dagster: str) -> Options:
    return Options.parse(json.loads(dagster), "a region's resource")


class RegionResource(dg.ConfigurableResource[Any]):
    """A consistent region: `open` drives it, `read` asks its control plane, `records` reads what it has landed."""

    definition: dict[str, Any] = Field(description="The region's configuration: with references, never with secrets.")
    dagster: dict[str, Any] = Field(
        default_factory=dict, description="What concerns Dagster alone: the keys of `dagster` in the component."
    )

    @classmethod
    def of(cls, config: RegionConfig, options: Options | None = None) -> "RegionResource":
        """From a configuration that was loaded."""
        return cls(
            definition=config.model_dump(  # people read it
                mode="json", exclude_none=True, exclude_defaults=True, by_alias=True
            ),
            dagster={} if options is None else options.model_dump(mode="json", exclude_defaults=True),
        )

    @property
    def settings(self) -> RegionConfig:
        """The configuration."""
        return _parsed(json.dumps(self.definition))

    @property
    def options(self) -> Options:
        return _options(json.dumps(self.dagster))

    @property
    def names(self) -> Names:
        return self.options.names(self.settings)

    @property
    def store(self) -> Store:
        """The database, opened once per process; its schema is checked, not made."""
        url = self.settings.resolved_control_plane()
        return opened.once(STORE, url, lambda: open_store(url))

    @property
    def plane(self) -> ControlPlane:
        """The region's control plane: SQL only."""
        return ControlPlane(self.store, self.settings.region)

    @property
    def handle(self) -> Opened:
        return Opened(self.settings, self.plane)

    def read(self, question: Callable[[Reader, RegionRow], T]) -> T:
        """Answer a question from one snapshot of the control plane."""
        return self.plane.read(question)

    def tables(self) -> list[str]:
        """Declared tables: of the configuration, and of its templates."""
        of_topics = self.read(lambda reader, _: templates.of_topics(reader)) if self.settings.templates else ()
        return [*(t.name for t in self.settings.tables), *(t.name for t in of_topics)]

    def open(self) -> "Region":
        """The region, to drive it."""
        from crkafka_core.region import Region

        return Region(self.settings, self.plane)

    def initialised(self, *, configure: bool = True) -> "Region":
        """The region, made in the control plane if it is not there, and the tables too if there are none; an older schema is refused.

        With `configure`, what the configuration says counts from here on, for all who run.
        """
        try:
            it = self.open()
        except NoControlPlane:
            initialise(self.settings.resolved_control_plane())
            it = self.open()
        it.init(configure=configure)
        return it

    def checkpoints(self, context: dg.AssetExecutionContext) -> Sequence[int]:
        """The live checkpoints of this run's partition or range, oldest first; refuses what is not live (SPEC A3)."""
        return self.between(context.partition_key_range)

    def between(self, span: dg.PartitionKeyRange) -> Sequence[int]:
        first, last = checkpoint_of(span.start), checkpoint_of(span.end)
        return self.read(lambda reader, row: partitions.between(reader, row, first, last))

    def records(self, context: dg.AssetExecutionContext, spark: "SparkSession") -> "AbstractContextManager[DataFrame]":
        """The rows of this run's partition or range, held against retirement while the block runs."""
        from crkafka_core.spark.frames import held

        return held(spark, self.handle, ids=self.checkpoints(context))


class SparkSessionResource(dg.ConfigurableResource[Any]):
    """A Spark session, classic or Connect, made when first asked for and shared by the process.

    With a region's definition it is the session of the region's `host.spark`; without, `master` or `remote` say which.
    """

    definition: dict[str, Any] = Field(
        default_factory=dict, description="A region's configuration; its host.spark and host.conf are used."
    )
    master: str = Field(
        default="", description="Master of a classic session: local[N] or spark://host:port. Wins over the region's."
    )
    remote: str = Field(default="", description="sc://host:port of a Spark Connect server. Wins over master.")
    conf: dict[str, str] = Field(
        default_factory=dict, description="Further options of the session; may hold references."
    )

    def session(self) -> "SparkSession":
        """The session of this process; the log of the run that it starts in tells while it does."""
        key = json.dumps([self.definition, self.master, self.remote, sorted(self.conf.items())])
        return opened.once(SPARK, key, lambda: starting(dg.get_dagster_logger().info, self._make))

    def _make(self) -> "SparkSession":
        from crkafka_core.config.reference import has_reference
        from crkafka_core.config.resolving import resolve

        conf = {key: resolve(value, f"conf.{key}") for key, value in self.conf.items()}
        where = self.remote or self.master
        if self.definition:
            from crkafka_core.spark.session import open_session

            config = _parsed(json.dumps(self.definition))
            if where or not config.host.spark:
                host = config.host.model_copy(update={"spark": where or DEFAULT_MASTER, "processes": False})
                config = config.model_copy(update={"host": host})
            return open_session(config, extra=conf)
        if self.remote:
            from pyspark.sql import SparkSession

            builder = SparkSession.builder.remote(self.remote)
            for key, value in conf.items():
                builder = builder.config(key, value)
            return builder.getOrCreate()
        from crkafka_core.spark import launch

        settings = {"spark.master": self.master or DEFAULT_MASTER, "spark.app.name": "crkafka", **conf}
        return launch.start(settings, hidden=[key for key, value in self.conf.items() if has_reference(value)])
