"""What is known only once members have read it: topics of a pattern, tables of templates, columns of files (SPEC A4, K6)."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from crkafka_core.config import RegionConfig
from dagster_project import consistent_region, known
from dagster_project.names import key_of
from dagster_project.sensors.tables import RANGE_END, RANGE_START
from tests.dagster.conftest import LandedSeat

pytestmark = pytest.mark.dagster
PATTERN: dict[str, Any] = {"pattern": "^.*"}
BY_VALUE = {"each": {"header": "n"}, "name": "n_{value}", "path": "values/{value}", "most_tables": 1}
PAGE = (Path(__file__).parents[2] / "docs/dagster.md").read_text(encoding="utf-8")
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture
def tables(tmp_path: Path) -> list[dict[str, Any]]:
    """One of each kind, and a template."""
    (tmp_path / "order.schema.json").write_text(
        '{"type": "object", "properties": {"price": {"type": "number"}, "offset": {"type": "string"}}}'
    )
    typed = {"typed": {"json": "order.schema.json"}, "topics": ["orders"]}
    return [
        {"name": "raw", "path": "tables/raw"},
        {"name": "some", "path": "tables/some", "topics": ["orders"]},
        {"name": "orders_typed", "path": "tables/orders_typed", **typed},
        {"name": "latest", "path": "tables/latest", **typed, "mode": "upsert"},
        {"name": "{topic}", "path": "each/{topic}", "each": "topic"},
    ]


def metadata_of(defs: dg.Definitions, key: dg.AssetKey) -> dict[str, Any]:
    return dict(defs.resolve_asset_graph().get(key).metadata)


def materialize(seat: LandedSeat, defs: dg.Definitions, key: dg.AssetKey, checkpoint: int) -> bool:
    job = defs.resolve_implicit_job_def_def_for_assets([key])
    assert job is not None
    tags = {RANGE_START: key_of(checkpoint), RANGE_END: key_of(checkpoint)}
    return job.execute_in_process(instance=seat.instance, asset_selection=[key], tags=tags).success


@pytest.mark.parametrize("keys", [PATTERN])
def test_the_columns_on_the_page_of_a_table_are_those_of_its_files(landed: LandedSeat) -> None:
    landed.landing.land(10)
    landed.publish()
    defs = consistent_region(landed.config)
    named = [table.name for table in landed.config.tables]
    assert named == ["raw", "some", "orders_typed", "orders_typed_dead", "latest", "latest_dead"]
    for name in (*named, "orders"):
        key = landed.names.table(name)
        assert materialize(landed, defs, key, 1)
        metadata = metadata_of(defs, key)
        there = pa.schema(DeltaTable(metadata["dagster/uri"]).schema().to_arrow())
        shown = metadata["dagster/column_schema"].columns
        types = {each.name: str(each.type).replace("<element: ", "<item: ") for each in there}
        assert {column.name: column.type for column in shown} == types, name


@pytest.mark.parametrize("tables", [[BY_VALUE]])
def test_the_table_of_a_value_shows_its_own_place_columns_and_checkpoints(landed: LandedSeat) -> None:
    """Every fifth record has a header."""
    config = landed.config
    landed.landing.land(10)
    landed.landing.land(10)
    landed.publish()
    for name in ("n_dead_letters", "n_0"):
        defs, key = consistent_region(config), landed.names.table(name)
        if name == "n_dead_letters":
            assert materialize(landed, defs, key, 2)
        defs = consistent_region(config)
        metadata = metadata_of(defs, key)
        there = DeltaTable(metadata["dagster/uri"]).to_pyarrow_table()
        assert {c.name: c.type for c in metadata["dagster/column_schema"].columns} == {
            each.name: str(each.type).replace("<element: ", "<item: ") for each in there.schema
        }
        (spec,) = (spec for spec in defs.resolve_all_asset_specs() if spec.key == key)
        assert spec.description.startswith("Records with the value 0." if name == "n_0" else "Records without a table")
    assert set(there.column("crkafka_checkpoint").to_pylist()) == {1}, "the value is in the first alone"


@pytest.mark.parametrize("keys", [PATTERN])
@pytest.mark.parametrize("topic", ["refunds", "records"])
def test_a_new_topic_is_as_complete_as_a_declared_one_once_the_location_is_loaded_again(
    landed: LandedSeat, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC K6: group, owners, kinds, columns, checks; its partitions can be written again."""
    landed.landing.land(1)
    landed.publish()
    landed.landing.new_topic(topic)
    landed.landing.land(2)
    landed.publish()
    before = landed.defs.resolve_asset_graph().get_all_asset_keys()
    assert landed.names.topic(topic) not in before and landed.names.table(topic) not in before - {landed.names.records}
    defs = consistent_region(landed.config, owners=["team:shop"], freshness=600)
    dg.Definitions.validate_loadable(defs)
    specs = {spec.key: spec for spec in defs.resolve_all_asset_specs()}
    of_topic = specs[landed.names.topic(topic)]
    assert (of_topic.group_name, list(of_topic.owners), of_topic.kinds) == ("orders", ["team:shop"], {"kafka"})
    assert {dep.asset_key for dep in specs[landed.names.topics].deps} == {
        landed.names.topic("orders"),
        landed.names.topic(topic),
    }
    if topic == "records":
        return  # the region has another asset of that name
    table, declared = specs[landed.names.table(topic)], specs[landed.names.table("raw")]
    assert table.metadata.keys() == declared.metadata.keys()
    for what in ("group_name", "owners", "kinds", "partitions_def", "freshness_policy"):
        assert getattr(table, what) == getattr(declared, what), what
    checks = {key.name for key in defs.resolve_asset_graph().asset_check_keys if key.asset_key == table.key}
    assert checks == {"keeps_up", "nothing_foreign"}
    came_from = table.metadata["dagster/column_lineage"].deps_by_column["value"]
    assert came_from == [dg.TableColumnDep(of_topic.key, "value")]
    assert materialize(landed, defs, table.key, 2)
    monkeypatch.setattr(known, "LIMIT", 1)
    few = {spec.key for spec in consistent_region(landed.config).resolve_all_asset_specs()}
    assert landed.names.table("orders") in few and table.key not in few


@pytest.mark.parametrize("keys", [PATTERN])
@pytest.mark.parametrize("url", ["sqlite:///nowhere/crkafka.db", "postgresql+psycopg://u:${env:NOT_SET}@localhost:1/d"])
def test_definitions_load_without_their_control_plane(landed: LandedSeat, url: str) -> None:
    config = RegionConfig.from_json(landed.config.to_json()).model_copy(update={"control_plane": url})
    keys = {spec.key for spec in consistent_region(config).resolve_all_asset_specs()}
    assert landed.names.topics in keys and landed.names.topic("orders") not in keys


def test_the_sql_and_the_condition_of_the_page_are_those_that_a_table_with_new_checkpoints_needs(
    landed: LandedSeat,
) -> None:
    """The table nearly always has a partition to get, for which `eager()` alone waits."""
    (sample,) = [block for block in PYTHON.findall(PAGE) if "any_deps_missing" in block]
    asked: list[str] = []
    names: dict[str, Any] = {"dg": dg, "duckdb": SimpleNamespace(sql=asked.append)}
    exec(compile(sample, "docs/dagster.md", "exec", dont_inherit=True), names)

    @dg.asset(deps=[["orders", "orders_typed"]], automation_condition=dg.AutomationCondition.eager())
    def waits() -> None:
        """Its condition is not complete."""

    merged = dg.Definitions.merge(landed.defs, dg.Definitions(assets=[names["totals"], waits]))
    landed.landing.land(10), landed.landing.land(10)
    landed.publish()
    cursor = dg.evaluate_automation_conditions(merged, landed.instance).cursor
    typed = landed.names.table("orders_typed")
    assert materialize(landed, landed.defs, typed, 1)
    woken = dg.evaluate_automation_conditions(merged, landed.instance, cursor=cursor)
    assert [woken.get_num_requested(dg.AssetKey(name)) for name in ("totals", "waits")] == [1, 0]
    assert dg.materialize([names["totals"]], instance=landed.instance).success
    query = asked[0].replace("delta_scan('var/tables/orders_typed')", "typed").replace("> 17", ">= 0")
    path = metadata_of(landed.defs, typed)["dagster/uri"]
    assert QueryBuilder().register("typed", DeltaTable(path)).execute(query).read_all() is not None
