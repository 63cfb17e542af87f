"""Questions that are asked at each cut are answered from an index, however long the history is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from checkpoints_db import initialise, open_store
from checkpoints_db.testing.samples import REGION, region
from crkafka_core.control import Cond
from crkafka_core.model.rows import (
    Checkpoint,
    CheckpointStatus,
    Event,
    Lease,
    MergedOffset,
    Reset,
    Row,
    Segment,
    Start,
    TableCommit,
)
from crkafka_core.protocol.reset_policy import BUDGETED

_ASKED: list[tuple[type[Row], tuple[Cond, ...], dict[str, Any], str]] = [
    (Checkpoint, (("token", "=", "t"),), {}, "region=? AND token=?"),
    (Checkpoint, (("status", "=", CheckpointStatus.MERGED),), {"order": ("id",)}, "region=? AND status=?"),
    (Checkpoint, (("id", ">=", 1), ("id", "<=", 2)), {"order": ("id",)}, "region=? AND id>? AND id<?"),
    (Segment, (("checkpoint", "=", 1),), {}, "region=? AND checkpoint=?"),
    (MergedOffset, (("checkpoint", "=", 1),), {}, "region=? AND checkpoint=?"),
    (Event, (("seq", ">", 1),), {"order": ("seq",)}, "region=? AND seq>?"),
    (
        Reset,
        (("member", "=", "m"), ("epoch", ">", 1), ("cause", "in", BUDGETED)),
        {"order": ("epoch",), "desc": True},
        "region=? AND member=? AND epoch>?",
    ),
    (Reset, (("token", "=", "t"),), {}, "region=? AND token=?"),
    (Start, (("epoch", "=", 1), ("base", "=", 1)), {}, "region=? AND epoch=? AND base=?"),
    (TableCommit, (("table", "=", "t"), ("status", "=", "OPEN")), {}, "region=? AND table=? AND status=?"),
    (Lease, (("kind", "=", "reader"), ("until", ">", 1.0)), {}, "region=? AND kind=?"),
]


@pytest.mark.parametrize(("row", "where", "how", "wanted"), _ASKED, ids=[f"{a[0].__name__} {a[3]}" for a in _ASKED])
def test_a_question_uses_the_index_that_was_made_for_it(
    row: type[Row], where: tuple[Cond, ...], how: dict[str, Any], wanted: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/control.db"
    initialise(url)
    store = open_store(url)
    where = (("region", "=", REGION), *where)  # as a reader of the region asks
    prepared = store.statements.select(row, where, how.get("order", ()), how.get("desc", False), limited=False)
    with store.engine.connect() as connection:
        sql = f"EXPLAIN QUERY PLAN {prepared.sql}"
        plan = [step[3] for step in connection.exec_driver_sql(sql, prepared.bind(store.statements.values(where)))]
    store.close()
    assert wanted in plan[0], plan
    assert not any("TEMP B-TREE" in step for step in plan), plan


def test_the_line_of_20_000_checkpoints_is_one_quick_question(new_url: str) -> None:
    store, count = open_store(new_url), 20_000
    rows = [Checkpoint(REGION, n, n - 1, 1, CheckpointStatus.RETIRED, merged_at=float(n)) for n in range(1, count + 1)]
    store.create(region(), lambda tx: tx.add(*rows))
    with store.read(REGION) as reader:
        started = time.perf_counter()
        assert reader.line(count) == list(range(1, count + 1))
        whole = time.perf_counter() - started
        started = time.perf_counter()
        assert reader.line(count, after=count - 20) == list(range(count - 19, count + 1))
        short = time.perf_counter() - started
    store.close()
    assert whole < 1, f"{whole:.2f} s"
    assert short < 0.2, f"{short:.3f} s"
