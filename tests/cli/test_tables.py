"""`crkafka tables`, `tables advance`, `tables mend` and `verify` of tables that adopt segments: without Spark (SPEC K6)."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow.compute as pc
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

from checkpoints_db import initialise, open_store
from crkafka_core.cli import checks, proving
from crkafka_core.cli import tables as tables_verb
from crkafka_core.cli.main import run
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.rows import Table
from crkafka_core.model.segment_name import segment_path
from crkafka_core.plane import lateness, leases
from crkafka_core.verify import verify as verifying
from crkafka_core.verify.history import History
from crkafka_core.verify.landed import orphans
from crkafka_core.verify.verdict import Findings
from tests.rigs.landing import Landing


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
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
    landing: Landing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert run(["tables", "advance", "-c", str(tmp_path / "region.yaml")]) == 0


def crkafka(folder: Path, *arguments: str) -> int:
    return run(["-c", str(folder / "region.yaml"), *arguments])


def test_a_late_table_is_seen_and_brought_up_to_date_by_hand(
    landing: Landing, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert crkafka(tmp_path, "tables", "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["waiting"], found["late"], found["table"]["layout"]) == (3, "", "files")
    monkeypatch.setattr(lateness, "LATE", -1.0)
    assert crkafka(tmp_path, "tables") == 1
    assert "late" in capsys.readouterr().out
    assert crkafka(tmp_path, "tables", "advance") == 0
    assert capsys.readouterr().out == "bronze: 30 rows of 3 checkpoints; at 3\n"
    assert crkafka(tmp_path, "tables") == 0
    assert crkafka(tmp_path, "tables", "advance", "bronze") == 0
    assert DeltaTable(str(tmp_path / "bronze")).to_pyarrow_table().num_rows == 30


def test_maintain_makes_few_files_of_many(landing: Landing, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crkafka(tmp_path, "tables", "advance")
    landing.retire(1, 2)
    capsys.readouterr()
    assert crkafka(tmp_path, "tables", "maintain") == 0
    assert capsys.readouterr().out == "bronze: 1 made of 4 files\n"
    assert crkafka(tmp_path, "tables", "maintain", "bronze", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [{"table": "bronze", "merged": 0, "into": 0, "deleted": 0}]
    assert len(DeltaTable(str(tmp_path / "bronze")).file_uris()) == 3
    assert crkafka(tmp_path, "tables", "mend", "--look") == 0


def test_maintain_of_a_table_that_is_not_there_says_so(
    landing: Landing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The answer was that it has no small files."""
    assert crkafka(tmp_path, "tables", "maintain") == 0, "no rows yet"
    crkafka(tmp_path, "tables", "advance")
    (tmp_path / "bronze").rename(tmp_path / "away")
    capsys.readouterr()
    assert crkafka(tmp_path, "tables", "maintain") == 1
    said = capsys.readouterr()
    assert not said.out
    assert (
        "is not there, and version 1 of it was acknowledged" in said.err
        and "`crkafka tables undeclare bronze`" in said.err
    )
    assert not (tmp_path / "bronze").exists()


def test_erase_takes_the_records_of_a_file_out_for_good(
    landing: Landing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crkafka(tmp_path, "tables", "advance")
    capsys.readouterr()
    names = tmp_path / "records.csv"
    names.write_text("\ufefftopic,partition,offset\norders,0,3\norders,1,7\n\norders,0,3\n")  # as spreadsheets write it
    assert crkafka(tmp_path, "erase", str(names)) == 2
    assert "2 records leave every table of region orders for good. Say --yes" in capsys.readouterr().err
    for _ in range(2):  # again changes nothing
        assert crkafka(tmp_path, "erase", str(names), "--yes") == 0
        assert capsys.readouterr().out == "2 records of 2 checkpoints erased\n"
    assert crkafka(tmp_path, "tables", "replay", "bronze", "--after", "0", "--upto", "3") == 0
    assert capsys.readouterr().out.startswith("28 rows of 3 checkpoints written")
    assert crkafka(tmp_path, "tables", "mend", "--look") == 0
    left = DeltaTable(str(tmp_path / "bronze")).to_pyarrow_table().select(["partition", "offset"]).to_pylist()
    assert len(left) == 28 and not {(0, 3), (1, 7)} & {(row["partition"], row["offset"]) for row in left}
    for text, said in (("orders,0", "line 1 of"), ("orders,0,99", "orders[0] offset 99"), ("", "names no record")):
        names.write_text(text)
        assert crkafka(tmp_path, "erase", str(names), "--yes") != 0
        assert said in capsys.readouterr().err


def test_a_ledger_that_is_none_is_told(landing: Landing, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "region.yaml")
    assert crkafka(tmp_path, "verify", "--no-kafka", "--ledger", file) == 2
    assert capsys.readouterr().err.endswith(f"{file} is not the ledger of a generator.\n")


def test_a_list_of_records_that_is_no_text_is_told(
    landing: Landing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = tmp_path / "records.csv"
    names.write_bytes("orders,0,3".encode("utf-16"))
    assert crkafka(tmp_path, "erase", str(names), "--yes") == 2
    assert "is no CSV in UTF-8" in capsys.readouterr().err


def test_verify_says_when_an_orphan_is_collected(
    landing: Landing, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`retire` right after it deleted none, without a reason."""
    monkeypatch.setattr("crkafka_core.verify.verify.orphans", lambda *_, **__: 1)
    crkafka(tmp_path, "verify", "--no-kafka")
    said = capsys.readouterr()
    assert (
        "1 orphaned file, invisible to readers; `crkafka retire` collects it once the head is past where it began"
        in said.err
    )
    assert "compared with nothing" in said.out


def test_what_was_written_since_a_reset_during_verify_is_no_orphan(landing: Landing) -> None:
    history = landing.region.plane.read(History.read)
    epoch, head, storage = history.region.epoch, history.region.head, landing.region.storage()
    for path in (
        segment_path(landing.uid, epoch + 1, "later", head + 1, 0),
        segment_path(landing.uid, epoch - 1, "dead", head, 0),
    ):
        (Path(storage.root) / path).parent.mkdir(exist_ok=True)
        (Path(storage.root) / path).touch()
    assert orphans(history, storage, Findings(), collected=False) == 1


def test_a_verify_that_dies_holds_retirement_back_for_minutes_and_one_that_lives_as_long_as_it_reads(
    landing: Landing, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed one held it for an hour."""
    monkeypatch.setattr(verifying, "_HOLD", 0.6)
    plane = landing.region.plane

    def until() -> list[float]:
        return [lease.until for lease in plane.read(lambda reader, _: leases.held(reader, "reader"))]

    with verifying._held(landing.region, Findings()):
        (first,) = until()
        assert first - plane.read(lambda reader, _: reader.now()) < 1.0
        assert "read by" in (crkafka(tmp_path, "show"), capsys.readouterr().out)[1]
        end = time.monotonic() + 20
        while until() == [first] or not until():
            assert time.monotonic() < end
            time.sleep(0.05)
    assert until() == []


def test_of_a_table_by_key_records_are_counted_and_not_its_rows(
    landing: Landing, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables_verb, "_by_key", lambda config, table: True)
    assert crkafka(tmp_path, "tables", "advance") == 0
    assert capsys.readouterr().out == "bronze: 30 records of 3 checkpoints; at 3\n"


def test_verify_and_mend_look_at_tables(landing: Landing, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crkafka(tmp_path, "tables", "advance")
    assert crkafka(tmp_path, "tables", "mend", "--look") == 0
    assert proving.late(landing.config) == []
    delta = DeltaTable(str(tmp_path / "bronze"))
    write_deltalake(delta, delta.to_pyarrow_table(), mode="append")
    capsys.readouterr()
    assert crkafka(tmp_path, "tables", "mend", "--look") == 1
    assert (
        capsys.readouterr().out
        == "bronze: other rows than were merged of checkpoints 1, 2, 3, 1 commit of another program\n"
    )
    crkafka(tmp_path, "verify", "--no-kafka", "--json")
    told = json.loads(capsys.readouterr().out)
    assert not told["ok"] and told["tables"] == ["bronze"]
    assert "table bronze: 5 records are there more than once" in [f["text"] for f in told["findings"]]


@pytest.mark.parametrize("verb", ["mend", "advance", "maintain"])
def test_a_table_that_is_refused_keeps_no_other_from_its_turn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    """The verb ended at the first refused table."""
    landing = landed(tmp_path, "first", "second", "third")
    assert crkafka(tmp_path, "tables", "advance") == 0
    for name in ("first", "second"):
        (tmp_path / name).rename(tmp_path / f"{name}_away")
    landing.retire(1, 2), landing.land(5)
    third = DeltaTable(str(tmp_path / "third"))
    if verb == "mend":
        write_deltalake(third, third.to_pyarrow_table().filter(pc.field("offset") >= 10), mode="append")
    capsys.readouterr()
    assert crkafka(tmp_path, "tables", verb) == 1
    said = capsys.readouterr()
    assert [line for line in said.out.splitlines() if "third: " in line] == said.out.splitlines() != []
    refused = [line for line in said.err.splitlines() if "of it was acknowledged" in line]
    assert [name for name in ("first", "second", "third") for line in refused if f"Table {name} at" in line] == [
        "first",
        "second",
    ]
    if verb == "mend":
        assert crkafka(tmp_path, "tables", "mend", "third", "--look") == 0


def test_a_package_that_the_table_needs_is_missed_before_the_start(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match="deltalake is not installed"):
        checks.host(landing.config, checks.stored(landing.config))


def test_the_shape_of_a_table_is_declared_with_the_region(tmp_path: Path) -> None:
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
    assert crkafka(tmp_path, "init") == 0
    found = open_store(f"sqlite:///{tmp_path}/crkafka.db")
    with found.read("orders") as reader:
        said = {t.name: (t.shape, t.output, t.layout) for t in reader.select(Table)}
    assert said == {
        "shaped": ("shop.shapes:typed", "dead", "files"),
        "typed": ("crkafka.typed:typed", "", "files"),
        "typed_dead": ("crkafka.typed:typed", "dead", "files"),
    }


def test_a_replay_into_a_table_that_adopts_needs_no_spark_and_leaves_what_has_not_come_yet(
    landing: Landing, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("crkafka_core.spark.session.open_session", none)
    assert crkafka(tmp_path, "tables", "advance", "bronze") == 0
    landing.land(5)
    capsys.readouterr()
    assert crkafka(tmp_path, "tables", "replay", "bronze", "--after", "0", "--upto", "2") == 0
    said = capsys.readouterr()
    assert "20 rows of 2 checkpoints written into bronze" in said.out and "turn" not in said.err
    assert crkafka(tmp_path, "tables", "replay", "bronze", "--after", "0", "--upto", "4") == 0
    assert "30 rows of 3 checkpoints written into bronze" in capsys.readouterr().out, "the fourth comes in its turn"
    assert crkafka(tmp_path, "tables", "advance", "bronze") == 0
    found = DeltaTable(str(tmp_path / "bronze")).to_pyarrow_table(columns=["partition", "offset"])
    assert found.num_rows == len(set(zip(*(c.to_pylist() for c in found.columns), strict=True))) == 40


def test_K6_the_table_of_a_topic_is_a_table_like_any_other_in_every_verb(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/crkafka.db"
    initialise(url)
    table = {"each": "topic", "name": "{topic}", "path": str(tmp_path / "lake" / "{topic}")}
    keys = {"control_plane": url, "tables": [table], "host": "processes"}
    landing = Landing(open_store(url), tmp_path, topics=("shop.a", "shop.b"), pattern="^shop.*", partitions=1, **keys)
    (tmp_path / "region.yaml").write_text(yaml.safe_dump(json.loads(landing.config.to_json())))
    landing.land(5)
    assert crkafka(tmp_path, "tables", "advance") == 0
    assert "shop_a: 5 rows of 1 checkpoint; at 1" in capsys.readouterr().out
    assert crkafka(tmp_path, "tables", "replay", "shop_b", "--after", "0", "--upto", "1") == 0
    for verb in ("mend", "maintain"):
        assert crkafka(tmp_path, "tables", verb) == 0
    capsys.readouterr()
    assert crkafka(tmp_path, "tables", "--json") == 0
    shown = {lag["table"]["name"]: lag["table"]["acknowledged"] for lag in json.loads(capsys.readouterr().out)}
    assert shown == {"shop_a": 1, "shop_b": 1}
    assert crkafka(tmp_path, "tables", "undeclare", "shop_b", "--yes") == 0
    assert "write `except: [shop.b]` beside its template" in capsys.readouterr().err
    landing.land(5)
    assert crkafka(tmp_path, "tables", "advance") == 0
    assert "shop_b" not in capsys.readouterr().out
    assert crkafka(tmp_path, "init") == 0 and crkafka(tmp_path, "tables", "advance") == 0
    assert "shop_b: 5 rows of 1 checkpoint; at 2" in capsys.readouterr().out, "what it held is acknowledged again"
    text = (tmp_path / "region.yaml").read_text()
    (tmp_path / "region.yaml").write_text(text.replace("format: delta", "format: iceberg"))
    assert crkafka(tmp_path, "init") == 1
    assert "its template would make it shop_a, iceberg" in capsys.readouterr().err
