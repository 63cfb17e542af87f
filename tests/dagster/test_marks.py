"""Pause, resume, forget and undeclare from the launchpad: what a person may ask for, and what is refused with a sentence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import PauseMark, Start, StartReason, Table
from crkafka_core.plane import starts
from crkafka_core.plane import tables as plane_tables
from crkafka_core.region import Region
from tests.dagster.conftest import LandedSeat, Seat, failure, shown
from tests.rigs.hand_member import HandMember

pytestmark = pytest.mark.dagster


def refusal(seat: Seat, job: str, config: dict[str, Any]) -> str:
    return failure(seat.run(job, config, raise_on_error=False))


def marks(seat: Seat) -> list[tuple[str, str, str]]:
    found = seat.region.plane.read(lambda r, row: r.select(PauseMark))
    return [(m.kind, m.what, m.by[:11]) for m in found]


def test_what_is_paused_is_resumed(seat: Seat) -> None:
    assert seat.run("pause_flow", {"pause": {"what": "orders"}}).success
    assert marks(seat) == [("topic", "orders", "dagster run")]
    resumed = seat.run("resume_flow", {"resume_mark": {"what": "orders"}})
    assert shown(resumed, "resume_mark") == {"was_paused": True}
    assert marks(seat) == []
    assert "Write one of partition, topic, pattern, member" in refusal(
        seat, "pause_flow", {"pause": {"kind": "all", "what": "x"}}
    )


def test_a_topic_is_forgotten_only_when_its_name_is_said_twice(seat: Seat, capfd: pytest.CaptureFixture[str]) -> None:
    assert "`sure` says 'yes'" in refusal(seat, "forget_topic", {"forget": {"topic": "orders", "sure": "yes"}})
    assert seat.run("forget_topic", {"forget": {"topic": "slip", "sure": "slip"}}).success
    assert "The region knows no topic slip: nothing is forgotten." in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("pause_flow", "`what` is empty: no topic is named"),
        ("resume_flow", "`what` is empty: no topic is named"),
        ("forget_topic", "`topic` is empty: no topic is named"),
        ("skip_records", "'' does not name offsets"),
        ("undeclare_table", "declares no table ''"),
    ],
)
def test_a_launchpad_that_nobody_has_filled_in_is_refused_with_a_sentence(seat: Seat, job: str, said: str) -> None:
    begins = seat.defs.resolve_job_def(seat.names.of(job)).run_config
    assert begins is not None
    assert said in refusal(seat, job, {op: keys["config"] for op, keys in begins["ops"].items()})
    assert marks(seat) == []


def test_records_are_skipped_only_when_the_offsets_are_said_twice(seat: Seat) -> None:
    one = {"offsets": "orders[3]@17-20"}
    assert "`sure` says 'yes'" in refusal(seat, "skip_records", {"skip": {**one, "sure": "yes"}})
    assert "knows no partition orders[3]" in refusal(seat, "skip_records", {"skip": {**one, "sure": one["offsets"]}})
    wrong = {"offsets": "orders/3", "sure": "orders/3"}
    assert "'orders/3' does not name offsets" in refusal(seat, "skip_records", {"skip": wrong})


def test_skipped_records_are_a_gap_and_the_partition_goes_on_behind_them(
    seat: Seat, member: HandMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert seat.run("cut").success
    known = seat.region.plane.read(lambda r, row: starts.known(r))
    tp = min(known)
    stands = seat.region.plane.read(lambda r, row: starts.lookup(r, row, {tp: known[tp].topic_id}).offsets[tp])

    class Kafka:
        def watermarks(self, tps: Iterable[TP], isolation: str) -> dict[TP, tuple[int, int]]:
            return dict.fromkeys(tps, (0, stands + 3))

    monkeypatch.setattr(Region, "admin", lambda self: Kafka())
    beyond = f"{tp}@{stands}-{stands + 3}"
    assert f"{tp} ends before offset" in refusal(seat, "skip_records", {"skip": {"offsets": beyond, "sure": beyond}})
    offsets = f"{tp}@{stands}-{stands + 2}"
    assert seat.run("skip_records", {"skip": {"offsets": offsets, "sure": offsets}}).success
    gaps = seat.region.plane.read(lambda r, _: r.select(Start, ("reason", "=", StartReason.GAP)))
    assert {(g.topic, g.partition, g.offset) for g in gaps} == {(*tp, stands + 3)}
    seat.region.await_running(timeout=20)


@pytest.mark.parametrize("tables", [[{"name": "bronze", "format": "delta", "path": "lake.shop.bronze"}]])
def test_a_table_is_undeclared_once_the_configuration_has_it_no_more(landed: LandedSeat) -> None:
    landed.region.plane.do(lambda tx: plane_tables.declare(tx, "old", "delta", "lake.shop.old"))
    assert "Take it out there first" in refusal(landed, "undeclare_table", {"undeclare": {"table": "bronze"}})
    assert landed.run("undeclare_table", {"undeclare": {"table": "old"}}).success
    assert [t.name for t in landed.region.plane.read(lambda r, _: r.select(Table))] == ["bronze"]
