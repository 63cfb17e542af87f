"""A region in YAML, in Python, several side by side, and both ways in which a location is loaded (SPEC A5)."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import dagster_webserver
import pytest
import yaml
from dagster._utils.error import serializable_error_info_from_exc_info
from dagster.components.testing import create_defs_folder_sandbox

from crkafka_core.config import RegionConfig
from crkafka_core.model.errors import ConfigError
from dagster_project import ConsistentRegion, consistent_region, schedules
from dagster_project.assets import tables as tables_
from dagster_project.component import Attributes
from dagster_project.jobs import GRAPHS
from dagster_project.names import Names
from dagster_project.resources import RegionResource, SparkSessionResource
from dagster_project.scaffolder import PYTHON, YAML, RegionParams, rendered
from tests.dagster.conftest import Seat

ROOT = Path(__file__).parents[2]
BRONZE = [{"name": "bronze", "format": "delta", "path": "lake.shop.t"}]
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
    return {*repository.job_names, *(s.name for s in (*repository.sensor_defs, *repository.schedule_defs))}


def test_regions_stand_side_by_side() -> None:
    defs = load(attributes("orders"), attributes("web-shop.eu", tables=BRONZE))
    dg.Definitions.validate_loadable(defs)
    there = names(defs)
    for region in ("orders", "web_shop_eu"):
        assert {
            f"{region}_{n}"
            for n in ("cut", "reset_region", "replay", "trigger", "watch", "publish", "host", "observe", "consume")
        } <= there
    assert "web_shop_eu_write_tables" in there and "orders_write_tables" not in there
    keys = {k.to_user_string() for k in defs.resolve_asset_graph().get_all_asset_keys()}
    assert {
        "orders/topics/orders",
        "orders/topics/refunds",
        "orders/group",
        "orders/records",
        "web-shop.eu/bronze",
    } <= keys


def test_regions_whose_names_differ_by_punctuation_share_nothing_on_an_instance() -> None:
    """Code locations share partitions and asset keys: each publisher would remove what the other has published."""
    three = [Names(name) for name in ("shop.orders", "shop-orders", "shop_orders")]
    assert len({n.partitions for n in three}) == len({n.records for n in three}) == 3
    said = "cannot be in one code location: the jobs of both would be called shop_orders_…"
    with pytest.raises(Exception, match="Error while building") as caught:
        load(attributes("shop.orders"), attributes("shop-orders"))
    assert said in chain(caught.value) and "Rename one" in chain(caught.value)
    del caught
    first = consistent_region(attributes("shop.orders"))
    with pytest.raises(ConfigError, match=said):
        dg.Definitions.merge(first, consistent_region(attributes("shop_orders")))
    del first
    assert consistent_region(attributes("shop-orders")), "a location that is loaded anew knows nothing of the old one"


@pytest.mark.parametrize("pair", [("orders", "orders_spark"), ("orders_rows", "orders")])
def test_regions_whose_resources_would_have_one_name_are_refused_with_a_sentence(pair: tuple[str, str]) -> None:
    first, second = pair
    kept = consistent_region(attributes(first))
    said = (
        f"Regions {first} and {second} cannot be in one code location: both would have a resource called {max(pair)}."
    )
    with pytest.raises(ConfigError, match=said):
        consistent_region(attributes(second))
    del kept


@pytest.mark.parametrize("name", ["records", "group", "topics"])
def test_a_table_called_as_an_asset_of_the_region_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"a table cannot be called {name} in Dagster"):
        consistent_region(attributes(tables=[{"name": name, "format": "delta", "path": "lake.shop.t"}]))


def test_keys_group_tags_and_owners_are_as_told() -> None:
    options = {"key_prefix": ["eu"], "group_name": "sales", "tags": {"domain": "sales"}, "owners": ["team:sales"]}
    defs = load(attributes(tables=BRONZE, dagster=options))
    specs = {s.key.to_user_string(): s for s in defs.resolve_all_asset_specs()}
    assert set(specs) == {f"eu/orders/{n}" for n in ("topics/orders", "topics/refunds", "group", "records", "bronze")}
    assert all(
        (s.group_name, s.tags.get("domain"), list(s.owners)) == ("sales", "sales", ["team:sales"])
        for s in specs.values()
    )
    assert Names("orders", ("eu",)).partitions == "eu/orders_checkpoints"
    dg.Definitions.validate_loadable(defs)


def test_yaml_and_python_make_the_same(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(yaml.safe_dump(attributes()))
    assert names(load(attributes())) == names(consistent_region(file)) == names(consistent_region(attributes()))


def test_a_table_says_what_catalogues_look_for(tmp_path: Path) -> None:
    """Its name or its place, once; its columns and where each comes from; when it should be fresh; links."""
    schema = tmp_path / "order.schema.json"
    schema.write_text('{"type": "object", "properties": {"price": {"type": "number"}, "offset": {"type": "string"}}}')
    tables = [
        {"name": "raw", "format": "delta", "path": str(tmp_path / "raw")},
        {"name": "typed", "format": "iceberg", "path": "lake.silver.orders", "typed": {"json": str(schema)}},
        {"name": "avro", "format": "delta", "path": "t", "typed": {"avro": "registry"}, "topics": ["orders"]},
        {"name": "shaped", "format": "delta", "path": "s", "shape": "shop:rows"},
    ]
    links = {"raw": {"metadata": {"runbook": "https://wiki/orders"}}}
    defs = consistent_region(
        attributes(tables=tables, registry={"url": "http://localhost:1"}), freshness=600, assets=links
    )
    specs = {spec.key.path[-1]: spec for spec in defs.resolve_all_asset_specs()}
    raw, typed = specs["raw"].metadata, specs["typed"].metadata
    assert raw["dagster/uri"] == str(tmp_path / "raw") and "dagster/table_name" not in raw
    assert typed["dagster/table_name"] == "lake.silver.orders" and "dagster/uri" not in typed
    assert typed["dagster/storage_kind"] == "iceberg" and not {"format"} & {*raw, *typed}
    kinds = {name: specs[name].kinds for name in ("raw", "typed", "shaped", "orders", "records")}
    assert kinds == {
        "raw": {"deltalake"},
        "typed": {"iceberg", "spark"},
        "shaped": {"deltalake", "spark"},
        "orders": {"kafka"},
        "records": {"parquet"},
    }
    assert raw["runbook"] == dg.MetadataValue.url("https://wiki/orders")
    assert specs["raw"].freshness_policy == dg.FreshnessPolicy.time_window(fail_window=timedelta(minutes=10))
    topics = [Names("orders").topic(topic) for topic in ("orders", "refunds")]
    came_from = typed["dagster/column_lineage"].deps_by_column
    assert came_from["price"] == came_from["offset"] == [dg.TableColumnDep(topic, "value") for topic in topics]
    assert came_from["kafka_offset"] == [dg.TableColumnDep(topic, "offset") for topic in topics]
    of_dead = specs["typed_dead"].metadata["dagster/column_lineage"].deps_by_column
    assert of_dead["offset"] == came_from["kafka_offset"] and of_dead["reason"] == came_from["price"]
    assert not {"dagster/column_schema"} & {*specs["avro"].metadata, *specs["shaped"].metadata}, (
        "nobody asks a registry, or runs a program, while definitions load"
    )


def test_every_kind_has_an_icon_in_the_ui_that_is_installed() -> None:
    chunks = Path(dagster_webserver.__file__).parent / "webapp/build/_next/static/chunks"
    icons = "\n".join(file.read_text(errors="replace") for file in chunks.glob("*.js"))
    for kind in (*tables_.KINDS.values(), "kafka", "parquet", "spark"):
        assert re.search(rf'[,{{]"?{kind}"?:{{(?:color:[^,]*,)?icon:', icons), kind


@pytest.mark.parametrize("options", [{}, {"topics_prefix": ["kafka"]}, {"key_prefix": ["eu"]}])
@pytest.mark.parametrize(
    "reads", [{"topics": ["orders", "refunds"]}, {"topics": None, "pattern": "^(orders|refunds)$"}]
)
def test_the_lineage_of_columns_leads_to_columns_of_assets_in_the_graph(
    tmp_path: Path, reads: dict[str, Any], options: dict[str, Any]
) -> None:
    schema = tmp_path / "order.schema.json"
    schema.write_text('{"type": "object", "properties": {"price": {"type": "number"}}}')
    tables = [
        {"name": "all", "path": str(tmp_path / "all")},
        {"name": "some", "path": str(tmp_path / "some"), "topics": ["orders"]},
        {"name": "typed", "path": str(tmp_path / "typed"), "typed": {"json": str(schema)}, "topics": ["refunds"]},
    ]
    defs = consistent_region(attributes(tables=tables, **reads), **options)
    graph = defs.resolve_asset_graph()
    columns = {
        key: {column.name for column in schema.columns}
        for key in graph.get_all_asset_keys()
        if (schema := graph.get(key).metadata.get("dagster/column_schema"))
    }
    group = next(key for key in graph.get_all_asset_keys() if key.path[-1] == "group")
    for name in ("all", "some", "typed", "typed_dead"):
        key = next(key for key in columns if key.path[-1] == name)
        lineage = graph.get(key).metadata["dagster/column_lineage"].deps_by_column
        assert lineage.keys() == columns[key] - {"crkafka_checkpoint"} and all(lineage.values())
        for dep in (dep for deps in lineage.values() for dep in deps):
            assert dep.asset_key in graph.get(group).parent_keys
            assert dep.asset_key not in columns or dep.column_name in columns[dep.asset_key]


def test_the_graph_leads_from_topics_to_tables() -> None:
    graph = consistent_region(attributes(tables=BRONZE)).resolve_asset_graph()
    bronze, records, group = (dg.AssetKey(["orders", n]) for n in ("bronze", "records", "group"))
    assert graph.get(bronze).parent_keys == {records}
    assert graph.get(records).parent_keys == {group}
    assert graph.get(group).parent_keys == {dg.AssetKey(["orders", "topics", t]) for t in ("orders", "refunds")}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"membrs": 3}, "membrs"),
        ({"dagster": {"sensor": "on"}}, "Known keys of dagster: sensors"),
        ({"dagster": {"pace": 0}}, "dagster.pace"),
        ({"trigger": {"period": -1}}, "period"),
    ],
)
def test_what_is_wrong_is_said_where_definitions_are_loaded(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(Exception) as caught:
        load(attributes(**wrong))
    assert said in chain(caught.value)


def chain(error: BaseException | None) -> str:
    return "" if error is None else f"{error}\n{chain(error.__cause__ or error.__context__)}"


def test_a_file_that_is_not_there_is_named_with_its_folder_and_the_way_to_find_it() -> None:
    """A code server runs in any folder, and has no `-c`."""
    with pytest.raises(ConfigError, match=rf"no configuration file {Path.cwd()}/regions/none.yaml.*Path\(__file__\)"):
        consistent_region("regions/none.yaml")


def test_options_in_python_are_checked_too() -> None:
    with pytest.raises(ConfigError, match="Known keys of dagster"):
        consistent_region(attributes(), sensor="on")


def test_secrets_do_not_reach_definitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_PASSWORD", "hunter2")
    keys = attributes()
    keys["kafka"] |= {"sasl.password": "${env:ORDERS_PASSWORD}"}
    defs = consistent_region(keys)
    region = defs.resources["orders"]  # type: ignore[index]
    assert "hunter2" not in str(region.definition)
    assert region.definition["kafka"]["sasl.password"] == "${env:ORDERS_PASSWORD}"


def test_the_schema_for_editors_has_the_regions_keys_and_dagsters() -> None:
    schema = Attributes.model_json_schema()
    assert {"region", "topics", "trigger", "dagster"} <= set(schema["properties"])
    assert ConsistentRegion.get_model_cls() is Attributes


def test_what_is_scaffolded_is_the_same_valid_region_in_yaml_and_python(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    folder = tmp_path / "defs" / "web-clicks"
    folder.mkdir(parents=True)
    params = RegionParams(topic="shop.clicks", members=3)
    for template, file in ((YAML, "defs.yaml"), (PYTHON, "component.py")):
        (folder / file).write_text(rendered(template, "dagster_project.ConsistentRegion", folder, params))
    config = RegionConfig.load(folder / "defs.yaml")
    assert (config.region, config.topics, config.members) == ("web-clicks", ("shop.clicks",), 3)
    assert config.storage == str(tmp_path / "var" / "segments")
    module: dict[str, Any] = {"__file__": str(folder / "component.py")}
    exec((folder / "component.py").read_text(), module)
    assert module["region"](None).config == config


def test_regions_that_read_one_topic_show_it_as_one_asset() -> None:
    shared = {"topics_prefix": ["kafka"]}
    defs = load(attributes("orders", dagster=shared), attributes("audit", dagster=shared))
    graph = defs.resolve_asset_graph()
    topic = dg.AssetKey(["kafka", "orders"])
    assert {dg.AssetKey(["orders", "group"]), dg.AssetKey(["audit", "group"])} == set(graph.get(topic).child_keys)
    assert defs.resources["orders"].names.topic("orders") == topic  # type: ignore[index]
    described = {**shared, "assets": {"topics": {"description": "All orders."}}}
    with pytest.raises(Exception, match="Error while building") as caught:
        load(attributes("orders", dagster=described))
    assert "with topics_prefix no region has them alone" in str(caught.value.__cause__)


def test_single_assets_are_called_and_described_as_told() -> None:
    """As dagster-dbt's translation: key, group, owners, tags, description and metadata, asset by asset."""
    bronze = {
        "key": ["lake", "orders"],
        "group_name": "silver",
        "owners": ["team:lake"],
        "tags": {"tier": "1"},
        "description": "All orders.",
        "metadata": {"contract": "v2"},
    }
    options = {"tags": {"domain": "sales"}, "assets": {"bronze": bronze, "group": {"description": "Who reads."}}}
    defs = load(attributes(tables=BRONZE, dagster=options))
    dg.Definitions.validate_loadable(defs)
    specs = {s.key.to_user_string(): s for s in defs.resolve_all_asset_specs()}
    told = specs["lake/orders"]
    assert (told.group_name, list(told.owners), told.description) == ("silver", ["team:lake"], "All orders.")
    assert {"domain": "sales", "tier": "1"}.items() <= told.tags.items() and told.metadata["contract"] == "v2"
    assert specs["orders/group"].description == "Who reads." and specs["orders/group"].group_name == "orders"
    assert defs.resources["orders"].names.table("bronze") == told.key  # type: ignore[index]


@pytest.mark.parametrize(
    ("assets", "said"),
    [
        ({"bronze": {}}, "has no asset 'bronze'"),
        ({"records": {"key": ["rows"]}}, "The key of records of region orders cannot be chosen alone"),
        (
            {"silver": {"key": ["lake"]}, "gold": {"key": ["lake"]}},
            "Assets silver and gold of region orders have one key, lake",
        ),
        (
            {"gold": {"key": ["orders", "records"]}},
            "Assets records and gold of region orders have one key, orders/records",
        ),
    ],
)
def test_an_asset_that_is_not_there_or_whose_key_is_fixed_is_refused(assets: dict[str, Any], said: str) -> None:
    tables = [{"name": name, "format": "delta", "path": f"lake.shop.{name}"} for name in ("silver", "gold")]
    with pytest.raises(ConfigError, match=said):
        consistent_region(attributes(tables=tables), assets=assets)


def test_every_job_op_sensor_schedule_asset_check_and_field_says_what_it_is() -> None:
    """A stranger reads them in the launchpad, on the pages, and in `dg docs`."""
    defs = consistent_region(attributes(tables=BRONZE))
    repository = defs.get_repository_def()
    silent = [j.name for j in repository.get_all_jobs() if not j.description and not j.name.startswith("__")]
    silent += [s.name for s in (*repository.sensor_defs, *repository.schedule_defs) if not s.description]
    silent += [s.key.to_user_string() for s in defs.resolve_all_asset_specs() if not s.description]
    silent += [str(c.key) for c in checks_of(defs) if not c.description]
    for job in repository.get_all_jobs():
        for node in job.graph.nodes if not job.name.startswith("__") else ():
            if not node.definition.description:
                silent.append(f"{job.name}: {node.name}")
            fields = getattr(node.definition.config_schema.config_type, "fields", {}) or {}  # type: ignore[attr-defined]
            silent += [f"{job.name}.{name}" for name, one in fields.items() if not one.description]
    schema = Attributes.model_json_schema()
    silent += undescribed(schema, {**schema["$defs"], **schema["properties"]["dagster"]["$defs"]})
    silent += [
        f"{kind.__name__}.{name}"
        for kind in (RegionResource, SparkSessionResource)
        for name, one in kind.model_fields.items()
        if not one.description
    ]
    silent += [f"scaffold {name}" for name, one in RegionParams.model_fields.items() if not one.description]
    assert silent == []


def undescribed(part: dict[str, Any], known: dict[str, Any], path: str = "") -> list[str]:
    """Keys of a schema that say nothing of themselves, at any depth."""
    if "$ref" in part:
        part = known[part["$ref"].rpartition("/")[2]]
    silent = [f"{path}.{key}" for key, one in part.get("properties", {}).items() if not one.get("description")]
    within = list(part.get("properties", {}).items())
    within += [("", part[k]) for k in ("items", "additionalProperties") if isinstance(part.get(k), dict)]
    for key, one in [*within, *(("", each) for each in part.get("anyOf", []))]:
        silent += undescribed(one, known, f"{path}.{key}".rstrip("."))
    return silent


def checks_of(defs: dg.Definitions) -> list[dg.AssetCheckSpec]:
    return [spec for checks in defs.asset_checks or () for spec in checks.check_specs]  # type: ignore[union-attr]


def test_schedules_are_as_told_and_a_quiet_table_is_not_stale() -> None:
    """SPEC A4, T1, V3: retire daily and on; the bounded run hourly and off; a table is late by what waits for it, not by the clock."""
    for options, hour in (({}, "0 * * * *"), ({"consume": "5 4 * * *"}, "5 4 * * *")):
        defs = consistent_region(attributes(tables=BRONZE), **options)
        spec = next(s for s in defs.resolve_all_asset_specs() if s.key == dg.AssetKey(["orders", "bronze"]))
        assert spec.freshness_policy is None
        found = {s.name: (s.cron_schedule, s.default_status.value, s.job_name) for s in defs.schedules or ()}
        assert found == {
            "orders_consume": (hour, "STOPPED", "orders_consume_until_caught_up"),
            "orders_retire": ("2 3 * * *", "RUNNING", "orders_retire_checkpoints"),
            "orders_prune": ("2 2 * * *", "STOPPED", "orders_prune_runs"),
            "orders_maintain": ("2 4 * * *", "STOPPED", "orders_maintain_tables"),
            "orders_look": ("2-59/5 * * * *", "RUNNING", "orders_observe_group"),
        }


def test_ten_regions_do_not_start_their_runs_in_one_minute() -> None:
    for pattern in (schedules.LOOK, schedules.PRUNE, schedules.MAINTAIN, schedules.RETIRE):
        at = Counter(schedules.cron(pattern, f"region{n}") for n in range(10))
        assert max(at.values()) <= 4, at
    look = consistent_region(attributes(), look="0 * * * *").resolve_schedule_def("orders_look")
    assert look.cron_schedule == "0 * * * *"


def test_the_instances_retries_and_its_longest_run_leave_hosts_and_alarms_alone() -> None:
    defs = consistent_region(attributes())
    tags = {name: defs.resolve_job_def(f"orders_{name}").tags for name in ("host_members", "stopped_alarm", "cut")}
    assert tags["host_members"]["dagster/max_runtime"] == tags["host_members"]["dagster/max_retries"] == "0"
    assert tags["stopped_alarm"]["dagster/max_retries"] == "0" and "dagster/max_retries" not in tags["cut"]


@pytest.mark.parametrize(
    ("job", "config"),
    [
        ("replay", {"rewrite": {"after": 0, "upto": 1, "tables": ["bronze"], "dry_run": True}}),
        ("scale_region", {"scale": {"members": 3}}),
        ("reset_region", {"reset": {"to": "head", "cause": "", "dry_run": False}}),
        ("retire_checkpoints", {"retire": {"dry_run": False}}),
        ("pause_flow", {"pause": {"kind": "topic", "what": "", "member": ""}}),
        ("resume_flow", {"resume_mark": {"kind": "topic", "what": "", "member": ""}}),
        ("forget_topic", {"forget": {"topic": "", "sure": ""}}),
        ("skip_records", {"skip": {"offsets": "", "sure": ""}}),
        ("undeclare_table", {"undeclare": {"table": ""}}),
        ("advance_table", {"advance": {"table": "bronze", "upto": 1}}),
    ],
)
def test_a_launchpad_begins_with_what_can_be_launched(job: str, config: dict[str, Any]) -> None:
    defs = consistent_region(attributes(members=3, tables=BRONZE))
    made = defs.resolve_job_def(f"orders_{job}")
    assert made.run_config == {"ops": {op: {"config": keys} for op, keys in config.items()}}
    assert dg.validate_run_config(made, made.run_config)
    assert defs.resolve_job_def("orders_check_data").run_config == {"resources": {}}


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


def test_a_password_that_a_template_has_resolved_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """`{{ env.X }}` becomes part of the definitions; `${env:X}` stays a reference."""
    monkeypatch.setenv("ORDERS_PASSWORD", "hunter2")
    keys = attributes()
    with pytest.raises(Exception) as caught:
        load({**keys, "kafka": {**keys["kafka"], "sasl.password": "{{ env.ORDERS_PASSWORD }}"}})
    shown = str(serializable_error_info_from_exc_info((caught.type, caught.value, caught.tb)))  # as the UI has it
    assert "sasl.password" in shown and "hunter2" not in shown


def test_sensors_keep_the_pace_that_is_said_and_the_trigger_its_own() -> None:
    for options, every in (({}, {1, 5, 30}), ({"pace": 60}, {1, 60, 30})):
        found = {
            s.name: s.minimum_interval_seconds
            for s in consistent_region(attributes(tables=BRONZE), **options).sensors or ()
        }
        assert set(found.values()) == every and found["orders_trigger"] == 1


def test_no_op_gives_anything_to_an_io_manager() -> None:
    """Numbers are metadata; what is handed over would be kept, and read by nobody."""
    given = [
        node.name
        for graph in GRAPHS
        for node in graph.nodes
        for o in node.definition.output_defs
        if not o.dagster_type.is_nothing
    ]
    assert given == []


def test_a_run_of_a_region_neither_calls_nor_makes_the_io_manager_of_its_code_location(seat: Seat) -> None:
    """It may need credentials that a region has not."""

    @dg.io_manager
    def theirs(_: dg.InitResourceContext) -> dg.IOManager:
        raise AssertionError("made")

    merged = dg.Definitions.merge(seat.defs, dg.Definitions(resources={"io_manager": theirs}))
    done = merged.resolve_job_def("orders_start_region").execute_in_process(instance=seat.instance)
    assert done.success and not [e for e in done.all_events if e.event_type is dg.DagsterEventType.HANDLED_OUTPUT]
