"""The demo's project: a region in a few lines of YAML, a schema, two lines of Python for Dagster."""

from __future__ import annotations

import shutil
from pathlib import Path

REGION = """\
region: orders
control_plane: sqlite:///crkafka.db
storage: segments
kafka: {{bootstrap.servers: "{bootstrap}", group.id: orders}}
topics: [orders]
members: 2
trigger: {{period: 5s}}
tables:
  - {{name: orders_bronze, format: delta, path: tables/orders_bronze}}
  - {{name: orders_typed, format: delta, path: tables/orders_typed, typed: {{json: order.schema.json}}, on_bad_record: dead_letter}}
host:
  spark: local[4]
  conf:    # for a few minutes: Java's quick compiler, and no plans made for two hundred tasks
    spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1
    spark.sql.shuffle.partitions: "4"
start_grace: 20s
"""

SCHEMA = """\
{
  "type": "object",
  "required": ["code", "cents"],
  "properties": {
    "code": {"type": "string"},
    "item": {"type": "string"},
    "quantity": {"type": "integer"},
    "cents": {"type": "integer"}
  }
}
"""

DEFINITIONS = '''\
"""The demo's code location: one region, everything on."""

from pathlib import Path

from dagster_project import consistent_region

defs = consistent_region(Path(__file__).parent / "region.yaml")
'''


def make(folder: Path, bootstrap: str) -> Path:
    """Write the project anew; the region's file."""
    project = folder / "project"
    shutil.rmtree(project, ignore_errors=True)
    project.mkdir(parents=True)
    (project / "pyproject.toml").write_text('[project]\nname = "demo"\nversion = "0"\n')
    (project / "definitions.py").write_text(DEFINITIONS)
    (project / "order.schema.json").write_text(SCHEMA)
    region = project / "region.yaml"
    region.write_text(REGION.format(bootstrap=bootstrap))
    return region
