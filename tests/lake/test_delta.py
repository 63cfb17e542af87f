"""Delta behind the port: its log is read and written here, and every other reader and writer goes on from it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Reader
from deltalake import write_deltalake

from crkafka_core.lake import vectors
from crkafka_core.lake.columns import RAW, followed
from crkafka_core.lake.delta.state import load
from crkafka_core.lake.delta.table import DeltaTable, _known
from crkafka_core.lake.port import CannotCommit, Change, Moved, NewFile, Stamp
from crkafka_core.model.errors import ConfigError
from tests.lake.rig import Rig


def made(folder: Path, **properties: str) -> DeltaTable:
    table = DeltaTable("t", str(folder / "t"), {})
    table.create(RAW, (), Stamp("u", "t", 0, 0, 0), properties)
    return table


def stamp(permit: int) -> Stamp:
    return Stamp("u", "t", permit, 7, permit)


def test_a_log_is_read_from_its_checkpoint_as_from_its_beginning(tmp_path: Path) -> None:
    """Files, transactions and columns; deltalake writes the checkpoint, and cleans the log."""
    rig = Rig(tmp_path)
    log = rig.means.logs(rig.region, rig.table())
    for _ in range(4):
        rig.land()
        rig.advance()
    rig.optimize()
    Reader(str(rig.path)).alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
    rig.land()
    rig.advance()
    whole = load(log.storage)
    assert whole is not None
    Reader(str(rig.path)).create_checkpoint()
    Reader(str(rig.path)).cleanup_metadata()
    kept = load(log.storage)
    assert kept is not None and (kept.version, kept.transactions) == (whole.version, whole.transactions)
    assert sorted(kept.files) == sorted(whole.files) and kept.fields == whole.fields
    assert sorted(map(str, (a.file for a in kept.files.values()))) == sorted(
        map(str, (a.file for a in whole.files.values()))
    )
    _known.clear()
    rig.land()
    rig.advance()
    assert rig.rows() == rig.truth()


def test_a_commit_counts_only_directly_after_what_was_looked_at(tmp_path: Path) -> None:
    table = made(tmp_path)
    first, second = table.look(), table.look()
    assert first is not None and second is not None
    first.commit(stamp(1))
    with pytest.raises(Moved):
        second.commit(stamp(2))
    with pytest.raises(Moved):
        table.create(RAW, (), stamp(0), {})
    assert (after := table.look()) is not None and after.stamp("u", "t") is not None


def test_a_commit_in_a_local_folder_replaces_none_of_others_of_the_same_version(tmp_path: Path) -> None:
    """Delta's own writer on a local folder looks, and renames over what came meanwhile."""
    table = made(tmp_path)
    snapshot = table.look()
    assert snapshot is not None
    write_deltalake(table.path, RAW.empty_table(), mode="append")
    path = tmp_path / "t" / "_delta_log" / f"{1:020d}.json"
    others = path.read_bytes()
    with pytest.raises(Moved):
        snapshot.commit(stamp(1))
    assert path.read_bytes() == others


def test_a_table_whose_folder_was_put_back_is_read_anew(tmp_path: Path) -> None:
    """Also where the older copy has come to the same version by other commits."""
    table = made(tmp_path)
    snapshot = table.look()
    assert snapshot is not None
    mine = snapshot.commit(stamp(1))
    path = tmp_path / "t" / "_delta_log" / f"{mine.version:020d}.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 5', 1))
    there = table.look()
    assert there is not None and there is not mine


@pytest.mark.parametrize(
    ("properties", "field", "named"),
    [
        ({"delta.constraints.c": "offset > 0"}, {}, "constraints"),
        ({"delta.columnMapping.mode": "id"}, {}, "columnMapping"),
        ({}, {"delta.generationExpression": "1"}, "generationExpression"),
    ],
)
def test_what_asks_more_of_a_commit_than_we_write_is_refused_by_name(
    tmp_path: Path, properties: dict[str, str], field: dict[str, str], named: str
) -> None:
    table = made(tmp_path, **properties)
    path = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    metadata = next(a["metaData"] for a in actions if "metaData" in a)
    schema = json.loads(metadata["schemaString"])
    schema["fields"][0]["metadata"] |= field
    metadata["schemaString"] = json.dumps(schema)
    path.write_text("\n".join(map(json.dumps, actions)))
    snapshot = table.look()
    assert snapshot is not None
    with pytest.raises(CannotCommit, match=named):
        snapshot.commit(stamp(1))


def test_append_only_is_heeded(tmp_path: Path) -> None:
    table = made(tmp_path, **{"delta.appendOnly": "true"})
    snapshot = table.look()
    assert snapshot is not None
    after = snapshot.commit(stamp(1), Change([NewFile("a.parquet", 1, 1)]))
    with pytest.raises(CannotCommit, match="appendOnly"):
        after.commit(stamp(2), Change((), list(after.files())))
    after.commit(stamp(2), Change((), list(after.files()), changes_rows=False))


def test_columns_come_by_a_commit(tmp_path: Path) -> None:
    table = made(tmp_path)
    snapshot = table.look()
    assert snapshot is not None
    wider = RAW.append(pa.field("more", pa.float64()))
    after = snapshot.commit(stamp(1), Change(schema=wider))
    assert after.schema.names[-1] == "more" == pa.schema(Reader(str(tmp_path / "t")).schema().to_arrow()).names[-1]


def test_rows_that_spark_would_mark_are_no_rows(tmp_path: Path) -> None:
    """A file with a deletion vector leaves by path and vector, or is rewritten without the marked rows."""
    rig = Rig(tmp_path)
    for _ in range(3):
        rig.land()
        rig.advance()
    rig.optimize()
    marked = mark_first_row(rig)
    found = rig.look()
    assert found.miscounted == (marked,)
    rig.rewind(2)
    rig.fence()
    assert set(rig.rows()) <= set(rig.truth())
    rig.mend()
    assert rig.rows() == rig.truth() and rig.look().clean


def mark_first_row(rig: Rig) -> int:
    """As Spark's DELETE does in a table with deletion vectors; the checkpoint of the row."""
    log = rig.path / "_delta_log"
    state = load(rig.means.logs(rig.region, rig.table()).storage)
    assert state is not None
    (added,) = state.files.values()
    data = vectors.bitmap([0])
    inline = vectors._z85(data + b"\0" * (-len(data) % 4))
    vector = {"storageType": "i", "pathOrInlineDv": inline, "sizeInBytes": len(data), "cardinality": 1}
    add = {key: value for key, value in added.action.items() if value is not None}
    remove = {
        "path": add["path"],
        "dataChange": True,
        "deletionTimestamp": 1,
        "extendedFileMetadata": True,
        "partitionValues": {},
        "size": add["size"],
    }
    features = ["deletionVectors"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": [*features, "appendOnly", "invariants"],
    }
    configuration = {**state.metadata.get("configuration", {}), "delta.enableDeletionVectors": "true"}
    actions = [
        {"commitInfo": {"timestamp": 1, "operation": "DELETE"}},
        {"protocol": protocol},
        {"metaData": {**state.metadata, "configuration": configuration}},
        {"remove": remove},
        {"add": {**add, "dataChange": True, "modificationTime": 1, "deletionVector": vector}},
    ]
    (log / f"{state.version + 1:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    ((checkpoint, _, _),) = set(rig.truth()) - set(rig.rows())
    return checkpoint


def test_a_file_of_a_commit_under_way_stays_however_short_the_tables_retention_is(tmp_path: Path) -> None:
    """Small files are joined without the lease of a writer: the new file was deleted before its commit."""
    table = made(tmp_path, **{"delta.deletedFileRetentionDuration": "interval 0 hours"})
    (folder := tmp_path / "t" / "u" / "packed").mkdir(parents=True)
    for name in ("new.parquet", "old.parquet"):
        (folder / name).touch()
    os.utime(folder / "old.parquet", (1, 1))
    assert table.expire(()) == 1
    assert [file.name for file in folder.iterdir()] == ["new.parquet"]


@pytest.mark.parametrize(
    "wraps", [lambda kind: pa.struct([("n", kind)]), pa.list_, lambda kind: pa.map_(pa.string(), kind)]
)
def test_a_column_is_not_widened_inside_of_another_either(tmp_path: Path, wraps: Any) -> None:
    """Older files would have other types than the log says, without the table feature by which readers know."""
    table = DeltaTable("t", str(tmp_path / "t"), {})
    there = table.create(pa.schema([("c", wraps(pa.int32()))]), (), Stamp("u", "t", 0, 0, 0), {})
    with pytest.raises(ConfigError, match=r"column c.* is int32 and would become int64"):
        followed("t", there.schema, pa.schema([("c", wraps(pa.int64()))]), widens=table.widens)
    grown = wraps(pa.struct([("a", pa.int32())])), wraps(pa.struct([("a", pa.int32()), ("b", pa.int64())]))
    table = DeltaTable("t", str(tmp_path / "grown"), {})
    there = table.create(pa.schema([("c", grown[0])]), (), Stamp("u", "t", 0, 0, 0), {})
    assert there.commit(stamp(1), Change(schema=pa.schema([("c", grown[1])]))).schema.field("c").type.equals(grown[1])
