"""Iceberg tables in an object store: at a path, by S3's put-if-absent, and in AWS Glue (SPEC K6)."""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable

from crkafka_core.lake.iceberg import open_table
from crkafka_core.lake.iceberg.table import IcebergLog
from crkafka_core.lake.port import Change, Moved, NewFile
from crkafka_core.segments.rows import batches
from crkafka_core.segments.storage import Storage
from crkafka_core.verify.table_files import IcebergFiles
from tests.lake.iceberg.orders import SCHEMA, UID, stamp, table_of


def new_file(log: IcebergLog, *rows: int) -> NewFile:
    sink = io.BytesIO()
    pq.write_table(table_of(rows), sink)
    path = f"data/{rows[0]}.parquet"
    log.storage.put(path, sink.getvalue())
    return NewFile(path, len(sink.getvalue()), len(rows), {"offset": min(rows)}, {"offset": max(rows)})


def commits_and_refusals(log: IcebergLog, other: IcebergLog) -> list[int]:
    stale = log.create(SCHEMA, [], stamp(1), {})
    with pytest.raises(Moved):
        other.create(SCHEMA, [], stamp(1), {})
    found = other.look()
    assert found is not None
    first = new_file(log, 1, 2, 3)
    found = found.commit(stamp(2), Change([first, new_file(log, 4)]))
    with pytest.raises(Moved):
        stale.commit(stamp(3), Change([new_file(log, 9)]))
    marks = {file: [1] for file in found.files() if file.path == first.path}
    found.commit(stamp(4), Change([new_file(log, 5)], marks=marks))
    now = log.look()
    assert now is not None
    assert now.stamp(UID, "orders") == stamp(4, version=3)
    assert log.expire([]) == 0
    return [1, 3, 4, 5]


def offsets(found: pa.Table) -> list[int]:
    return sorted(found.column("offset").to_pylist())


def file_io(options: Mapping[str, str]) -> dict[str, str]:
    names = {
        "endpoint": "endpoint",
        "region": "region",
        "access_key": "access-key-id",
        "secret_key": "secret-access-key",
    }
    return {f"s3.{theirs}": options[ours] for ours, theirs in names.items()}


def test_a_path_takes_one_of_two_commits(place: tuple[str, dict[str, str]]) -> None:
    url, options = place
    logs = [open_table("orders", f"{url}/lake/orders", options, {}) for _ in range(2)]
    expected = commits_and_refusals(logs[0], logs[1])
    if url.startswith("s3:"):
        newest = f"s3a{url[2:]}/lake/orders/metadata/v3.metadata.json"
        read = StaticTable.from_metadata(newest, file_io(options)).scan().to_arrow()
    else:  # pyiceberg takes the account for a part of the container's name
        read = by_verify(logs[0].storage)
    assert offsets(read) == expected


def by_verify(storage: Storage) -> pa.Table:
    """The rows as `crkafka verify` reads them."""
    files = IcebergFiles.open(storage)
    assert files is not None
    read = (batches(storage, each.path, ["offset"], only=True, kept=each.kept) for each in files.files())
    return pa.Table.from_batches(itertools.chain.from_iterable(read))


def test_glue_takes_one_of_two_commits(
    bucket: str, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_options["access_key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_options["secret_key"])
    settings: dict[str, Any] = {
        "type": "glue",
        "warehouse": f"s3://{bucket}/wh",
        "client.region": "us-east-1",
        "glue.endpoint": s3_options["endpoint"],
        **file_io(s3_options),
    }
    conf = {f"spark.sql.catalog.{bucket}.{key}": value for key, value in settings.items()}
    conf[f"spark.sql.catalog.{bucket}"] = "org.apache.iceberg.spark.SparkCatalog"
    logs = [open_table("orders", f"{bucket}.{bucket}.orders", s3_options, conf) for _ in range(2)]
    expected = commits_and_refusals(logs[0], logs[1])
    reader = load_catalog("glue", **{**settings, "glue.region": "us-east-1"})
    assert offsets(reader.load_table(f"{bucket}.orders").scan().to_arrow()) == expected
