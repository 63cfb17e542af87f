"""Records become data files in processes beside the host: each row once; what ends a process is found (SPEC K6; faults 80, 90)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from crkafka_core.config.resolving import remember
from crkafka_core.config.typed import TypedConfig
from crkafka_core.decode.batch import REASON, BadRecord
from crkafka_core.decode.decoders import Avro, Json
from crkafka_core.decode.registry import Registry, RegistryAway
from crkafka_core.decode.typed import Typing, of_schema
from crkafka_core.lake import new_files
from crkafka_core.lake.new_files import Output
from crkafka_core.lake.pool import Pool, PoolClosed, WorkerDied, segments_in_shares
from crkafka_core.lake.port import CHECKPOINT, NewFile, Part
from crkafka_core.lake.transform import Shape, numbered
from crkafka_core.lake.worker import Made, Source, Task, make
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.offsets import TP
from crkafka_core.plane import reading
from crkafka_core.segments.errors import SegmentMissing, StorageUnavailable
from crkafka_core.segments.local import _LocalOutput
from crkafka_core.segments.storage import Storage
from tests.lake.deadly import Deadly, Unlucky
from tests.rigs.landing import Landing, records
from tests.rigs.memory import MemoryStore
from tests.rigs.schema_registry import FakeRegistry
from tests.rigs.until import until

KIND = pa.struct([pa.field("id", pa.int64(), False), pa.field("who", pa.string()), pa.field("price", pa.float64())])
JSON = Typing(Json(), KIND, "dead_letter", keyed=False)


def value_of(offset: int) -> bytes | None:
    """Of ten records the fourth is bad and the sixth a tombstone."""
    bad, gone = offset % 10 == 3, offset % 10 == 5
    return None if gone else b"no JSON" if bad else json.dumps({"id": offset, "who": f"w{offset % 7}"}).encode()


def batch_of(value: Callable[[int], bytes | None]) -> Any:
    def made(tp: TP, start: int, stop: int) -> Any:
        batch = records(tp, start, stop)
        values = pa.array([value(o) for o in range(start, stop)], pa.binary())
        return type(batch)(batch.records.set_column(1, "value", values), batch.runs)

    return made


def landed(
    folder: Path,
    value: Callable[[int], bytes | None] = value_of,
    checkpoints: int = 3,
    rows: int = 50,
    partitions: int = 2,
) -> Any:
    landing = Landing(MemoryStore(), folder, partitions=partitions, batch_of=batch_of(value))
    for _ in range(checkpoints):
        landing.land(rows)
    return landing


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool() as made:
        yield made


def shares(pool: Pool, landing: Landing) -> list[Source]:
    plan = landing.region.plane.read(lambda reader, row: reading.plan(reader, row))
    return segments_in_shares(landing.storage, plan.segments, plan.selection, pool.workers)


def outputs(folder: Path, *names: str, parts: tuple[Part, ...] = ()) -> dict[str, Output]:
    return {name: Output(Storage.open(folder / name), "u/written", parts) for name in names}


def rows_of(folder: Path, name: str, made: Made) -> list[dict[str, Any]]:
    return [
        row
        for file in made.files[name]
        for row in pq.read_table(folder / name / file.path, partitioning=None).to_pylist()
    ]


def left_behind(folder: Path) -> list[Path]:
    return list(folder.rglob("*.parquet"))


def test_typed_files_have_each_record_once_with_its_checkpoint_and_tell_their_bounds(
    pool: Pool, tmp_path: Path
) -> None:
    landing = landed(tmp_path)
    calls: list[int] = []
    made = pool.files(shares(pool, landing), JSON, outputs(tmp_path, "good", "dead"), lambda: calls.append(1))
    good, dead = rows_of(tmp_path, "good", made), rows_of(tmp_path, "dead", made)
    assert len(calls) >= 3 and len(good) + len(dead) == 300
    assert made.records == {1: 100, 2: 100, 3: 100}
    assert made.rows == {"good": {1: 90, 2: 90, 3: 90}, "dead": {1: 10, 2: 10, 3: 10}}
    everything = {(r["kafka_partition"], r["kafka_offset"], r[CHECKPOINT]) for r in good}
    everything |= {(r["partition"], r["offset"], r[CHECKPOINT]) for r in dead}
    assert everything == {(p, o, o // 50 + 1) for p in range(2) for o in range(150)}
    for row in good:
        whole = row["id"], row["who"], row["kafka_tombstone"]
        assert whole == (
            (None, None, True)
            if row["kafka_offset"] % 10 == 5
            else (row["kafka_offset"], f"w{row['kafka_offset'] % 7}", False)
        )
    assert {(r["value"], r[REASON]) for r in dead} == {(b"no JSON", "no JSON, from character 1 on")}
    schema = pq.read_schema(tmp_path / "good" / made.files["good"][0].path)
    assert schema.equals(numbered(JSON.schemas()["good"]))
    for name, rows in (("good", good), ("dead", dead)):
        of_table = list(rows[0])
        for file in made.files[name]:
            check_told(tmp_path / name, file, of_table)


def check_told(folder: Path, file: NewFile, columns: list[str]) -> None:
    table = pq.read_table(folder / file.path, partitioning=None)
    assert (file.rows, file.bytes) == (table.num_rows, (folder / file.path).stat().st_size)
    assert {CHECKPOINT, "kafka_offset" if "kafka_offset" in columns else "offset"} <= file.lowest.keys()
    for name, least in file.lowest.items():
        bounds = pc.min_max(table.column(name)).as_py()
        assert (least, file.highest[name]) == (bounds["min"], bounds["max"]), name
    for name, nulls in file.nulls.items():
        assert nulls == table.column(name).null_count, name


def test_records_through_a_users_function(pool: Pool, tmp_path: Path) -> None:
    landing = landed(tmp_path, checkpoints=2)
    shape = Shape("tests.lake.deadly:odd_and_even")
    assert {name: schema.names for name, schema in shape.schemas().items()} == {"odd": ["offset"], "even": ["offset"]}
    halves = outputs(tmp_path, "odd", "even")
    made = pool.files(shares(pool, landing), shape, halves)
    for name, rest in (("odd", 1), ("even", 0)):
        rows = rows_of(tmp_path, name, made)
        assert {(r[CHECKPOINT], r["offset"]) for r in rows} == {(o // 50 + 1, o) for o in range(100) if o % 2 == rest}
    with pytest.raises(ConfigError, match=r"cannot be imported: .*no_such"):
        pool.files(shares(pool, landing), Shape("tests.lake.deadly:no_such"), halves)


def test_files_are_parted_by_transforms_of_columns(pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        new_files, "OPEN_FILES", 3
    )  # what counts is the process's own; here for the schema's sake alone
    landing = landed(tmp_path)
    parts = (
        Part("kafka_partition"),
        Part("id", "truncate", 40),
        Part("who", "bucket", 4),
        Part("kafka_timestamp", "day"),
    )
    to = outputs(tmp_path, "good", parts=parts) | outputs(tmp_path, "dead")
    made = pool.files(shares(pool, landing), JSON, to)
    assert made.rows["good"] == {1: 90, 2: 90, 3: 90}
    seen = set()
    for file in made.files["good"]:
        rows = pq.read_table(tmp_path / "good" / file.path, partitioning=None).to_pylist()
        told = file.values
        assert told.keys() == {"kafka_partition", "id_trunc", "who_bucket", "kafka_timestamp_day"}
        seen.add((told["kafka_partition"], told["id_trunc"]))
        for row in rows:
            assert row["kafka_partition"] == told["kafka_partition"]
            assert told["id_trunc"] == (None if row["id"] is None else row["id"] // 40 * 40)
            assert told["kafka_timestamp_day"] == row["kafka_timestamp"].date()
        by = [r["who"] for r in rows]
        assert (told["who_bucket"] is None) == (None in by)
    assert seen == {(p, t) for p in (0, 1) for t in (None, 0, 40, 80, 120)}


def crashing(offset: int) -> bytes | None:
    return b"crash" if offset in (7, 8, 60) else value_of(offset)


def test_fault_90_a_record_that_ends_its_process_is_a_dead_letter_that_says_so(pool: Pool, tmp_path: Path) -> None:
    landing = landed(tmp_path, crashing, partitions=1)  # each death costs the start of three processes
    made = pool.files(shares(pool, landing), replace(JSON, decoder=Deadly()), outputs(tmp_path, "good", "dead"))
    dead = [row for row in rows_of(tmp_path, "dead", made) if row["value"] == b"crash"]
    assert sorted((r["offset"], r[CHECKPOINT]) for r in dead) == [(7, 1), (8, 1), (60, 2)]
    assert {r[REASON] for r in dead} == {"the process that decoded it was ended by signal 11"}
    assert sum(made.rows["good"].values()) + sum(made.rows["dead"].values()) == 150
    assert len(left_behind(tmp_path / "good")) == len(made.files["good"])


@dataclass(frozen=True)
class ReadAgain:
    """Records of two checkpoints that come in other batches each time, as from Kafka; a topic that was made again names them alike."""

    tries: Path

    def batches(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        size = 1 + len(list(self.tries.iterdir()))
        (self.tries / str(size)).touch()
        for checkpoint, value in ((1, crashing), (2, value_of)):
            rows = batch_of(value)(TP("orders", 0), 0, 20).records
            for first in range(0, 20, size):
                yield checkpoint, rows.slice(first, size)


def test_fault_90_a_record_that_is_read_again_in_other_batches_is_set_aside_in_its_checkpoint_alone(
    pool: Pool, tmp_path: Path
) -> None:
    (tmp_path / "tries").mkdir()
    source = ReadAgain(tmp_path / "tries")
    made = pool.files([source], replace(JSON, decoder=Deadly()), outputs(tmp_path, "good", "dead"))
    dead = [row for row in rows_of(tmp_path, "dead", made) if "signal 11" in row[REASON]]
    assert sorted((row[CHECKPOINT], row["offset"]) for row in dead) == [(1, 7), (1, 8)]
    assert sum(made.rows["good"].values()) + sum(made.rows["dead"].values()) == 40


def test_fault_90_with_stop_the_error_names_the_record_and_no_file_stays(pool: Pool, tmp_path: Path) -> None:
    landing = landed(tmp_path, lambda o: b"crash" if o == 8 else b'{"id": 1}')
    typing = replace(JSON, decoder=Deadly(), on_bad_record="stop")
    with pytest.raises(BadRecord, match=r"Record orders\[[01]\]@8 cannot be decoded: the process .* signal 11"):
        pool.files(shares(pool, landing), typing, outputs(tmp_path, "good"))
    assert left_behind(tmp_path / "good") == []


def test_fault_90_a_record_that_never_ends_is_a_dead_letter_that_says_so(tmp_path: Path) -> None:
    """The table stood still without a word."""
    landing = landed(tmp_path, lambda o: b"slow" if o == 3 else b'{"id": 1}', checkpoints=1, rows=5, partitions=1)
    typing = replace(JSON, decoder=Deadly())
    with Pool(workers=1) as pool:
        made = pool.files(shares(pool, landing), typing, outputs(tmp_path, "good", "dead"), batch_timeout=2.0)
    assert (made.rows["good"], made.rows["dead"]) == ({1: 4}, {1: 1})
    (dead,) = rows_of(tmp_path, "dead", made)
    assert (dead["offset"], dead[REASON]) == (3, "the process that decoded it gave no sign of life for 2 s")


def test_fault_90_a_function_that_never_ends_is_named_with_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crkafka_core.lake.pool._DEATHS", 1)
    landing = landed(tmp_path, checkpoints=1, rows=5, partitions=1)
    said = r"1 process that made files .* no sign of life for 2 s, .*at orders\[0\]@0 to orders\[0\]@4.*`batch_timeout`"
    with Pool(workers=1) as pool, pytest.raises(WorkerDied, match=said):
        pool.files(
            shares(pool, landing), Shape("tests.lake.deadly:hangs"), outputs(tmp_path, "good"), batch_timeout=2.0
        )
    assert left_behind(tmp_path / "good") == []


def test_a_process_that_is_killed_from_outside_costs_a_new_one_and_no_record(tmp_path: Path) -> None:
    landing = landed(tmp_path)
    with Pool() as pool:
        pool.files(shares(pool, landing), JSON, outputs(tmp_path / "first", "good", "dead"))
        for worker in pool._idle:
            os.kill(worker._process.pid, signal.SIGKILL)
        made = pool.files(shares(pool, landing), JSON, outputs(tmp_path, "good", "dead"))
        assert made.records == {1: 100, 2: 100, 3: 100}
        with pytest.raises(WorkerDied, match=r"3 processes .* ended with code 7"):
            pool.files(shares(pool, landing), Shape("tests.lake.deadly:ends"), outputs(tmp_path, "good"))


def test_fault_80_a_registry_that_is_away_is_no_bad_record_and_leaves_no_file(pool: Pool, tmp_path: Path) -> None:
    registry = FakeRegistry()
    try:
        schema = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]}
        registry.answers["/subjects/o/versions/latest"] = [(200, {"schema": json.dumps(schema)})]
        typed = {"avro": "registry", "subject": "o"}
        config, asked = TypedConfig.model_validate(typed), Registry(registry.url)
        decoder, kind = of_schema(asked, config, asked.of_table(config))
        registry.answers["/schemas/ids/1"] = [(503, {})]
        landing = landed(tmp_path, lambda o: b"\0\0\0\0\1" + bytes([o % 50]))
        assert isinstance(decoder, Avro)
        typing = Typing(replace(decoder, patience=0.1), kind, "dead_letter", keyed=False)
        with pytest.raises(RegistryAway, match="503"):
            pool.files(shares(pool, landing), typing, outputs(tmp_path, "good", "dead"))
        assert left_behind(tmp_path / "good") + left_behind(tmp_path / "dead") == []
        registry.answers["/schemas/ids/1"] = [(200, {"schema": json.dumps(schema)})]
        made = pool.files(shares(pool, landing), typing, outputs(tmp_path, "good", "dead"))
        assert sum(made.rows["good"].values()) == 300
    finally:
        registry.close()


def test_an_error_of_one_task_leaves_no_file_of_the_others(pool: Pool, tmp_path: Path) -> None:
    landing = landed(tmp_path, checkpoints=1, rows=40)
    plan = landing.region.plane.read(lambda reader, row: reading.plan(reader, row))
    tasks = [segments_in_shares(landing.storage, [segment])[0] for segment in plan.segments]
    Path(landing.storage.uri(plan.segments[-1].path).removeprefix("file://")).unlink()
    with pytest.raises(SegmentMissing):
        pool.files(tasks, JSON, outputs(tmp_path, "good", "dead"))
    assert left_behind(tmp_path / "good") + left_behind(tmp_path / "dead") == []


def test_an_error_of_a_worker_has_no_secret_of_its_host(pool: Pool, tmp_path: Path) -> None:
    remember("canary-of-a-worker")
    with pytest.raises(ConfigError) as told:
        pool.files(shares(pool, landed(tmp_path)), Shape("tests.lake.deadly:tells_a_secret"), {})
    assert "canary" not in f"{told.value} {told.value.args} {vars(told.value)}"


def test_a_record_is_not_blamed_for_a_process_that_was_ended_beside_it(tmp_path: Path) -> None:
    landing = landed(tmp_path, lambda o: str(tmp_path).encode(), checkpoints=1, rows=5)
    with Pool(workers=1) as pool:
        made = pool.files(shares(pool, landing), replace(JSON, decoder=Unlucky()), outputs(tmp_path, "good", "dead"))
    assert (made.rows["good"], made.rows["dead"]) == ({1: 10}, {})


def test_a_decoder_that_ends_its_process_on_each_record_makes_no_dead_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crkafka_core.lake.pool._DEADLY", 2)
    landing = landed(tmp_path, lambda _: b"crash", checkpoints=1, rows=5)
    with Pool(workers=1) as pool, pytest.raises(WorkerDied, match="2 records of one batch each end the process"):
        pool.files(shares(pool, landing), replace(JSON, decoder=Deadly()), outputs(tmp_path, "good", "dead"))
    assert left_behind(tmp_path / "good") == left_behind(tmp_path / "dead") == []


def test_rows_of_thousands_of_partitions_are_not_all_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_files, "ROW_GROUP_BYTES", 1_000)
    kind = pa.schema([(CHECKPOINT, pa.int64()), ("id", pa.int64())])
    files = new_files.NewFiles(Output(Storage.open(tmp_path), "u", (Part("id"),)), kind)
    files.add(1, pa.RecordBatch.from_pydict({"id": pa.array(range(500), pa.int64())}))
    assert len(files._open) <= new_files.OPEN_FILES
    assert sum(file.holds for file in files._open.values()) < 2_000
    files.close()
    assert sum(file.rows for file in files.made) == 500


def test_files_of_several_outputs_become_durable_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other each waits for a write of the disk of its own, which hundreds of tables of topics have no time for."""
    landing, close, both = landed(tmp_path), _LocalOutput.close, threading.Barrier(2, timeout=20)
    plan = landing.region.plane.read(lambda reader, row: reading.plan(reader, row))
    (each,) = segments_in_shares(landing.storage, plan.segments, plan.selection)

    def together(output: _LocalOutput, durable: bool = True) -> None:
        both.wait()
        close(output, durable)

    monkeypatch.setattr(_LocalOutput, "close", together)
    made = make(Task(each, JSON, outputs(tmp_path, "good", "dead")), JSON.open())
    assert [len(made.files[name]) for name in ("good", "dead")] == [1, 1]


def test_an_output_that_cannot_be_made_durable_leaves_no_file_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing, close = landed(tmp_path), _LocalOutput.close
    before = left_behind(tmp_path)
    plan = landing.region.plane.read(lambda reader, row: reading.plan(reader, row))
    (each,) = segments_in_shares(landing.storage, plan.segments, plan.selection)

    def full(output: _LocalOutput, durable: bool = True) -> None:
        if "dead" in str(output._path):
            raise StorageUnavailable("The disk is full.")
        close(output, durable)

    monkeypatch.setattr(_LocalOutput, "close", full)
    with pytest.raises(StorageUnavailable):
        make(Task(each, JSON, outputs(tmp_path, "good", "dead")), JSON.open())
    assert left_behind(tmp_path) == before


def test_a_call_with_many_tasks_lets_others_have_their_turn(tmp_path: Path) -> None:
    """Who gave its process back took it again at once, for as many tasks as it had."""
    landing, order = landed(tmp_path, checkpoints=1, rows=5), list[str]()
    with Pool(workers=1) as pool:
        (one, *_) = shares(pool, landing)
        pool.files([one], JSON, {})

        def files(name: str, tasks: int) -> None:
            pool.files([one] * tasks, JSON, {}, lambda: order.append(name))

        many = threading.Thread(target=files, args=("many", 40))
        many.start()
        while not order:
            time.sleep(0.001)
        files("one", 1)
        many.join()
    assert "many" in order[order.index("one") :], "it waited for all tasks of the other"


def test_closing_the_pool_ends_what_it_does(tmp_path: Path) -> None:
    landing = landed(tmp_path, lambda o: b"slow")
    pool = Pool()
    threading.Timer(2.0, pool.close).start()
    begun = time.monotonic()
    with pytest.raises(PoolClosed):
        pool.files(shares(pool, landing), replace(JSON, decoder=Deadly()), outputs(tmp_path, "good", "dead"))
    assert time.monotonic() - begun < 25
    assert not pool._all


HOST = """
import signal
import sys
from pathlib import Path
from dataclasses import replace
from tests.lake.test_pool import *
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where it is ignored, as in a shell's background
folder = Path(sys.argv[1])
landing = landed(folder, lambda o: b"slow")
pool = Pool()
def tell():
    print(*[worker._process.pid for worker in pool._all], flush=True)
pool.files(shares(pool, landing), replace(JSON, decoder=Deadly()), outputs(folder, "good", "dead"), tell)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_process_outlives_its_host(tmp_path: Path, how: signal.Signals) -> None:
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert host.stdout is not None
    pids = [int(pid) for pid in host.stdout.readline().split()]
    assert pids
    host.send_signal(how)
    host.wait(30)
    until(lambda: not any(map(alive, pids)), seconds=10)


def alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_worker_imports_no_spark_no_dagster_and_no_kafka_client() -> None:
    unwanted = ("pyspark", "dagster", "confluent_kafka", "sqlalchemy")
    code = f"import sys, crkafka_core.lake.worker; print([name for name in {unwanted} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_partition_values_are_those_of_iceberg() -> None:
    """From the appendix of Iceberg's specification, and from its reference implementation in Python."""
    from crkafka_core.lake.partitions import _buckets, _values

    assert _buckets(pa.array([34, None]), 2**31 - 1).to_pylist() == [2017239379, None]
    assert _buckets(pa.array(["iceberg"]), 2**31 - 1).to_pylist() == [1210000089]
    at = pa.array([datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), None, datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC)])
    at = at.cast(pa.timestamp("us", "UTC"))
    assert [_values(at, Part("c", t)).to_pylist() for t in ("year", "month", "hour")] == [
        [-1, None, 47],
        [-1, None, 574],
        [-1, None, 419686],
    ]
    assert [str(d) for d in _values(at, Part("c", "day")).to_pylist()] == ["1969-12-31", "None", "2017-11-16"]
    assert _buckets(at, 2**31 - 1).to_pylist()[2] == -2047944441 & 0x7FFFFFFF
    assert _values(pa.array([-1, 11]), Part("c", "truncate", 10)).to_pylist() == [-10, 10]
    assert _values(pa.array(["iceberg", "日本語"]), Part("c", "truncate", 2)).to_pylist() == ["ic", "日本"]
