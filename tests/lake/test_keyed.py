"""Tables with one row for each key: the last record wins, marks come and go, a rewind goes back to a version (SPEC K6, X4)."""

from __future__ import annotations

import dataclasses
import os
import random
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, QueryBuilder

from crkafka_core.control import Reader
from crkafka_core.lake import audit, road
from crkafka_core.lake.iceberg import values
from crkafka_core.lake.keyed import Keys
from crkafka_core.lake.port import CHECKPOINT, DataFile
from crkafka_core.lake.vectors import Positions
from crkafka_core.model.errors import ConfigError, Refused
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Region
from crkafka_core.plane import contents, retire
from crkafka_core.segments.batch import Batch
from crkafka_core.segments.local import LocalStorage
from tests.lake.rig import Keyed, KeyedIceberg, keyed_records, pool
from tests.lake.steps import filled
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore

MEANS = road.Means(pool=pool())


@pytest.fixture(params=[Keyed, KeyedIceberg], ids=["delta", "iceberg"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Keyed:
    made: Keyed = request.param(tmp_path)
    return made


def files(rig: Keyed) -> list[DataFile]:
    snapshot = rig.means.logs(rig.region, rig.table()).look()
    assert snapshot is not None
    return [*snapshot.files()]


def test_compaction_leaves_marked_rows_out_and_a_rewind_goes_back_behind_it(rig: Keyed) -> None:
    filled(rig, 5)
    assert any(file.marks for file in files(rig))
    rig.maintain()
    assert [file.marks for file in files(rig)] == [None] and rig.rows() == rig.truth()
    rig.rewind(3)
    rig.fence()
    assert any(file.marks for file in files(rig)) and rig.rows() == rig.truth()
    filled(rig, 2)
    assert rig.rows() == rig.truth() and rig.look().clean


def test_rows_that_are_marked_already_are_not_marked_again(rig: Keyed) -> None:
    """Each change of a key that changes often wrote the marks of all files that have ever had it."""
    rig.land(6)
    rig.advance()

    def of_one_key(tp: TP, start: int, stop: int) -> Batch:
        batch = keyed_records(tp, start, stop)
        keys = pa.array([f"{tp.partition}-0".encode()] * (stop - start), pa.binary())
        return dataclasses.replace(batch, records=batch.records.set_column(0, "key", keys))

    rig.landing._batch_of = of_one_key
    marks = []
    for _ in range(2):
        rig.land(1)
        rig.advance()
        marks.append({file.path: file.marks for file in files(rig) if file.marks})
    kept = marks[0].keys() & marks[1].keys()
    assert kept and all(marks[0][path] == marks[1][path] for path in kept)


def test_a_rewind_into_a_commit_of_several_checkpoints_writes_the_first_of_them_again(rig: Keyed) -> None:
    rig.land(), rig.land(0), rig.land()
    rig.advance()
    filled(rig, 1)
    rig.rewind(2)
    rig.fence()
    assert (rig.table().acknowledged, rig.base.rows(rig.each()[0])) == (0, [])
    rig.advance()
    assert rig.table().acknowledged == 2 and rig.rows() == rig.truth()


def test_a_delete_of_others_that_the_log_was_cleaned_of_is_undone_or_refused(
    rig: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for no change, and its keys were gone."""
    filled(rig, 3)
    good = rig.each()[0]
    before = rig.base.rows(good)
    rig.base.delete(good, 9), rig.base.delete(good, 10)
    after = rig.base.rows(good)
    assert after != before
    if isinstance(rig, KeyedIceberg):  # its tag lets the acknowledged version stay
        monkeypatch.setattr("crkafka_core.lake.iceberg.table._KEPT_S", -1.0)
        rig._log().expire(())
        monkeypatch.undo()
    else:
        table = DeltaTable(str(rig.path))
        table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
        table.create_checkpoint(), table.cleanup_metadata()
    assert rig.look().foreign
    rig.land()
    if isinstance(rig, KeyedIceberg):
        rig.advance()
        assert rig.rows() == rig.truth() and rig.look().clean
        return
    for again in range(2):
        with pytest.raises(Refused, match="cannot go back to checkpoint 3, its version"):
            rig.advance() if again else rig.mend()
    assert rig.base.rows(good) == after


def test_a_version_whose_files_are_gone_is_named_and_nothing_changes(tmp_path: Path) -> None:
    rig = filled(Keyed(tmp_path))
    before = rig.rows()
    rig.maintain()
    DeltaTable(str(rig.path)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    rig.rewind(1)
    with pytest.raises(Refused, match=r"cannot go back to checkpoint 1, its version .*: its files were deleted"):
        rig.fence()
    assert rig.rows() == before


def test_a_commit_whose_answer_got_lost_keeps_its_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage's client tries again by itself, and finds the name taken by its own first try."""
    rig = filled(Keyed(tmp_path), 3)
    rig.land()
    put_new = LocalStorage.put_new
    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "put_new", lambda *given: put_new(*given) and False)
        rig.advance()
    assert rig.rows() == rig.truth() and rig.look().clean


def test_marks_that_are_not_in_storage_are_reported_as_lost(rig: Keyed) -> None:
    """The table cannot be read, and was called clean."""
    filled(rig, 3)
    lost = next(file for file in files(rig) if file.marks)
    for name in marks_of(lost):
        (rig.path / name).unlink()
    assert lost.path in rig.look().lost
    with pytest.raises(Refused, match="its files were deleted"):
        rig.mend()


def marks_of(file: DataFile) -> set[str]:
    positions = file.marks or ()
    return {*positions.files} if isinstance(positions, Positions) else set()


def test_a_version_whose_marks_are_gone_is_named_and_nothing_changes(rig: Keyed) -> None:
    """The data file lives on with later marks, as Spark's VACUUM leaves it."""
    filled(rig, 3)
    old = set[str]().union(*map(marks_of, files(rig)))
    filled(rig, 1)
    before = rig.rows()
    for name in old - set[str]().union(*map(marks_of, files(rig))):
        (rig.path / name).unlink()
    rig.rewind(3)
    with pytest.raises(Refused, match=r"cannot go back to checkpoint 3, its version .*: its files were deleted"):
        rig.fence()
    assert rig.rows() == before


def test_the_version_before_a_commit_of_a_superseded_line_stays_in_reach(rig: Keyed) -> None:
    """A rewind to 4 begins with the state at 2: the newest commit before it by number is of a line that was left."""
    filled(rig, 3)
    rig.rewind(2)
    rig.fence()
    rig.land(), rig.land()
    rig.advance()
    rig.landing.retire(1, 2, history=10)

    def versions(reader: Reader, row: Region) -> tuple[set[int], str]:
        table = rig.table()
        first = contents.state_at(reader, dataclasses.replace(row, head=4), table)
        return contents.versions_in_reach(reader, row, table), first.version

    kept, needed = rig.region.plane.read(versions)
    assert int(needed) in kept


def test_a_property_that_deltalake_sets_stops_no_commit(tmp_path: Path) -> None:
    """It adds the feature variantType with any."""
    rig = filled(Keyed(tmp_path), 1)
    DeltaTable(str(rig.path)).alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    filled(rig, 1)
    assert rig.rows() == rig.truth()


def test_old_deletion_vectors_stay_as_long_as_a_version_in_reach_or_the_retention_needs_them(tmp_path: Path) -> None:
    """Deltalake lists all of them among the files that no version needs."""
    rig = filled(Keyed(tmp_path), 4)
    for path in (*rig.path.rglob("*.bin"), *rig.path.rglob("*.parquet")):
        os.utime(path, (0, 0))
    there = {path.name for path in rig.path.glob("*.bin")}
    rig.maintain()
    assert rig.rows() == rig.truth() and there <= {path.name for path in rig.path.glob("*.bin")}
    table = DeltaTable(str(rig.path))
    table.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 days"})
    for path in rig.path.glob("_delta_log/*.json"):
        os.utime(path, (0, 0))
    rig.landing.retire(1, 2, 3, history=10)
    rig.maintain()
    assert {path.name for path in rig.path.glob("*.bin")} < there and rig.rows() == rig.truth()
    rig.rewind(4)
    rig.fence()
    assert rig.rows() == rig.truth()


def test_readers_that_know_nothing_of_us_see_one_row_for_each_key(rig: Keyed) -> None:
    filled(rig, 3)
    due = [row for row in rig.truth() if row[2] % 10 != 3]
    columns = f"{CHECKPOINT}, kafka_partition, kafka_offset"
    if isinstance(rig, KeyedIceberg):
        log = rig._log()
        at = f"{rig.path}/{log.newest()[1].file}"
        read = polars.scan_iceberg(at).select(columns.split(", ")).collect().rows()
    else:
        (extension,) = Path(duckdb_extension_delta.__path__[0]).rglob("*.duckdb_extension")
        with duckdb.connect() as connection:
            connection.execute(f"LOAD '{extension}'")
            read = connection.execute(f"SELECT {columns} FROM delta_scan('{rig.path}')").fetchall()
        assert sorted(polars.scan_delta(str(rig.path)).select(columns.split(", ")).collect().rows()) == due
    assert sorted(read) == due == rig.base.rows(rig.each()[0])


@pytest.mark.parametrize("early", [True, False])
def test_the_commit_before_the_oldest_live_checkpoint_is_remembered(
    tmp_path: Path, early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retire, "COMMITS", 1)
    rig = Keyed(tmp_path)
    rig.land(), rig.land(), rig.land()
    rig.advance(limit=2 if early else None), rig.advance()
    filled(rig, 4)
    if early:
        rig.landing.retire(1, 2, history=10)
    rig.region.plane.do(retire.clean_up)
    rig.rewind(3 if early else 1)
    rig.fence()
    assert rig.table().acknowledged == (3 if early else 0)
    rig.advance()
    assert rig.rows() == rig.truth()


def test_a_rewrite_is_refused_and_so_is_a_configuration_with_other_keys_or_none(rig: Keyed) -> None:
    filled(rig, 2)
    with pytest.raises(Refused, match="rows of single checkpoints cannot be written again"):
        rig.rewrite(1)
    rig.land()
    rig.region.config.tables[0].__dict__["keys"] = None
    with pytest.raises(Refused, match="has one row for each kafka_key, and is declared with one for each record"):
        rig.advance()
    rig.rewind(1)
    with pytest.raises(Refused, match="has one row for each kafka_key"):
        rig.fence()


# By a shape


def changes(records: pa.RecordBatch) -> pa.RecordBatch:
    """Five keys of two columns, one of them null at times; every fourth record deletes its key."""
    offset = records.column("offset")
    at = pc.cast(offset, pa.int64()).to_pylist()
    return pa.RecordBatch.from_pydict(
        {
            "partition": records.column("partition"),
            "offset": offset,
            "bank": pa.array([None if o % 5 == 0 else f"b{o % 2}" for o in at], pa.string()),
            "number": pa.array([o % 5 for o in at], pa.int32()),
            "kafka_offset": pa.array([-o for o in at], pa.int64()),  # a column like any other
            "crkafka_deleted": pa.array([o % 4 == 3 for o in at]),
        }
    )


def keyless(records: pa.RecordBatch) -> pa.RecordBatch:
    return changes(records).drop_columns(["number"])


def placeless(records: pa.RecordBatch) -> pa.RecordBatch:
    return changes(records).drop_columns(["partition"])


def textual(records: pa.RecordBatch) -> pa.RecordBatch:
    given = changes(records)
    return given.set_column(1, "offset", given.column("offset").cast(pa.string()))


def parts(records: pa.RecordBatch) -> pa.RecordBatch:
    given = changes(records)
    return given.append_column("id", pa.array([[1]] * given.num_rows, pa.list_(pa.int64())))


def landed(folder: Path, shape: str, keys: list[str]) -> Landing:
    table = {"name": "now", "format": "delta", "path": str(folder / "now"), "mode": "upsert", "keys": keys}
    declared = [{**table, "shape": f"arrow:tests.lake.test_keyed:{shape}"}]
    return Landing(MemoryStore(), folder, partitions=2, members=2, tables=declared)


def test_a_shape_names_its_keys_and_says_which_records_delete_one(tmp_path: Path) -> None:
    landing = landed(tmp_path, "changes", ["bank", "number"])
    for last in (6, 11, 17, 20):
        landing.land(last - landing.offsets[max(landing.offsets)][next(iter(landing.offsets[0]))])
        road.advance(landing.region, "now", means=MEANS)
        due: dict[Any, int] = {}
        for offset in range(last):
            key = (None if offset % 5 == 0 else f"b{offset % 2}", offset % 5)
            due.pop(key, None)
            if offset % 4 != 3:
                due[key] = offset
        query = QueryBuilder().register("t", DeltaTable(str(tmp_path / "now")))
        rows = pa.table(query.execute('SELECT * FROM t WHERE "partition" = 1').read_all())
        assert "crkafka_deleted" not in rows.column_names
        found = {(row["bank"], row["number"]): row["offset"] for row in rows.to_pylist()}
        assert found == due and len(found) == rows.num_rows
    assert audit.look(landing.region, "now").clean


@pytest.mark.parametrize(
    ("shape", "keys", "refusal"),
    [
        ("keyless", ["number"], "its rows have no column number"),
        ("placeless", ["number"], "do not tell which that is"),
        ("textual", ["number"], "its column offset is string, which does not keep their order"),
        ("parts", ["id"], "a key is a value without parts"),
        ("changes", ["bank"], r"2 records have no bank, .*; the first is \(0, 0\)"),
    ],
)
def test_rows_that_cannot_be_kept_by_key_are_refused(tmp_path: Path, shape: str, keys: list[str], refusal: str) -> None:
    landing = landed(tmp_path, shape, keys)
    landing.land(6)
    with pytest.raises((ConfigError, Refused), match=refusal):
        road.advance(landing.region, "now", means=MEANS)
    assert not [*tmp_path.glob("now/**/*.parquet")]


def test_keys_of_several_columns_are_found_with_null_as_a_value() -> None:
    dice = random.Random(1)

    def some(count: int) -> list[list[Any]]:
        return [
            [dice.choice([None, "a", "b", "c"]) for _ in range(count)],
            [dice.choice([None, 1, 2, 3, 4]) for _ in range(count)],
            [dice.choice([None, b"x", b"y"]) for _ in range(count)],
        ]

    for _ in range(50):
        given, asked = some(dice.randint(1, 12)), some(40)
        types = [pa.string(), pa.int64(), pa.binary()]
        keys = Keys([pa.chunked_array([column], kind) for column, kind in zip(given, types, strict=True)])
        tuples = [*zip(*given, strict=True)]
        assert len({*zip(tuples, keys.ids.tolist(), strict=True)}) == len({*tuples}) == len({*keys.ids.tolist()})
        found = keys.find([pa.array(column, kind) for column, kind in zip(asked, types, strict=True)])
        assert found.tolist() == [row in tuples for row in zip(*asked, strict=True)]


def test_zeros_of_both_signs_are_one_key() -> None:
    keys = Keys([pa.chunked_array([[0.0, -0.0, 1.0]])])
    assert keys.ids.tolist() == [0, 0, 1]
    assert keys.find([pa.array([-0.0, 2.0])]).tolist() == [True, False]


def test_a_file_whose_bounds_leave_no_room_for_a_key_is_not_read() -> None:
    keys = Keys([pa.chunked_array([[3, 9]]), pa.chunked_array([["m", "p"]])])

    def may(**bounds: tuple[Any, Any]) -> bool:
        low, high = ({name: pair[end] for name, pair in bounds.items()} for end in (0, 1))
        return keys.may_be_in(DataFile("f", 1, 1, low, high), ["id", "name"])

    assert may(id=(4, 5)) and may(name=("n", "n")) and may(id=("4", "5"))
    assert not may(id=(10, 12)) and not may(id=(1, 9), name=("q", "z"))


def test_an_iceberg_bound_that_was_cut_inside_of_a_character_is_none() -> None:
    """As text with a replacement it left keys out that are in the file."""
    assert values.from_bytes("ab\U0001f600".encode()[:-1], "string") is None
