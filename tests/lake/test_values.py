"""A table for each value of a header or field: it comes with the value's first record, and is a table like any other (SPEC K6)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from crkafka_core.lake import road
from crkafka_core.lake.values import FieldOf, HeaderOf
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Event, Table, TableCommit
from crkafka_core.plane import tables as plane
from crkafka_core.plane import templates
from crkafka_core.region.feeder import Feeder
from crkafka_core.segments.batch import HEADERS, SCHEMA, Batch
from crkafka_core.verify import in_tables
from crkafka_core.verify.verdict import Findings
from tests.lake.rig import Crash, pool
from tests.rigs.landing import Landing, records
from tests.rigs.memory import MemoryStore

MEANS = road.Means(pool=pool())
KINDS = ["a", "b", None]
"""Values of consecutive offsets, unless a test has others."""


def with_values(kinds: list[str | None]) -> Callable[[TP, int, int], Batch]:
    def batch_of(tp: TP, start: int, stop: int) -> Batch:
        batch, of = records(tp, start, stop), [kinds[o % len(kinds)] for o in range(start, stop)]
        headers = [
            None if v is None else [{"key": "x", "value": b"-"}, {"key": "type", "value": v.encode()}] for v in of
        ]
        fields = [json.dumps({"n": 1} if v is None else {"kind": v, "n": 1}).encode() for v in of]
        changed = batch.records.set_column(1, SCHEMA.field("value"), pa.array(fields, pa.binary()))
        return replace(batch, records=changed.set_column(7, SCHEMA.field("headers"), pa.array(headers, HEADERS)))

    return batch_of


def made(folder: Path, *others: dict[str, Any], kinds: list[str | None] | None = None, **keys: Any) -> Landing:
    each = {"each": {"header": "type"}, "name": "{value}", "path": str(folder / "lake" / "{value}"), **keys}
    kinds = KINDS if kinds is None else kinds
    return Landing(MemoryStore(), folder, partitions=2, tables=[each, *others], batch_of=with_values(kinds))


def declared(landing: Landing) -> dict[str, int]:
    return landing.read(lambda reader, _: {t.name: t.acknowledged for t in reader.select(Table)})


def feed(landing: Landing) -> None:
    keeper = Feeder(landing.region, means=MEANS)
    while keeper.turn(0.0) and set(declared(landing).values()) != {landing.read(lambda _, row: row.head)}:
        pass
    keeper.abandon()


def rows(landing: Landing, name: str) -> dict[int, int]:
    """Checkpoint → rows, as a reader counts them that knows nothing of us."""
    path = landing.read(lambda reader, _: plane.of(reader, name).path)
    if not (Path(path) / "_delta_log").exists():
        return {}
    return dict(Counter(DeltaTable(path).to_pyarrow_table(columns=["crkafka_checkpoint"]).column(0).to_pylist()))


def verified(landing: Landing) -> list[str]:
    findings = Findings()
    assert set(in_tables.look(landing.region, findings)) == set(declared(landing))
    return list(map(str, findings.kept))


@pytest.mark.parametrize("each", [{"header": "type"}, {"field": "kind"}])
def test_K6_each_value_has_its_table_and_records_without_one_are_dead_letters(
    tmp_path: Path, each: dict[str, str]
) -> None:
    landing = made(tmp_path, each=each)
    assert declared(landing) == {"dead_letters": 0}
    landing.land(6)
    feed(landing)
    assert declared(landing) == {"a": 1, "b": 1, "dead_letters": 1}
    assert [rows(landing, name) for name in ("a", "b", "dead_letters")] == [{1: 4}] * 3
    assert verified(landing) == []


def test_K6_a_value_may_be_called_like_an_output(tmp_path: Path) -> None:
    landing = made(tmp_path, kinds=["good", "dead", None])
    landing.land(6)
    feed(landing)
    assert declared(landing) == {"good": 1, "dead": 1, "dead_letters": 1}
    assert [rows(landing, name) for name in ("good", "dead", "dead_letters")] == [{1: 4}] * 3
    assert verified(landing) == []


def test_K6_a_new_value_begins_where_the_other_tables_are_and_nothing_is_written_again(tmp_path: Path) -> None:
    kinds = ["a"]
    landing = made(tmp_path, kinds=kinds)
    landing.land(3, times=3)
    feed(landing)
    kinds[:] = ["a", "b"]
    landing.land(4)
    feed(landing)
    assert declared(landing) == {"a": 4, "b": 4, "dead_letters": 4}
    assert rows(landing, "a") == {1: 6, 2: 6, 3: 6, 4: 4}
    assert rows(landing, "b") == {4: 4}
    done = landing.read(lambda reader, _: [c.kind for c in reader.select(TableCommit, ("status", "=", plane.DONE))])
    assert set(done) == {plane.ADVANCE}
    assert verified(landing) == []


def test_K6_past_its_bound_a_template_gives_no_more_tables_and_says_so(tmp_path: Path) -> None:
    landing = made(tmp_path, kinds=["a", "b", "c", "d"], most_tables=2, dead_letters="others")
    landing.land(4)
    feed(landing)
    landing.land(4)
    feed(landing)
    assert declared(landing) == {"a": 2, "b": 2, "others": 2}
    assert rows(landing, "others") == {1: 4, 2: 4}
    full = landing.read(lambda reader, _: reader.column(Event, "text", ("kind", "=", "template without room")))
    assert full == ["{value} has 2 tables, its most_tables; further values have none"]
    assert verified(landing) == []


def test_K6_what_cannot_be_a_name_or_is_taken_comes_into_the_dead_letters(tmp_path: Path) -> None:
    other = {"name": "Taken", "path": str(tmp_path / "all")}
    kinds = ["taken", "dead_letters", "x" * 200, "", "a\nb", "a/b", "a.b", "7"]
    landing = made(
        tmp_path, other, {"name": "inside", "path": str(tmp_path / "lake" / "in" / "deep")}, kinds=[*kinds, "in"]
    )
    landing.land(9)
    feed(landing)
    assert set(declared(landing)) == {"Taken", "inside", "dead_letters", "a_b", "_7"}, "a.b has the name of a/b"
    assert (rows(landing, "a_b"), rows(landing, "_7"), rows(landing, "dead_letters")) == ({1: 2}, {1: 2}, {1: 14})
    assert verified(landing) == []


def test_K6_a_rewind_and_a_replay_keep_every_record_in_one_table(tmp_path: Path) -> None:
    kinds = ["a", None]
    landing = made(tmp_path, kinds=kinds)
    landing.land(4)
    feed(landing)
    kinds[:] = ["a", "b"]
    landing.land(4)
    feed(landing)
    assert declared(landing) == {"a": 2, "b": 2, "dead_letters": 2}
    landing.rewind(1)
    kinds[:] = ["c", "a"]
    landing.land(4)
    feed(landing)
    assert declared(landing) == dict.fromkeys(["a", "b", "c", "dead_letters"], 3)
    assert (rows(landing, "a"), rows(landing, "b"), rows(landing, "c")) == ({1: 4, 3: 4}, {}, {3: 4})
    road.rewrite(landing.region, "a", [1, 3], means=MEANS)
    assert (rows(landing, "a"), rows(landing, "b"), rows(landing, "c")) == ({1: 4, 3: 4}, {}, {3: 4})
    assert rows(landing, "dead_letters") == {1: 4}
    assert verified(landing) == []


def test_K6_a_value_whose_table_was_undeclared_has_none_until_init(tmp_path: Path) -> None:
    landing = made(tmp_path, kinds=["a", "b"])
    landing.land(2)
    feed(landing)
    landing.do(lambda tx: plane.undeclare(tx, "b"))
    landing.land(2)
    feed(landing)
    assert declared(landing) == {"a": 2, "dead_letters": 2}
    assert rows(landing, "dead_letters") == {2: 2}
    templates.declare_new(landing.region.plane, landing.config, again=True)
    landing.land(2)
    feed(landing)
    assert declared(landing) == {"a": 3, "b": 3, "dead_letters": 3}
    counts = Counter[int]()
    for name in declared(landing):
        counts.update(rows(landing, name))
    assert counts == {1: 4, 2: 4, 3: 4}
    assert verified(landing) == []


def test_K6_a_value_that_comes_while_the_region_is_rewound_begins_behind_the_fence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ["a"]
    landing = made(tmp_path, kinds=kinds)
    landing.land(2, times=2)
    feed(landing)
    kinds[:] = ["a", "b"]
    landing.land(2)
    begins, declare, declare_values = list[int](), plane.declare, templates.declare_values

    def rewound(*args: Any, **keys: Any) -> None:
        if not begins:
            begins.append(-1)
            landing.rewind(1)
            landing.land(2)
        declare_values(*args, **keys)

    def noted(*args: Any, **keys: Any) -> Table:
        begins.append(keys["begins"])
        return declare(*args, **keys)

    monkeypatch.setattr(templates, "declare_values", rewound)
    monkeypatch.setattr(plane, "declare", noted)
    feed(landing)
    assert begins == [-1, 1]
    assert declared(landing) == dict.fromkeys(["a", "b", "dead_letters"], 4)
    assert (rows(landing, "a"), rows(landing, "b")) == ({1: 4, 4: 2}, {4: 2})
    assert verified(landing) == []


@pytest.mark.parametrize("dies_at", range(1, 4))
def test_K6_a_writer_that_dies_between_the_tables_leaves_each_record_in_one(
    tmp_path: Path, dies_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = made(tmp_path)
    landing.land(6)
    feed(landing)
    landing.land(6)
    ended, commit = [], road._Pass._commit

    def dying(self: Any, *args: Any) -> Any:
        written = commit(self, *args)
        ended.append(written)
        if len(ended) == dies_at:
            raise Crash
        return written

    with monkeypatch.context() as patched, pytest.raises(Crash):
        patched.setattr(road._Pass, "_commit", dying)
        road.advance(landing.region, "a", means=MEANS)
    feed(landing)
    assert declared(landing) == dict.fromkeys(["a", "b", "dead_letters"], 2)
    assert [rows(landing, name) for name in ("a", "b", "dead_letters")] == [{1: 4, 2: 4}] * 3
    assert verified(landing) == []


def test_K6_a_checkpoint_makes_no_commit_in_the_table_of_a_value_that_it_lacks(tmp_path: Path) -> None:
    kinds = ["a", "b"]
    landing = made(tmp_path, kinds=kinds)
    landing.land(2)
    feed(landing)
    before = {name: DeltaTable(str(tmp_path / "lake" / name)).version() for name in ("a", "b")}
    kinds[:] = ["a"]
    landing.land(2, times=3)
    feed(landing)
    versions = {name: DeltaTable(str(tmp_path / "lake" / name)).version() for name in ("a", "b")}
    assert versions["b"] == before["b"] and versions["a"] > before["a"]
    assert declared(landing) == {"a": 4, "b": 4, "dead_letters": 4}
    assert verified(landing) == []


def batch(of: list[Any], column: str) -> pa.RecordBatch:
    given = records(TP("t", 0), 0, len(of)).records
    field = SCHEMA.field(column)
    return given.set_column(SCHEMA.names.index(column), field, pa.array(of, field.type))


def test_the_last_header_of_a_name_counts() -> None:
    def header(*pairs: tuple[str, bytes | None]) -> list[dict[str, Any]]:
        return [{"key": key, "value": value} for key, value in pairs]

    of = [
        header(("type", b"a"), ("u", b"x"), ("type", b"b")),
        header(("u", b"x")),
        None,
        header(("type", b"\xff")),
        header(("type", b"a"), ("type", None)),
        [],
        header(("type", "é".encode())),
    ]
    given = batch(of, "headers")
    assert HeaderOf("type")(given).to_pylist() == ["b", None, None, None, None, None, "é"]
    assert HeaderOf("type")(given.slice(2, 5)).to_pylist() == [None, None, None, None, "é"]
    assert HeaderOf("type")(given.slice(0, 0)).to_pylist() == []


def test_a_field_is_the_same_in_bulk_and_one_by_one() -> None:
    of = [
        *(b'{"kind":"a"}', b'{"kind":7}', b'{"kind":true}', b'{"kind":1.5}', b'{"kind":null}', b'{"k":{"kind":"b"}}'),
        *(b'{"kind":"b","kind":"c"}', b"[1]", b"no", b"", None, b"\xff", b'{"kind":"\\ud800"}', b'{"kind":"\\u00e9"}'),
        *(
            b'{"kind":"a"} {"kind":"b"}',
            b'{"kind":["a"]}',
            b"[" * 100_000,
            b'{"kind":""}',
            b'{"kind":123456789012345678901}',
        ),
    ]
    expected = ["a", "7", "true", *[None] * 3, "c", *[None] * 6, "é", None, None, None, "", "123456789012345678901"]
    given = batch(of, "value")
    assert FieldOf("kind")(given).to_pylist() == expected
    assert [FieldOf("kind")(given.slice(i, 1)).to_pylist()[0] for i in range(len(of))] == expected
    assert FieldOf("kind")(given.slice(0, 0)).to_pylist() == []
