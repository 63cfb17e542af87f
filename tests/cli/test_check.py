"""The findings of `crkafka check`, and the answers of `crkafka init`."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from crkafka_core.control import Tx
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Group, Region, Segment, Table
from crkafka_core.plane import life, tables
from crkafka_core.plane.transact import ControlPlane
from tests.cli.conftest import YAML, Crkafka, findings
from tests.rigs.schema_registry import FakeRegistry

pytestmark = pytest.mark.usefixtures("check_soon")


def test_init_takes_the_place_of_a_configuration_that_only_an_older_version_took(
    crkafka: Crkafka, region_file: Path
) -> None:
    """`init` replaced it, but ended with 2 because the stored one was refused; `check` reported nothing else of the region."""
    assert crkafka("init").code == 0
    with sqlite3.connect(region_file.parent / "var" / "crkafka.db") as database:
        database.execute("UPDATE region SET config_json = json_set(config_json, '$.of_long_ago', 1)")
    assert "the whole: a configuration that this version refuses → the file" in crkafka("check").out
    done = crkafka("init")
    assert (done.code, "changed: the whole" in done.out) == (0, True)
    assert "changed" not in crkafka("init").out


def test_check_before_init_says_so_where_the_database_is_there(crkafka: Crkafka, region_file: Path) -> None:
    """An empty database, as on PostgreSQL before `init`, was reported as WRONG."""
    folder = region_file.parent / "var"
    folder.mkdir(exist_ok=True)
    (folder / "crkafka.db").touch()
    assert "ok     control plane: the region does not exist yet: `crkafka init` makes it" in crkafka("check").out


def test_check_and_init_tell_what_has_changed(crkafka: Crkafka, region_file: Path, plane: ControlPlane) -> None:
    region_file.write_text(
        YAML.replace("topics: [orders]", "topics: [orders, refunds]").replace("members: 2", "members: 3")
    )
    said = findings(crkafka)["region"]
    assert "topics: orders → orders, refunds" in said
    assert "`crkafka scale` wants 2 members, the configuration 3" in said
    done = crkafka("init")
    assert "changed: topics: orders → orders, refunds\n" in done.out
    assert "`crkafka scale 3` changes that" in done.err
    assert "restart a running host: it keeps the configuration that it started with" in done.err
    assert "changed" not in crkafka("init").out


def test_check_and_init_warn_of_another_isolation_level(
    crkafka: Crkafka, region_file: Path, plane: ControlPlane
) -> None:
    """Archived checkpoints that can no longer be read were noticed only by a read."""
    said = "isolation.level has changed: checkpoints with retired segments"
    for level, warned in (("read_committed", False), ("read_uncommitted", True), ("read_committed", True)):
        region_file.write_text(YAML.replace("group.id: orders", f"group.id: orders, isolation.level: {level}"))
        assert (said in findings(crkafka)["region"]) is warned
        done = crkafka("init")
        assert (done.code, f"warning: {said}" in done.err) == (0, warned)
    assert "warning" not in crkafka("init").err


def test_check_prints_each_finding_as_it_is_made(crkafka: Crkafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka may take seconds to answer: findings before that are printed already."""

    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("crkafka_core.cli.checks.kafka", interrupted)
    answer = crkafka("check")
    assert answer.code == 130
    assert "ok     storage: " in answer.out


def test_check_refuses_another_group(crkafka: Crkafka, region_file: Path, plane: ControlPlane) -> None:
    region_file.write_text(YAML.replace("group.id: orders", "group.id: sales"))
    said = "The region's group is 'orders', the configuration has 'sales'"
    assert said in findings(crkafka)["region"]
    refused = crkafka("init")
    assert (refused.code, refused.err.startswith(said)) == (2, True), refused
    assert said in findings(crkafka)["region"], "what was refused has changed nothing"


def test_check_asks_the_registry_for_the_subjects_of_typed_tables(
    crkafka: Crkafka, region_file: Path, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`check` passed, but the table did not advance: its subject was misspelt, or the registry was away."""
    monkeypatch.setattr("crkafka_core.cli.checks._PATIENCE", 0.1)
    there = FakeRegistry()
    table = "tables: [{name: typed, path: typed, typed: {avro: registry}}]"
    region_file.write_text(f"{YAML}registry: {{url: '{there.url}'}}\n{table}\n")
    path = "/subjects/orders-value/versions/latest"
    for code in (40401, 40403):
        there.answers[path] = [(404, {"error_code": code})]
        assert "has no subject orders-value, version latest" in findings(crkafka)["registry"]
    there.answers[path] = [(200, {"schema": "{}"})]
    assert "registry" not in findings(crkafka)
    there.close()
    assert "does not serve schemas" in findings(crkafka)["registry"]


def test_check_finds_a_table_whose_folder_is_gone(crkafka: Crkafka, region_file: Path, plane: ControlPlane) -> None:
    def declared(tx: Tx) -> None:
        tx.put(Table("orders", "bronze", "delta", str(region_file.parent / "bronze"), acknowledged=2, version="1"))
        tx.put(
            Table("orders", "named", "iceberg", "lake.shop.orders", acknowledged=2, version="1")
        )  # in a catalog: no folder
        tx.put(
            Table("orders", "begun", "delta", str(region_file.parent / "begun"), acknowledged=2)
        )  # nothing is in it yet

    plane.do(declared)
    for folder in ("", "bronze"):  # a host that tried to write to a deleted table has made its folder again
        (region_file.parent / folder).mkdir(exist_ok=True)
        assert "Table bronze has rows up to checkpoint 2, but the files in its folder" in findings(crkafka)["tables"]
    (region_file.parent / "bronze" / "_delta_log").mkdir()
    assert "tables" not in findings(crkafka)


def test_check_tells_what_init_would_refuse_of_tables_and_storage(
    crkafka: Crkafka, region_file: Path, plane: ControlPlane
) -> None:
    (region_file.parent / "order.json").write_text('{"type": "object", "properties": {"a": {"type": "integer"}}}')
    typed = "tables: [{name: t, format: delta, path: t, typed: {json: order.json}%s}]\n"
    region_file.write_text(YAML + typed % "")
    assert crkafka("init").code == 0
    region_file.write_text(YAML + typed % ", dead_letters: odd")
    said = "Table t_dead of region orders takes the output dead of the shape crkafka.typed:t, and odd would take it too"
    assert said in findings(crkafka)["tables"]
    refused = crkafka("init")
    assert (refused.code, said in refused.err) == (1, True), refused

    def lacks(tx: Tx) -> None:
        tx.put(Checkpoint("orders", 1, 0, 1, CheckpointStatus.MERGED, rows=1))
        tx.put(Segment("orders", "uid/00000001/a-0-0.parquet", 1, "orders/0", "a", 1, 1, 1, "h", "[]"))
        tx.set_region(head=1)

    plane.do(lacks)
    region_file.write_text((YAML + typed % "").replace("storage: ", "storage: moved/"))
    assert "Table t lacks checkpoint 1, whose segments lie in" in findings(crkafka)["storage"]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("mode: upsert, keys: [id, bank]", "has one row for each id, and is declared now with one for each id, bank"),
        ("mode: append", "has one row for each id, and is declared now with one for each record"),
    ],
)
def test_other_keys_of_a_table_that_has_rows_are_refused_and_nothing_changes(
    crkafka: Crkafka, region_file: Path, plane: ControlPlane, other: str, said: str
) -> None:
    """They were accepted with exit code 0, and the next write of the table was refused."""
    table = "tables: [{name: t, format: delta, path: %s, shape: 'shop.shapes:latest', %s}]\n"
    region_file.write_text(YAML + table % ("t", other))
    assert crkafka("init").code == 0
    region_file.write_text(YAML + table % ("t", "mode: upsert, keys: [id]"))
    assert crkafka("init").code == 0, "it has no rows yet"
    plane.do(lambda tx: tx.put(replace(tables.of(tx, "t"), acknowledged=2, version="1")))
    region_file.write_text(YAML + table % ("t", other))
    assert said in findings(crkafka)["tables"]
    for _ in range(2):
        refused = crkafka("init")
        assert (refused.code, said in refused.err, "`crkafka tables undeclare t`" in refused.err) == (1, True, True), (
            refused
        )
    assert crkafka("tables", "undeclare", "t", "--yes").code == 0
    region_file.write_text(YAML + table % ("other", other))
    assert crkafka("init").code == 0


def test_check_goes_on_after_what_this_user_may_not_look_at(
    crkafka: Crkafka, region_file: Path, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    plane.do(
        lambda tx: tx.put(
            Table("orders", "bronze", "delta", str(region_file.parent / "t"), acknowledged=2, version="1")
        )
    )
    monkeypatch.setattr("crkafka_core.cli.checks.Path.is_dir", forbidden)
    answer = crkafka("check")
    assert answer.code == 3 and "WRONG  tables: " in answer.out, answer
    assert "/t/_delta_log cannot be used: Permission denied. May this user read and write it" in answer.out
    assert "\nok     host: " in answer.out, "what comes after is looked at all the same"


def test_check_and_scale_count_the_task_slots_of_a_region_that_was_scaled(
    crkafka: Crkafka, region_file: Path, plane: ControlPlane
) -> None:
    """Members took all slots, and the tables did not advance."""
    region_file.write_text(
        YAML + 'host: {spark: "local[4]"}\ntables: [{name: bronze, path: t, shape: "shop.rows:all"}]\n'
    )
    refused = crkafka("scale", "5")
    assert refused.code == 2, refused
    assert "5 members need 5 task slots, and local[4] has 4. Write local[6]: one more, for tables." in refused.err
    assert crkafka("scale", "4").code == 0
    assert (
        "All task slots of local[4] go to 4 members; none is left to write bronze. Write local[5]."
        in findings(crkafka)["host"]
    )
    plane.do(lambda tx: tx.set_region(members_wanted=5))
    assert "5 members need 5 task slots, and local[4] has 4" in findings(crkafka)["host"]


def test_check_compares_pyspark_with_the_jars(
    crkafka: Crkafka, region_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crkafka_core.cli.checks.metadata.version", lambda package: "4.2.0")
    region_file.write_text(YAML + 'host: {spark: "local[4]"}\ntables: [{name: t, format: iceberg, path: t}]\n')
    assert "PySpark 4.2.0 is installed; the jars for iceberg are for Spark 4.1" in findings(crkafka)["host"]


def test_check_tells_another_topic_of_the_same_name(
    crkafka: Crkafka, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crkafka_core.kafka.admin import KafkaAdmin
    from crkafka_core.kafka.edge import TopicInfo

    monkeypatch.setattr(KafkaAdmin, "cluster_id", lambda _: "c1")
    monkeypatch.setattr(KafkaAdmin, "topics", lambda *_, **__: {"orders": TopicInfo("t2", ())})
    monkeypatch.setattr(KafkaAdmin, "largest_messages", lambda *_: {})
    assert (
        "topic orders was made anew: the region knows it with the id t1, and it has the id t2 now"
        in findings(crkafka)["kafka"]
    )
    assert "`crkafka forget" in findings(crkafka)["kafka"]


def test_a_table_that_is_new_since_init_is_said_as_it_is_written(
    crkafka: Crkafka, region_file: Path, plane: ControlPlane
) -> None:
    (region_file.parent / "order.json").write_text('{"type": "object", "properties": {"a": {"type": "integer"}}}')
    region_file.write_text(YAML + "tables: [{name: t, format: delta, path: t, typed: {json: order.json}}]\n")
    said = findings(crkafka)["region"]
    assert "typed: json: " in said and "{" not in said and "None" not in said, said


@pytest.mark.kafka
def test_check_and_group_name_whose_the_group_is_and_who_is_foreign(
    crkafka: Crkafka, region_file: Path, plane: ControlPlane, kafka: object, new_topic: Callable[..., str]
) -> None:
    from confluent_kafka import Consumer

    from crkafka_core.dev.kafka import KafkaCluster
    from crkafka_core.kafka.admin import KafkaAdmin

    assert isinstance(kafka, KafkaCluster)
    topic = new_topic(partitions=1)
    group = f"foreign-{topic}"
    here = (
        YAML.replace("127.0.0.1:9", kafka.bootstrap)
        .replace("[orders]", f"[{topic}]")
        .replace("group.id: orders", f"group.id: {group}")
    )
    cluster = KafkaAdmin({"bootstrap.servers": kafka.bootstrap}).cluster_id()
    region_file.write_text(here)
    plane.do(lambda tx: tx.set_region(cluster_id="", group_id="", config_json=""))
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group, "client.id": "somebody[/x]"})
    try:
        consumer.subscribe([topic])
        end = time.monotonic() + 30
        while "somebody" not in findings(crkafka).get("group", ""):
            consumer.poll(0.3)
            assert time.monotonic() < end
        shown = crkafka("group")
        assert re.search(r"somebody\[/x\].*FOREIGN", shown.out)
        assert "not a member of this region" in shown.err
    finally:
        consumer.close()
    life.declare(plane.store, Region(name="sales", uid="u2", region_index=0, members_wanted=1))
    ControlPlane(plane.store, "sales").do(lambda tx: tx.put(Group(cluster, group, "sales", 0)))
    assert f"Group '{group}' belongs to region sales" in findings(crkafka)["group"]
    before = plane.read(lambda _, row: row.config_json)
    refused = crkafka("init")
    assert refused.code != 0 and refused.err.startswith(f"Group '{group}' belongs to region sales"), refused
    assert plane.read(lambda _, row: row.config_json) == before
