"""What `dg scaffold defs dagster_project.ConsistentRegion NAME` writes."""

from __future__ import annotations

from pathlib import Path

from dagster.components.scaffold.scaffold import Scaffolder, ScaffoldRequest
from pydantic import BaseModel, Field


class RegionParams(BaseModel):
    """What the command may say: `--topic shop.orders --members 4`; all of it can be changed in the file afterwards."""

    topic: str = Field(default="", description="The topic to consume; the region's name by default.")
    bootstrap_servers: str = Field(default="localhost:9092", description="Where Kafka is.")
    control_plane: str = Field(
        default="sqlite:///var/crkafka.db", description="The database of the region's checkpoints."
    )
    storage: str = Field(
        default="var/segments", description="Where segments go: a folder, s3://…, abfss://…, gs://…, hdfs://…"
    )
    members: int = Field(default=2, ge=1, description="How many consumers share the topic.")
    period: str = Field(default="60s", description="How often a checkpoint is made.")
    table_format: str = Field(default="delta", description="Of the first table: delta or iceberg.")


YAML = """\
type: {type_name}
attributes:
  region: {name}
  control_plane: {p.control_plane}
  storage: {p.storage}
  kafka: {{bootstrap.servers: "{p.bootstrap_servers}", group.id: {name}}}
  topics: [{topic}]
  members: {p.members}
  trigger: {{period: {p.period}}}
  tables:
    - {{name: {table}_bronze, format: {p.table_format}, path: var/tables/{table}_bronze}}
"""

PYTHON = """\
\"\"\"Region {name}: a Kafka consumer group whose checkpoints are partitions.\"\"\"

import dagster as dg

from dagster_project import ConsistentRegion

REGION = {{
    "region": "{name}",
    "control_plane": "{p.control_plane}",
    "storage": "{p.storage}",
    "kafka": {{"bootstrap.servers": "{p.bootstrap_servers}", "group.id": "{name}"}},
    "topics": ["{topic}"],
    "members": {p.members},
    "trigger": {{"period": "{p.period}"}},
    "tables": [{{"name": "{table}_bronze", "format": "{p.table_format}", "path": "var/tables/{table}_bronze"}}],
}}


@dg.component_instance
def region(context: dg.ComponentLoadContext) -> ConsistentRegion:
    return ConsistentRegion.of(REGION, file=__file__)  # and what concerns Dagster alone: sensors="stopped", …
"""


class RegionScaffolder(Scaffolder[RegionParams]):
    """Writes a region that works on a machine with Kafka: `defs.yaml`, or `component.py` with `--format python`."""

    @classmethod
    def get_scaffold_params(cls) -> type[RegionParams]:
        return RegionParams

    def scaffold(self, request: ScaffoldRequest[RegionParams]) -> None:
        request.target_path.mkdir(parents=True, exist_ok=True)
        python = request.scaffold_format == "python"
        text = rendered(PYTHON if python else YAML, request.type_name, request.target_path, request.params)
        (request.target_path / ("component.py" if python else "defs.yaml")).write_text(text)


def rendered(template: str, type_name: str, folder: Path, params: RegionParams) -> str:
    """The file for a region that is called as its folder."""
    name = folder.name
    table = "".join(c if c.isalnum() else "_" for c in name)
    return template.format(type_name=type_name, name=name, table=table, topic=params.topic or name, p=params)
