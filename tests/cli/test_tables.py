"""`crkafka tables`, `tables advance`, `tables mend` and `verify` of tables that adopt segments: without Spark (SPEC K6)."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.compute as pc
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

from checkpoints_db import initialise, open_store
from crkafka_core.lake.writing import each
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.rows import Table
from crkafka_core.model.segment import segment_path
from crkafka_core.plane import lateness, leases
from crkafka_core.verify import verify as verifying
from crkafka_core.verify.history import History
from crkafka_core.verify.landed import orphans
from crkafka_core.verify.verdict import Findings
from tests.cli.conftest import Crkafka
from tests.rigs.landing import Landing
from tests.rigs.until import until


@pytest.fixture
def landing(region_file: Path, tmp_path: Path) -> Landing:
    return landed(tmp_path, "bronze")


def landed(tmp_path: Path, *names: str) -> Landing:
    """Three checkpoints that wait for these tables."""
    url = f"sqlite:///{tmp_path}/crkafka.db"
    initialise(url)
    declared = [{"name": name, "format": "delta", "path": str(tmp_path / name)} for name in names]
    made = Landing(open_store(url), tmp_path, partitions=2, control_plane=url, tables=declared, host="processes")
    (tmp_path / "region.yaml").write_text(yaml.safe_dump(json.loads(made.config.to_json())))
    for _ in range(3):
        made.land(5)
    return made


def test_a_configuration_may_be_named_behind_the_verb_of_tables(
    landing: Landing, crkafka: Crkafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert crkafka("tables", "advance", "-c", str(tmp_path / "region.yaml")).code == 0


def test_a_late_table_is_seen_and_brought_up_to_date_by_hand(
    landing: Landing, crkafka: Crkafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shown,) = crkafka("tables", "--json").json
    assert (shown["waiting"], shown["late"], shown["table"]["layout"]) == (3, "", "files")
    monkeypatch.setattr(lateness, "LATE", -1.0)
    late = crkafka("tables")
    assert late.code == 1 and "late" in late.out
    assert crkafka("tables", "advance").out == "bronze: 30 rows of 3 checkpoints; at 3\n"
    assert crkafka("tables").code == 0
    assert crkafka("tables", "advance", "bronze").out == "every table has all checkpoints\n"
    assert DeltaTable(str(tmp_path / "bronze")).to_pyarrow_table().num_rows == 30


def test_maintain_makes_few_files_of_many(landing: Landing, crkafka: Crkafka, tmp_path: Path) -> None:
    crkafka("tables", "advance")
    landing.retire(1, 2)
    assert crkafka("tables", "maintain").out == "bronze: 1 made of 4 files\n"
    again = crkafka("tables", "maintain", "bronze", "--json")
    assert again.json == [{"table": "bronze", "merged": 0, "into": 0, "deleted": 0}]
    assert len(DeltaTable(str(tmp_path / "bronze")).file_uris()) == 3
    assert crkafka("tables", "mend", "--look").code == 0


def test_maintain_of_a_table_that_is_not_there_says_so(landing: Landing, crkafka: Crkafka, tmp_path: Path) -> None:
    """The answer was that it has no small files."""
    assert crkafka("tables", "maintain").code == 0, "no rows yet"
    crkafka("tables", "advance")
    (tmp_path / "bronze").rename(tmp_path / "away")
    answer = crkafka("tables", "maintain")
    assert (answer.code, answer.out) == (1, "")
    assert "is not there, and version 1 of it was acknowledged" in answer.err
    assert "`crkafka tables undeclare bronze`" in answer.err
    assert not (tmp_path / "bronze").exists()


def test_erase_takes_the_records_of_a_file_out_for_good(landing: Landing, crkafka: Crkafka, tmp_path: Path) -> None:
    crkafka("tables", "advance")
    names = tmp_path / "records.csv"
    names.write_text("\ufefftopic,partition,offset\norders,0,3\norders,1,7\n\norders,0,3\n")  # as spreadsheets write it
    asked = crkafka("erase", str(names))
    assert asked.code == 2
    assert "2 records leave every table of region orders for good. Say --yes" in asked.err
    for _ in range(2):  # again changes nothing
        assert crkafka("erase", str(names), "--yes").out == "2 records of 2 checkpoints erased\n"
    assert crkafka("tables", "replay", "bronze", "--after", "0", "--upto", "3").out.startswith(
        "28 rows of 3 checkpoints"
    )
    assert crkafka("tables", "mend", "--look").code == 0
    left = DeltaTable(str(tmp_path / "bronze")).to_pyarrow_table().select(["partition", "offset"]).to_pylist()
    assert len(left) == 28 and not {(0, 3), (1, 7)} & {(row["partition"], row["offset"]) for row in left}
    for data, text in (
        (b"orders,0", "line 1 of"),
        (b"orders,0,99", "orders[0] offset 99"),
        (b"", "names no record"),
        ("orders,0,3".encode("utf-16"), "is no CSV in UTF-8"),
    ):
        names.write_bytes(data)
        refused = crkafka("erase", str(names), "--yes")
        assert refused.code and text in refused.err, refused


def test_a_ledger_that_is_none_is_told(landing: Landing, crkafka: Crkafka) -> None:
    answer = crkafka("verify", "--no-kafka", "--ledger", "region.yaml")
    assert (answer.code, answer.err.endswith("region.yaml is not the ledger of a generator.\n")) == (2, True)


def test_what_was_written_since_a_reset_during_verify_is_no_orphan(landing: Landing) -> None:
    history = landing.region.plane.read(History)
    epoch, head, storage = history.region.epoch, history.region.head, landing.region.storage()
    for path in (
        segment_path(landing.uid, epoch + 1, "later", head + 1, 0),
        segment_path(landing.uid, epoch - 1, "dead", head, 0),
    ):
        (Path(storage.root) / path).parent.mkdir(exist_ok=True)
        (Path(storage.root) / path).touch()
    assert orphans(history, storage) == 1


def test_a_verify_that_dies_holds_retirement_back_for_minutes_and_one_that_lives_as_long_as_it_reads(
    landing: Landing, crkafka: Crkafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed one held it for an hour."""
    monkeypatch.setattr(verifying, "_HOLD", 0.6)
    plane = landing.region.plane

    def ends() -> list[float]:
        return [lease.until for lease in plane.read(lambda reader, _: leases.held(reader, "reader"))]

    with verifying._held(landing.region, Findings()):
        (first,) = ends()
        assert first - plane.read(lambda reader, _: reader.now()) < 1.0
        assert "read by" in crkafka("show").out
        until(lambda: ends() not in ([first], []))
    assert ends() == []


def test_verify_and_mend_look_at_tables(landing: Landing, crkafka: Crkafka, tmp_path: Path) -> None:
    crkafka("tables", "advance")
    assert crkafka("tables", "mend", "--look").code == 0
    assert landing.region.plane.read(lateness.late) == []
    delta = DeltaTable(str(tmp_path / "bronze"))
    write_deltalake(delta, delta.to_pyarrow_table(), mode="append")
    looked = crkafka("tables", "mend", "--look")
    assert looked.code == 1
    assert looked.out == "bronze: other rows than were merged of checkpoints 1, 2, 3, 1 commit of another program\n"
    verdict = crkafka("verify", "--no-kafka", "--json").json
    assert not verdict["ok"] and verdict["tables"] == ["bronze"]
    assert "table bronze: 5 records are there more than once" in [f["text"] for f in verdict["findings"]]


@pytest.mark.parametrize("verb", ["mend", "advance", "maintain"])
def test_a_table_that_is_refused_keeps_no_other_from_its_turn(crkafka: Crkafka, tmp_path: Path, verb: str) -> None:
    """The verb ended at the first refused table."""
    landing = landed(tmp_path, "first", "second", "third")
    assert crkafka("tables", "advance").code == 0
    for name in ("first", "second"):
        (tmp_path / name).rename(tmp_path / f"{name}_away")
    landing.retire(1, 2), landing.land(5)
    third = DeltaTable(str(tmp_path / "third"))
    if verb == "mend":
        write_deltalake(third, third.to_pyarrow_table().filter(pc.field("offset") >= 10), mode="append")
    answer = crkafka("tables", verb)
    assert answer.code == 1
    assert [line for line in answer.out.splitlines() if "third: " in line] == answer.out.splitlines() != []
    refused = [line for line in answer.err.splitlines() if "of it was acknowledged" in line]
    assert [name for name in ("first", "second", "third") for line in refused if f"Table {name} at" in line] == [
        "first",
        "second",
    ]
    if verb == "mend":
        assert crkafka("tables", "mend", "third", "--look").code == 0


def test_the_shape_of_a_table_is_declared_with_the_region(crkafka: Crkafka, tmp_path: Path) -> None:
    """The shape was not declared: host, Dagster and replay would have written raw records."""
    (tmp_path / "order.json").write_text('{"type": "object", "properties": {"id": {"type": "integer"}}}')
    tables = [
        {"name": "shaped", "format": "delta", "path": "lake/shaped", "shape": "shop.shapes:typed", "output": "dead"},
        {"name": "typed", "format": "delta", "path": "lake/typed", "typed": {"json": "order.json"}},
    ]
    keys = {
        "region": "orders",
        "control_plane": "sqlite:///crkafka.db",
        "storage": "segments",
        "topics": ["orders"],
        "tables": tables,
        "kafka": {"bootstrap.servers": "localhost:1", "group.id": "orders"},
    }
    (tmp_path / "region.yaml").write_text(yaml.safe_dump(keys))
    assert crkafka("init").code == 0
    found = open_store(f"sqlite:///{tmp_path}/crkafka.db")
    with found.read("orders") as reader:
        said = {t.name: (t.shape, t.output, t.layout) for t in reader.select(Table)}
    assert said == {
        "shaped": ("shop.shapes:typed", "dead", "files"),
        "typed": ("crkafka.typed:typed", "", "files"),
        "typed_dead": ("crkafka.typed:typed", "dead", "files"),
    }


def test_a_replay_into_a_table_that_adopts_needs_no_spark_and_leaves_what_has_not_come_yet(
    landing: Landing, crkafka: Crkafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("crkafka_core.spark.session.open_session", none)
    assert crkafka("tables", "advance", "bronze").code == 0
    landing.land(5)
    again = crkafka("tables", "replay", "bronze", "--after", "0", "--upto", "2")
    assert "20 rows of 2 checkpoints written into bronze" in again.out and "turn" not in again.err
    again = crkafka("tables", "replay", "bronze", "--after", "0", "--upto", "4")
    assert "30 rows of 3 checkpoints written into bronze" in again.out, "the fourth comes in its turn"
    assert crkafka("tables", "advance", "bronze").code == 0
    found = DeltaTable(str(tmp_path / "bronze")).to_pyarrow_table(columns=["partition", "offset"])
    assert found.num_rows == len(set(zip(*(c.to_pylist() for c in found.columns), strict=True))) == 40


def test_K6_the_table_of_a_topic_is_a_table_like_any_other_in_every_verb(crkafka: Crkafka, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/crkafka.db"
    initialise(url)
    table = {"each": "topic", "name": "{topic}", "path": str(tmp_path / "lake" / "{topic}")}
    keys = {"control_plane": url, "tables": [table], "host": "processes"}
    landing = Landing(open_store(url), tmp_path, topics=("shop.a", "shop.b"), pattern="^shop.*", partitions=1, **keys)
    (tmp_path / "region.yaml").write_text(yaml.safe_dump(json.loads(landing.config.to_json())))
    landing.land(5)
    assert "shop_a: 5 rows of 1 checkpoint; at 1" in crkafka("tables", "advance").out
    assert crkafka("tables", "replay", "shop_b", "--after", "0", "--upto", "1").code == 0
    for verb in ("mend", "maintain"):
        assert crkafka("tables", verb).code == 0
    shown = {lag["table"]["name"]: lag["table"]["acknowledged"] for lag in crkafka("tables", "--json").json}
    assert shown == {"shop_a": 1, "shop_b": 1}
    assert "write `except: [shop.b]` beside its template" in crkafka("tables", "undeclare", "shop_b", "--yes").err
    landing.land(5)
    assert "shop_b" not in crkafka("tables", "advance").out
    assert crkafka("init").code == 0
    assert "shop_b: 5 rows of 1 checkpoint; at 2" in crkafka("tables", "advance").out, (
        "what it held is acknowledged again"
    )
    text = (tmp_path / "region.yaml").read_text()
    (tmp_path / "region.yaml").write_text(text.replace("format: delta", "format: iceberg"))
    refused = crkafka("init")
    assert (refused.code, "its template would make it shop_a, iceberg" in refused.err) == (1, True)
    (tmp_path / "region.yaml").write_text(text.replace("name: '{topic}'", "name: x_{topic}"))
    refused = crkafka("tables", "advance")
    assert (refused.code, "its template would make it x_shop_a" in refused.err) == (1, True)
    assert {lag["table"]["name"] for lag in crkafka("tables", "--json").json} == {"shop_a", "shop_b"}, (
        "none is unplaced"
    )


def test_one_reason_for_which_several_tables_are_refused_is_given_once() -> None:
    def refuse(name: str) -> None:
        raise ConfigError("It cannot follow its schema." if name != "other" else "It is not there.")

    told: list[str] = []
    with pytest.raises(ConfigError, match="follow"):
        each(["typed", "typed_dead", "other"], refuse).end(told.append)
    assert told == ["It is not there."]
