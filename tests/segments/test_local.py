"""What only a local folder has: modes of files, full disks, `file:` URLs."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from crkafka_core.model.errors import ConfigError, ServiceUnavailable
from crkafka_core.model.offsets import TP
from crkafka_core.segments.errors import StorageUnavailable
from crkafka_core.segments.storage import Storage
from crkafka_core.segments.writer import SegmentWriter
from tests.segments.conftest import MakeBatch
from tests.segments.test_storage import put

A0 = TP("a", 0)


def test_check_leaves_nothing_where_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", lambda *_: os.open(tmp_path / "none" / "none", os.O_RDONLY))
    with pytest.raises(ServiceUnavailable):
        Storage.open(tmp_path / "seg").check()
    assert list(Storage.open(tmp_path / "seg").list("")) == []


def test_relative_and_file_urls_are_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put(Storage.open("seg"), "u/a", b"hello")
    other = Storage.open(f"file://{tmp_path}/seg")
    with other.open_read("u/a") as source:
        assert source.read() == b"hello"
    assert other.url == str(tmp_path / "seg")
    assert other.uri("u/a") == f"file://{tmp_path}/seg/u/a"
    assert other.is_local


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(StorageUnavailable, match=str(blocked)) as caught:
        Storage.open(blocked / "seg").open_write("u/a")
    assert "folder" in caught.value.hint


def test_a_full_disk_is_said_and_the_half_written_file_removed(tmp_path: Path) -> None:
    """A limit on file sizes acts as a disk that fills up in the middle of a row group."""
    script = textwrap.dedent("""
        import os, resource, signal, sys
        import pyarrow as pa
        from crkafka_core.model.errors import ServiceUnavailable
        from crkafka_core.model.offsets import TP
        from crkafka_core.segments.batch import HEADERS, SCHEMA, Batch, Run
        from crkafka_core.segments.storage import Storage
        from crkafka_core.segments.writer import SegmentWriter
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        n, tp, storage = 1000, TP("a", 0), Storage.open(sys.argv[1])
        def batch(first):
            fixed = [pa.array([None] * n, pa.binary()), pa.array([os.urandom(500) for _ in range(n)], pa.binary()),
                     pa.array(["a"] * n), pa.array([0] * n, pa.int32()), pa.array(range(first, first + n), pa.int64()),
                     pa.array([0] * n, SCHEMA.field("timestamp").type), pa.array([0] * n, pa.int32()), pa.nulls(n, HEADERS)]
            return Batch(pa.RecordBatch.from_arrays(fixed, schema=SCHEMA), (Run(tp, 0, n, first, first + n),))
        writer = SegmentWriter(storage, "u/00000001/a-1-1.parquet", row_group_bytes=400_000)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
        try:
            for i in range(20):
                writer.write(batch(i * n))
            print("no error")
        except ServiceUnavailable as error:
            print(type(error).__name__, "|", error, "|", storage.exists("u/00000001/a-1-1.parquet"))
            writer.discard()
            print(storage.exists("u/00000001/a-1-1.parquet"))
    """)
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    failure, left = done.stdout.strip().splitlines()
    assert failure.startswith("StorageUnavailable | Writing")
    assert str(tmp_path / "u/00000001/a-1-1.parquet") in failure
    assert left == "False"


def test_a_real_full_file_system(tmp_path: Path, make_batch: MakeBatch) -> None:
    """/dev/full says "no space left" to every write, as a full disk does."""
    storage = Storage.open(tmp_path)
    writer = SegmentWriter(storage, "u/00000001/a-1-1.parquet", row_group_bytes=1_000)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, writer._sink.output._descriptor)  # type: ignore[attr-defined]
    os.close(full)
    with pytest.raises(StorageUnavailable, match="No space left") as caught:
        writer.write(make_batch(A0, 0, 500))
    assert "free some space" in caught.value.hint
    writer.discard()
    assert list(storage.list("")) == []


def _modes(root: Path) -> set[str]:
    return {f"{path.stat().st_mode & 0o777:o}" for path in [root, *root.rglob("*")]}


def test_nobody_else_reads_segments_in_a_folder(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        put(Storage.open(tmp_path / "new" / "segments"), "u/1/a")
    finally:
        os.umask(before)
    assert _modes(tmp_path / "new") == {"700", "600"}


def test_on_a_shared_disk_the_configuration_says_who_else_does(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        put(Storage.open(tmp_path / "new", {"mode": "0640"}), "u/1/a")
    finally:
        os.umask(before)
    assert _modes(tmp_path / "new") == {"750", "640"}
    with pytest.raises(ConfigError, match="is not a file mode"):
        Storage.open(tmp_path, {"mode": "rw-r--r--"})
