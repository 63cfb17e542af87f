"""The component `dagster_project.ConsistentRegion`: a region in a few lines of YAML (SPEC U3, A5)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from dagster.components import Component, ComponentLoadContext, ComponentTypeSpec
from dagster.components.scaffold.scaffold import scaffold_with
from pydantic import BaseModel, ConfigDict

from crkafka_core.config import RegionConfig
from crkafka_core.config.location import project_of
from crkafka_core.config.schema import schema as region_schema
from dagster_project.options import Options
from dagster_project.region_definitions import build
from dagster_project.scaffolder import RegionScaffolder


class Attributes(BaseModel):
    """What stands under `attributes`: the keys of a region, and `dagster`. Errors are those of the region's configuration."""

    model_config = ConfigDict(extra="allow")

    @classmethod
    def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
        """For editors and `dg`: the schema of a region, with the options for Dagster."""
        schema = region_schema()
        schema["properties"]["dagster"] = Options.model_json_schema()
        return schema


@scaffold_with(RegionScaffolder)
class ConsistentRegion(Component):
    """A Kafka consumer group in a consistent region: jobs, sensors, assets and checks that drive and show it.

    `attributes` are the keys of a region's configuration (docs/region.schema.json); `dagster` among them holds what concerns
    Dagster alone: whether sensors are on, schedules, owners.
    """

    def __init__(self, config: RegionConfig, options: Options | None = None) -> None:
        self.config = config
        self.options = options or Options()

    @classmethod
    def get_spec(cls) -> ComponentTypeSpec:
        return ComponentTypeSpec(
            description="A Kafka consumer group in a consistent region, with exactly-once checkpoints.",
            tags=["kafka", "spark"],
            produces=["asset", "asset_check", "job", "schedule", "sensor", "resource"],
        )

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        return Attributes

    @classmethod
    def load(cls, attributes: BaseModel | None, context: ComponentLoadContext) -> ConsistentRegion:
        """From YAML; templates such as `{{ env.X }}` are resolved, relative paths mean the project's folder."""
        given = attributes.model_dump() if attributes is not None else {}
        values = dict(context.resolution_context.resolve_value(given))
        options = Options.parse(values.pop("dagster", None), str(context.path))
        return cls(RegionConfig.parse(values, base=project_of(context.path), source=str(context.path)), options)

    @classmethod
    def of(cls, region: Mapping[str, Any], *, file: str | Path, **dagster: Any) -> ConsistentRegion:
        """In Python, in a `component.py`: the region's keys, the file that they stand in, and keys of `Options`."""
        config = RegionConfig.parse(region, base=project_of(Path(file)), source=str(file))
        return cls(config, Options.parse(dagster, str(file)))

    def build_defs(self, context: ComponentLoadContext) -> dg.Definitions:
        return build(self.config, self.options)
