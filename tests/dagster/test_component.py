"""A region in YAML, in Python, several side by side, and both ways in which a location is loaded (SPEC A5)."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox

from crkafka_core.config import RegionConfig
from crkafka_core.model.errors import ConfigError
from dagster_project import ConsistentRegion, consistent_region
from dagster_project.component import Attributes
from dagster_project.scaffolder import EXAMPLE

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.dagster


def attributes(name: str = "orders", **more: Any) -> dict[str, Any]:
    return {
        "region": name,
        "control_plane": "sqlite:///var/crkafka.db",
        "storage": "var/segments",
        "kafka": {"bootstrap.servers": "localhost:1", "group.id": name},
        "topics": ["orders", "refunds"],
        **more,
    }


def load(*regions: dict[str, Any]) -> dg.Definitions:
    with create_defs_folder_sandbox() as sandbox:
        for number, region in enumerate(regions):
            folder = sandbox.defs_folder_path / f"r{number}"
            folder.mkdir(parents=True)
            (folder / "defs.yaml").write_text(
                yaml.safe_dump({"type": "dagster_project.ConsistentRegion", "attributes": region})
            )
        with sandbox.build_all_defs() as defs:
            return defs


def names(defs: dg.Definitions) -> set[str]:
    repository = defs.get_repository_def()
    return {
        *repository.job_names,
        *(s.name for s in repository.sensor_defs),
        *(s.name for s in repository.schedule_defs),
    }


def test_regions_stand_side_by_side() -> None:
    defs = load(
        attributes("orders"), attributes("web-shop.eu", tables=[{"name": "bronze", "format": "parquet", "path": "t"}])
    )
    dg.Definitions.validate_loadable(defs)
    there = names(defs)
    for region in ("orders", "web_shop_eu"):
        assert {
            f"{region}_{n}"
            for n in ("cut", "reset_region", "replay", "trigger", "watch", "publish", "host", "observe", "consume")
        } <= there
    assert "web_shop_eu_tables" in there and "orders_tables" not in there
    keys = {k.to_user_string() for k in defs.resolve_asset_graph().get_all_asset_keys()}
    assert {
        "orders/topics/orders",
        "orders/topics/refunds",
        "orders/group",
        "orders/records",
        "web_shop_eu/bronze",
    } <= keys


def test_yaml_and_python_make_the_same(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(yaml.safe_dump(attributes()))
    assert names(load(attributes())) == names(consistent_region(file)) == names(consistent_region(attributes()))


def test_the_graph_leads_from_topics_to_tables() -> None:
    graph = consistent_region(
        attributes(tables=[{"name": "bronze", "format": "delta", "path": "t"}])
    ).resolve_asset_graph()
    bronze, records, group = (dg.AssetKey(["orders", n]) for n in ("bronze", "records", "group"))
    assert graph.get(bronze).parent_keys == {records}
    assert graph.get(records).parent_keys == {group}
    assert graph.get(group).parent_keys == {dg.AssetKey(["orders", "topics", t]) for t in ("orders", "refunds")}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"membrs": 3}, "membrs"),
        ({"dagster": {"sensor": "on"}}, "Known keys of dagster: sensors"),
        ({"dagster": {"linger": 99}}, "dagster.linger"),
        ({"trigger": {"period": -1}}, "period"),
    ],
)
def test_what_is_wrong_is_said_where_definitions_are_loaded(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(Exception) as caught:
        load(attributes(**wrong))
    chain, error = "", caught.value
    while error is not None:
        chain += f"{error}\n"
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    assert said in chain


def test_options_in_python_are_checked_too() -> None:
    with pytest.raises(ConfigError, match="Known keys of dagster"):
        consistent_region(attributes(), sensor="on")


def test_secrets_do_not_reach_definitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_PASSWORD", "hunter2")
    keys = attributes()
    keys["kafka"] |= {"sasl.password": "${env:ORDERS_PASSWORD}"}
    defs = consistent_region(keys)
    region = defs.resources["orders"]  # type: ignore[index]
    assert "hunter2" not in region.definition and "${env:ORDERS_PASSWORD}" in region.definition


def test_the_schema_for_editors_has_the_regions_keys_and_dagsters() -> None:
    schema = Attributes.model_json_schema()
    assert {"region", "topics", "trigger", "dagster"} <= set(schema["properties"])
    assert ConsistentRegion.get_model_cls() is Attributes


def test_what_is_scaffolded_is_a_valid_region(tmp_path: Path) -> None:
    text = EXAMPLE.format(type_name="dagster_project.ConsistentRegion", name="clicks")
    file = tmp_path / "defs.yaml"
    file.write_text(text)
    assert RegionConfig.load(file).region == "clicks"


def test_A3_a_table_that_gets_nothing_new_is_stale_and_schedules_are_as_told() -> None:
    """SPEC A4, T1, V3: freshness within an hour unless said; retire daily and on; the bounded run hourly and off."""
    bronze = {"tables": [{"name": "bronze", "format": "parquet", "path": "t"}]}
    for options, seconds, hour in (({}, 3600, "0 * * * *"), ({"fresh": 120, "consume": "5 4 * * *"}, 120, "5 4 * * *")):
        defs = consistent_region(attributes(**bronze), **options)
        spec = next(s for s in defs.resolve_all_asset_specs() if s.key == dg.AssetKey(["orders", "bronze"]))
        assert spec.freshness_policy == dg.FreshnessPolicy.time_window(fail_window=timedelta(seconds=seconds))
        found = {s.name: (s.cron_schedule, s.default_status.value, s.job_name) for s in defs.schedules or ()}
        assert found == {
            "orders_consume": (hour, "STOPPED", "orders_consume_until_caught_up"),
            "orders_retire": ("17 3 * * *", "RUNNING", "orders_retire_checkpoints"),
            "orders_look": ("*/5 * * * *", "RUNNING", "orders_observe_group"),
        }


def test_definitions_are_loaded_without_a_warning_of_dagster() -> None:
    """Nothing deprecated or superseded; in a process of its own, since a module warns when it is imported."""
    code = (
        "import warnings, dagster as dg\n"
        "for kind in (DeprecationWarning, FutureWarning, dg.SupersessionWarning):\n"
        "    warnings.simplefilter('error', kind)\n"
        "from dagster_project.definitions import defs\n"
        "dg.Definitions.validate_loadable(defs())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr[-3_000:]


def test_pyproject_and_workspace_load_the_same_under_the_same_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dg"]["project"]
    module = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"][0]["python_module"]
    assert project["code_location_target_module"] == module["module_name"] == "dagster_project.definitions"
    assert project["code_location_name"] == module["location_name"] == "crkafka"
