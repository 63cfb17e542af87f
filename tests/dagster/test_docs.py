"""The samples of docs/dagster.md make definitions that load, and what its tables list is there."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.workspace.autodiscovery import loadable_targets_from_python_file

from crkafka_core.cli.services import new
from crkafka_core.config import RegionConfig
from dagster_project import consistent_region, names, partitions
from dagster_project.options import Options

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "dagster.md").read_text(encoding="utf-8")
TUTORIAL = (DOCS / "tutorial.md").read_text(encoding="utf-8")
TABLES = [{"name": "orders_bronze", "format": "delta", "path": "t"}]
pytestmark = pytest.mark.dagster


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", PAGE, re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(text) for _, text in found]


def region() -> RegionConfig:
    return RegionConfig.of(
        region="orders",
        control_plane="sqlite:///var/crkafka.db",
        storage="var/segments",
        kafka={"bootstrap.servers": "localhost:1", "group.id": "orders"},
        topics=["orders"],
        tables=TABLES,
    )


def test_the_sample_that_merges_is_a_module_that_dagster_loads(tmp_path: Path) -> None:
    """A second object of definitions at its top level would be refused, whatever its name. A code server runs in any folder."""
    (tmp_path / "regions").mkdir()
    (tmp_path / "regions" / "orders.yaml").write_text(region().to_json())
    (merge,) = [text for text in blocks("python") if "Definitions.merge(" in text]
    before = "from pathlib import Path\nimport dagster as dg\nfrom dagster_project import consistent_region\nmy_assets, my_jobs = [], []\n"
    (tmp_path / "merged.py").write_text(before + merge)
    (found,) = loadable_targets_from_python_file(str(tmp_path / "merged.py"), str(tmp_path))
    assert isinstance(found.target_definition, dg.Definitions)


def test_what_the_tutorial_has_one_materialize_and_launch_is_there(tmp_path: Path) -> None:
    """It named `records`, which nothing in Dagster makes."""
    new(tmp_path / "shop")
    defs = consistent_region(tmp_path / "shop" / "region.yaml", sensors="running")
    graph = defs.resolve_asset_graph()
    assets = re.findall(r"`(\w+)`, \*Partitions\*", TUTORIAL)
    assert assets and all(graph.get(dg.AssetKey(["shop", name])).is_materializable for name in assets)
    jobs = re.findall(r"`(\w+)`, \*Launchpad\*", TUTORIAL)
    assert jobs and all(defs.resolve_job_def(name) for name in jobs)


def test_the_samples_of_python_make_definitions_that_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "regions").mkdir()
    (tmp_path / "regions" / "orders.yaml").write_text(region().to_json())
    monkeypatch.chdir(tmp_path)
    known: dict[str, Any] = {
        "dg": dg,
        "my_assets": [],
        "my_jobs": [],
        "__file__": str(tmp_path / "definitions.py"),
        "definition": partitions.definition,
        "Names": names.Names,
    }
    samples = blocks("python")
    assert len(samples) >= 7
    for number, sample in enumerate(samples):
        exec(compile(sample, f"docs/dagster.md, sample {number + 1}", "exec", dont_inherit=True), known)
    assets = [made for made in known.values() if isinstance(made, dg.AssetsDefinition)]
    assert {key.path[-1] for made in assets for key in made.keys} == {
        "revenue",
        "daily_revenue",
        "revenue_by_day",
        "totals",
    }
    mine = dg.Definitions(assets=assets, sensors=[known["follow"]])
    dg.Definitions.validate_loadable(dg.Definitions.merge(known["defs"], mine))
    one_process = dg.Definitions.merge(known["defs"], known["yours"])
    dg.Definitions.validate_loadable(one_process)
    assert one_process.resolve_implicit_global_asset_job_def().executor_def is dg.in_process_executor


def test_the_dbt_source_and_the_options_that_the_page_shows_are_right() -> None:
    shown = [yaml.safe_load(block) for block in blocks("yaml") if "# defs/" not in block]
    source = next(block for block in shown if "sources" in block)["sources"][0]["tables"][0]
    key = dg.AssetKey(source["meta"]["dagster"]["asset_key"])
    assert key == names.Names("orders").table(source["name"])
    assert key in {spec.key for spec in consistent_region(region()).resolve_all_asset_specs()}
    options = next(block for block in shown if set(block) == {"dagster"})["dagster"]
    repository = consistent_region(region(), **options).get_repository_def()
    documented = set(re.findall(r"`(\w+)`", "".join(line for line in PAGE.splitlines() if line.startswith("| `"))))
    assert set(Options.model_fields) <= documented
    jobs = {job.name.removeprefix("orders_") for job in repository.get_all_jobs()}
    assert {name for name in jobs if not name.startswith("__")} <= documented


def test_the_credits_that_the_page_counts_are_the_steps_of_a_days_runs() -> None:
    costs = PAGE.partition("### Retention and costs")[2].partition("\n#")[0]
    header, *rows = [[cell.strip() for cell in line.split("|")] for line in costs.splitlines() if line.startswith("|")]
    credits = {row[1]: row[header.index("Dagster+ credits")] for row in rows}
    defs = consistent_region(region())
    for row, job, a_day in (("`cuts: true`", "cut", 1_440), ("observations", "observe_group", 288)):
        steps = len(defs.resolve_job_def(f"orders_{job}").nodes)
        assert credits[row].startswith(f"{a_day * steps:,}"), row
