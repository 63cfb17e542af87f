"""A table for each topic: it comes with the topic's first checkpoint, and is a table like any other in every verb (SPEC K6)."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from crkafka_core.config import RegionConfig
from crkafka_core.config.shapes import UNPLACED
from crkafka_core.control import Reader
from crkafka_core.lake import audit, erase, road, standing
from crkafka_core.lake.handle import Opened
from crkafka_core.model.errors import Refused
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Initial, Region, Table
from crkafka_core.plane import erasure, lateness, passes, templates
from crkafka_core.plane import tables as plane
from crkafka_core.region.feeder import Feeder
from crkafka_core.region.redeclared import refuse_other_templates
from crkafka_core.verify import in_tables
from crkafka_core.verify.verdict import Findings
from tests.lake.rig import Iceberg, pool, typed_records
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore

Rows = dict[tuple[str, int], int]
"""Topic and checkpoint → rows."""
MEANS = road.Means(pool=pool())


def made(folder: Path, *others: dict[str, Any], topics: tuple[str, ...] = ("shop.a", "shop.b"), **each: Any) -> Landing:
    more: dict[str, Any] = {"batch_of": typed_records} if "typed" in each else {}
    if host := each.pop("host", None):
        more["host"] = host
    template = {"each": "topic", "name": "{topic}", "path": str(folder / "lake" / "{topic}"), **each}
    return Landing(
        MemoryStore(), folder, topics=topics, pattern="^.*", partitions=2, tables=[template, *others], **more
    )


def declared(landing: Landing) -> dict[str, int]:
    """Table → what it has acknowledged."""
    return landing.region.plane.read(lambda reader, _: {t.name: t.acknowledged for t in reader.select(Table)})


def declare(landing: Landing, *, again: bool = False) -> frozenset[str]:
    return templates.declare_new(landing.region.plane, landing.config, again=again)


def feed(landing: Landing) -> None:
    keeper = Feeder(landing.region, means=MEANS)
    while keeper.turn(0.0) and set(declared(landing).values()) != {landing.region.plane.read(lambda _, row: row.head)}:
        pass
    keeper.abandon()


def there(landing: Landing, name: str, format: str = "delta") -> Rows:
    """As a reader counts them that knows nothing of us."""
    path = landing.region.plane.read(lambda reader, _: plane.of(reader, name).path)
    if format == "iceberg":
        rig = object.__new__(Iceberg)
        rig.path, rig.place = Path(path), ("topic", "offset")
        pairs = [(topic, checkpoint) for checkpoint, topic, _ in rig.rows()]
    else:
        rows = DeltaTable(path).to_pyarrow_table(columns=["topic", "crkafka_checkpoint"]).to_pydict()
        pairs = list(zip(rows["topic"], rows["crkafka_checkpoint"], strict=True))
    return {pair: pairs.count(pair) for pair in pairs}


def verified(landing: Landing) -> list[str]:
    found = Findings()
    assert set(in_tables.look(landing.region, found)) == set(declared(landing))
    return list(map(str, found.kept))


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("parts", [None, ["partition"]])
def test_K6_each_topic_has_its_table_and_a_new_one_with_its_first_checkpoint(
    tmp_path: Path, format: str, parts: list[str] | None
) -> None:
    landing = made(tmp_path, format=format, partition_by=parts, **{"except": ["shop.c"]})
    landing.land(5)
    feed(landing)
    assert declared(landing) == {"shop_a": 1, "shop_b": 1}
    landing.new_topic("shop.new")
    landing.new_topic("shop.c")
    landing.land(3)
    landing.land(2, quiet=["shop.a"])
    feed(landing)
    assert declared(landing) == {"shop_a": 3, "shop_b": 3, "shop_new": 3}
    assert there(landing, "shop_a", format) == {("shop.a", 1): 10, ("shop.a", 2): 6}
    assert there(landing, "shop_b", format) == {("shop.b", 1): 10, ("shop.b", 2): 6, ("shop.b", 3): 4}
    assert there(landing, "shop_new", format) == {("shop.new", 2): 3, ("shop.new", 3): 2}
    assert verified(landing) == []


def test_K6_the_table_of_a_new_topic_begins_before_its_first_rows(tmp_path: Path) -> None:
    landing = made(tmp_path, topics=("a",))
    landing.land(1, times=3)
    landing.new_topic("b")
    landing.land(1, quiet=["b"])
    landing.land(1, times=2)
    assert declare(landing) == {"a", "b"}
    assert declared(landing) == {"a": 0, "b": 4}


def test_K6_a_topic_of_which_something_is_archived_has_all_of_it(tmp_path: Path) -> None:
    landing = made(tmp_path, topics=("a", "b"))
    landing.land(1, quiet=["b"], times=3)
    landing.land(1, times=2)
    landing.retire(4)
    declare(landing)
    assert declared(landing) == {"a": 0, "b": 0}


def test_K6_what_has_nothing_of_a_topic_is_acknowledged_for_all_tables_at_once(tmp_path: Path) -> None:
    landing = made(tmp_path, topics=tuple(f"t{i}" for i in range(5)))
    landing.land(1)
    feed(landing)
    landing.land(1, quiet=["t0", "t1", "t2", "t3"])
    landing.land(1, quiet=["t0", "t1", "t2", "t4"])
    assert landing.region.plane.do(passes.pass_over) == 4
    assert declared(landing) == {"t0": 3, "t1": 3, "t2": 3, "t3": 2, "t4": 1}
    assert landing.region.plane.do(passes.pass_over) == 0
    feed(landing)
    assert [there(landing, name) for name in ("t0", "t3", "t4")] == [
        {("t0", 1): 2},
        {("t3", 1): 2, ("t3", 3): 2},
        {("t4", 1): 2, ("t4", 2): 2},
    ]
    assert len(list((tmp_path / "lake" / "t0" / "_delta_log").glob("*.json"))) == 2  # made, and one commit
    assert verified(landing) == []


def test_K6_a_table_that_owes_a_fence_is_not_passed_over(tmp_path: Path) -> None:
    landing = made(tmp_path, topics=("a", "b"))
    landing.land(1, times=2)
    feed(landing)
    landing.rewind(1)
    landing.land(1, quiet=["a"])
    assert landing.region.plane.do(passes.pass_over) == 0
    feed(landing)
    assert (there(landing, "a"), there(landing, "b")) == ({("a", 1): 2}, {("b", 1): 2, ("b", 3): 2})


def test_K6_a_table_without_commits_goes_back_with_a_rewind_and_takes_what_follows(tmp_path: Path) -> None:
    landing = made(tmp_path, topics=("a",))
    landing.land(2, times=2)
    feed(landing)
    landing.new_topic("c")
    declare(landing)
    assert declared(landing) == {"a": 2, "c": 2}
    landing.rewind(1)
    assert declared(landing)["c"] == 1
    landing.offsets[1] |= {TP("c", 0): 0}
    landing.land(4)
    feed(landing)
    assert (there(landing, "a"), there(landing, "c")) == ({("a", 1): 4, ("a", 3): 8}, {("c", 3): 4})
    assert verified(landing) == []


def test_K6_typed_tables_of_topics_have_dead_letters_beside_them(tmp_path: Path) -> None:
    for topic in ("shop.a", "shop.b"):
        kind = {"type": "object", "properties": {"id": {"type": "integer"}, "who": {"type": "string"}}}
        (tmp_path / f"{topic}.json").write_text(json.dumps(kind))
    landing = made(tmp_path, typed={"json": str(tmp_path / "{topic}.json")}, partition_by=["who"])
    landing.land(10)
    landing.land(10, quiet=["shop.b"])
    feed(landing)
    assert declared(landing) == dict.fromkeys(("shop_a", "shop_a_dead", "shop_b", "shop_b_dead"), 2)
    rows = DeltaTable(tmp_path / "lake" / "shop.a").to_pyarrow_table()
    assert (rows.num_rows, {*rows["kafka_topic"].to_pylist()}) == (36, {"shop.a"})
    assert there(landing, "shop_b_dead") == {("shop.b", 1): 2}
    assert verified(landing) == []
    assert _not_decoded(landing, "shop_a") == {1: 2, 2: 2} and _not_decoded(landing, "shop_a_dead") == {}


def _not_decoded(landing: Landing, name: str) -> dict[int, int]:
    """As it is counted for a commit that its writer did not live to finish."""

    def ask(reader: Reader, row: Region) -> dict[int, int]:
        table = plane.of(reader, name)
        return standing._not_decoded(landing.region, reader, row, table, plane.commits(reader, table)[0])

    return landing.region.plane.read(ask)


def test_K6_a_table_of_a_topic_is_rewound_replayed_mended_erased_and_undeclared(tmp_path: Path) -> None:
    landing = made(tmp_path)
    region = landing.region
    landing.land(5, times=3)
    feed(landing)
    DeltaTable(tmp_path / "lake" / "shop.a").delete("crkafka_checkpoint = 2")
    found = audit.look(region, "shop_a")
    assert found.miscounted == (2,)
    road.mend(region, "shop_a", found, means=MEANS)
    road.rewrite(region, "shop_b", [1, 2], means=MEANS)
    landing.rewind(2)
    feed(landing)
    assert there(landing, "shop_a") == {("shop.a", 1): 10, ("shop.a", 2): 10}
    erase.note(region, erasure.by_partition([("shop.b", 0, 0), ("shop.b", 0, 7)]))
    for checkpoint in (1, 2):
        road.erase(region, "shop_b", [checkpoint], means=MEANS)
    assert there(landing, "shop_b") == {("shop.b", 1): 9, ("shop.b", 2): 9}
    assert verified(landing) == []
    _undeclare(landing, "shop_b")
    landing.land(1)
    feed(landing)
    assert declared(landing) == {"shop_a": 4}
    declare(landing, again=True)
    feed(landing)
    assert there(landing, "shop_b") == {("shop.b", 1): 9, ("shop.b", 2): 9, ("shop.b", 4): 2}


def test_K6_a_topic_that_goes_keeps_its_table_which_takes_part_in_what_follows(tmp_path: Path) -> None:
    landing = made(tmp_path)
    landing.land(5)
    feed(landing)
    gone = [replace(i, forgotten=True) for i in _initials(landing) if i.topic == "shop.b"]
    landing.region.plane.do(lambda tx: tx.put(*gone))
    landing.land(5, quiet=["shop.b"])
    feed(landing)
    assert declared(landing) == {"shop_a": 2, "shop_b": 2}
    assert there(landing, "shop_b") == {("shop.b", 1): 10}


def test_K6_a_topic_whose_table_would_clash_has_dead_letters_and_an_alarm(tmp_path: Path) -> None:
    landing = made(tmp_path, topics=("shop.a", "shop_a", "x" * 200))
    landing.land(5)
    feed(landing)
    first, *unplaced = sorted(declared(landing))
    assert first == "shop_a" and len(unplaced) == 2 and all(name.startswith(UNPLACED) for name in unplaced)
    assert {topic for name in unplaced for topic, _ in there(landing, name)} == {"shop_a", "x" * 200}
    told = landing.region.plane.read(lateness.late)
    assert len(told) == 2 and all("has no table of its own" in text for text in told)
    assert verified(landing) == []


def _initials(landing: Landing) -> list[Initial]:
    return landing.region.plane.read(lambda reader, _: reader.select(Initial))


def test_K6_a_topic_with_the_name_of_a_table_that_has_rows_has_dead_letters_until_they_are_undeclared(
    tmp_path: Path,
) -> None:
    landing = made(tmp_path, {"name": "orders", "path": str(tmp_path / "orders")})
    landing.land(1)
    feed(landing)
    landing.new_topic("orders")
    landing.land(1)
    feed(landing)
    (unplaced,) = (name for name in declared(landing) if name.startswith(UNPLACED))
    assert there(landing, unplaced) == {("orders", 2): 1}
    _undeclare(landing, unplaced)
    landing.land(1)
    feed(landing)
    assert set(declared(landing)) == {"orders", "shop_a", "shop_b"}


def _undeclare(landing: Landing, name: str) -> None:
    landing.region.plane.do(lambda tx: plane.undeclare(tx, name))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": "t_{topic}"}, "Table shop_a .* would make it t_shop_a"),
        ({"format": "iceberg"}, "Table shop_a .* would make it shop_a, iceberg"),
        (
            {"name": "t_{topic}", "path": "other/{topic}"},
            "2 tables that no template gives .*: shop_a, shop_b.* undeclare shop_a`, `crkafka",
        ),
        ({"except": ["shop.b"]}, "1 table that no template gives .* `crkafka tables undeclare shop_b` first"),
        ({"topics": ["^shop"]}, ""),
    ],
)
def test_K6_a_template_by_which_the_table_of_a_topic_would_be_another_is_refused(
    tmp_path: Path, change: dict[str, Any], text: str
) -> None:
    landing = made(tmp_path)
    landing.land(1)
    declare(landing)
    known = landing.region.plane.read(lambda reader, _: reader.select(Table))
    with pytest.raises(Refused, match=text) if text else nullcontext():
        refuse_other_templates(_with_template(landing, tmp_path, change), known)


def _with_template(landing: Landing, folder: Path, change: dict[str, Any]) -> RegionConfig:
    written = json.loads(landing.config.to_json())
    written["tables"][0] |= change
    return RegionConfig.parse(written, base=folder)


def test_K6_other_partitions_of_a_template_are_refused_with_a_way_out(tmp_path: Path) -> None:
    landing = made(tmp_path)
    landing.land(1)
    feed(landing)
    landing.land(1)
    region = Opened(_with_template(landing, tmp_path, {"partition_by": ["partition"]}), landing.region.plane)
    with pytest.raises(Refused, match=r"as it was, or .* write `except: \[shop.a\]` beside its template"):
        road.advance(region, "shop_a", means=MEANS)


@pytest.mark.parametrize("commits", [True, False])
def test_K6_an_undeclared_table_comes_back_only_when_it_is_asked_for(tmp_path: Path, commits: bool) -> None:
    landing = made(tmp_path)
    landing.land(5, quiet=[] if commits else ["shop.b"])
    declare(landing)
    if commits:
        feed(landing)
    _undeclare(landing, "shop_b")
    declare(landing)
    assert set(declared(landing)) == {"shop_a"}
    declare(landing, again=True)
    landing.land(3)
    feed(landing)
    assert there(landing, "shop_b") == ({("shop.b", 1): 10} if commits else {}) | {("shop.b", 2): 6}
    assert verified(landing) == []


@pytest.mark.parametrize("gone", ["shop_b", "shop_b_dead"])
def test_K6_one_of_a_topics_tables_that_was_undeclared_is_declared_again_by_itself(tmp_path: Path, gone: str) -> None:
    for topic in ("shop.a", "shop.b"):
        (tmp_path / f"{topic}.json").write_text(
            json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})
        )
    landing = made(tmp_path, typed={"json": str(tmp_path / "{topic}.json")})
    landing.land(10)
    feed(landing)
    _undeclare(landing, gone)
    declare(landing)
    assert gone not in declared(landing)
    declare(landing, again=True)
    landing.land(10)
    feed(landing)
    assert declared(landing) == dict.fromkeys(("shop_a", "shop_a_dead", "shop_b", "shop_b_dead"), 2)
    assert there(landing, "shop_b_dead") == {("shop.b", 1): 2, ("shop.b", 2): 2}
    assert verified(landing) == []


def test_K6_a_name_that_was_undeclared_is_free_for_another_topic(tmp_path: Path) -> None:
    landing = made(tmp_path, topics=("a.b",))
    landing.land(5)
    feed(landing)
    _undeclare(landing, "a_b")
    landing.new_topic("a_b")
    landing.land(3)
    feed(landing)
    assert declared(landing) == {"a_b": 2}
    assert there(landing, "a_b") == {("a_b", 2): 3}
    assert DeltaTable(tmp_path / "lake" / "a.b").to_pyarrow_table().num_rows == 10
    assert verified(landing) == []


def test_K6_a_name_in_a_catalog_that_was_undeclared_is_not_free_for_another_topic(tmp_path: Path) -> None:
    conf = {"spark.sql.catalog.lake.type": "hadoop", "spark.sql.catalog.lake.warehouse": str(tmp_path / "warehouse")}
    keys = {"path": "lake.bronze.{topic}", "format": "iceberg", "host": {"processes": True, "conf": conf}}
    landing = made(tmp_path, topics=("a.b", "c"), **keys)
    landing.land(1)
    declare(landing)
    assert set(declared(landing)) == {"a_b", "c"}
    _undeclare(landing, "a_b")
    landing.new_topic("a_b")
    landing.land(1)
    declare(landing)
    (unplaced,) = set(declared(landing)) - {"c"}
    assert unplaced.startswith(UNPLACED)


@pytest.mark.parametrize("dies", ["declared", "written"])
def test_K6_who_dies_between_declaring_and_writing_leaves_it_to_the_next(
    tmp_path: Path, dies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = made(tmp_path)
    landing.land(5)
    declare(landing)
    if dies == "written":
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("crkafka_core.plane.permits.finish_commit", _dead)
            road.advance(landing.region, "shop_a", means=MEANS)
    feed(landing)
    assert there(landing, "shop_a") == {("shop.a", 1): 10}
    assert verified(landing) == []


def _dead(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt
