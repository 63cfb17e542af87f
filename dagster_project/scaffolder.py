"""What `dg scaffold defs dagster_project.ConsistentRegion NAME` writes."""

from __future__ import annotations

from dagster.components.scaffold.scaffold import Scaffolder, ScaffoldRequest

EXAMPLE = """\
type: {type_name}
attributes:
  region: {name}
  control_plane: sqlite:///var/crkafka.db
  storage: var/segments
  kafka: {{bootstrap.servers: "localhost:9092", group.id: {name}}}
  topics: [{name}]
  members: 2
  trigger: {{period: 60s}}
  tables:
    - {{name: {name}_bronze, format: parquet, path: var/tables/{name}_bronze}}
"""


class RegionScaffolder(Scaffolder):
    """Writes a `defs.yaml` that works on a machine with Kafka on port 9092."""

    def scaffold(self, request: ScaffoldRequest) -> None:
        request.target_path.mkdir(parents=True, exist_ok=True)
        text = EXAMPLE.format(type_name=request.type_name, name=request.target_path.name)
        (request.target_path / "defs.yaml").write_text(text)
