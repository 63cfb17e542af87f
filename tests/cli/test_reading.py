"""`show`, `checkpoints`, `events`: rows of the control plane, without Kafka, for people and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from crkafka_core.control import Tx
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Member, ResetCause
from crkafka_core.plane import alarms, epochs, life, resets
from crkafka_core.plane.transact import ControlPlane
from tests.cli.conftest import Crkafka


def test_checkpoints_lists_oldest_first(crkafka: Crkafka, plane: ControlPlane) -> None:
    answer = crkafka("checkpoints", "--json")
    assert answer.code == 0
    assert [(c["id"], c["parent"], c["status"], c["rows"]) for c in answer.json] == [
        (1, 0, "MERGED", 40),
        (2, 1, "MERGED", 40),
    ]
    assert [c["id"] for c in crkafka("checkpoints", "--last", "1", "--json").json] == [2]
    text = crkafka("checkpoints").out
    assert " ".join(text.splitlines()[0].split()) == "id parent status rows segments members cause opened drain"
    assert len(text.splitlines()) == 3


def test_one_checkpoint_with_its_parts(crkafka: Crkafka, plane: ControlPlane) -> None:
    detail = crkafka("checkpoints", "2", "--json").json
    assert [(o["partition"], o["from_offset"], o["to_offset"]) for o in detail["offsets"]] == [
        (p, 10, 20) for p in range(4)
    ]
    assert [c["member"] for c in detail["contributions"]] == ["orders/0", "orders/1"]
    assert [s["path"] for s in detail["segments"]] == ["s2-0", "s2-1"]
    assert "orders/1" in crkafka("checkpoints", "2").out


def test_a_region_runs_since_its_last_resume_whatever_cuts_it_has_made(crkafka: Crkafka, plane: ControlPlane) -> None:
    """The age of the phase was that of the last cut."""
    plane.do(lambda tx: tx.set_region(resumed_at=tx.now() - 600, phase_since=tx.now() - 180))
    assert "RUNNING for 10 min; wanted" in crkafka("show").out
    assert "RUNNING for 10 min " in crkafka("show", "--watch", "--once").out
    plane.do(lambda tx: tx.set_region(phase=Phase.CUTTING))
    assert "CUTTING for 3 min" in crkafka("show").out


def test_show_tells_phase_members_head_and_what_it_waits_for(crkafka: Crkafka, plane: ControlPlane) -> None:
    shown = crkafka("show", "--json").json
    assert (shown["region"]["phase"], shown["region"]["head"], shown["waits_for"]) == ("RUNNING", 2, "")
    assert [m["name"] for m in shown["members"]] == ["orders/0", "orders/1"]
    assert shown["members"][1]["partitions"] == [
        {"topic": "orders", "partition": 2},
        {"topic": "orders", "partition": 3},
    ]
    assert "config" not in shown["region"]
    text = crkafka("show").out
    assert "RUNNING" in text
    assert "2 of 2 wanted" in text
    assert "pid" in next(line for line in text.splitlines() if line.startswith("member  "))


def test_show_and_events_tell_who_asked_for_a_reset_and_where_to(crkafka: Crkafka, plane: ControlPlane) -> None:
    plane.do(lambda tx: resets.request(tx, by="anna", target=1))
    assert "last start or reset  back to checkpoint 1, as asked by anna\n" in crkafka("show").out
    assert "back to checkpoint 1, as asked by anna" in crkafka("events").out


def test_that_members_do_not_reach_kafka_is_shown(crkafka: Crkafka, plane: ControlPlane) -> None:
    """Only the host's terminal showed it; `show` had the cause of the last start."""
    said = "Kafka does not answer (in group orders)."

    def report(tx: Tx) -> None:
        first = tx.select(Member)[0]
        tx.put(replace(first, metrics_json=json.dumps({"kafkaAway": said})))

    assert said not in crkafka("show").out
    plane.do(report)
    assert said in crkafka("show").out
    assert said in crkafka("show", "--watch", "--once").out
    assert said not in crkafka("health").out
    plane.do(
        lambda tx: tx.set_region(last_cut_at=tx.now() - 600, created_at=tx.now() - 600, started_epoch=0, period=10.0)
    )
    assert said in crkafka("health").out


def test_a_live_view_without_a_terminal_is_refused_with_what_to_do(crkafka: Crkafka) -> None:
    """It printed nothing, without end."""
    refused = crkafka("show", "--watch")
    assert (refused.code, refused.err) == (
        2,
        "A live view needs a terminal. `crkafka show --watch --json` prints a line for each view, `crkafka show` the state once.\n",
    )


def test_events_since_a_number(crkafka: Crkafka, plane: ControlPlane) -> None:
    everything = crkafka("events", "--since", "0", "--json").json
    assert [e["kind"] for e in everything] == ["made", "merged", "merged"]
    later = crkafka("events", "--since", str(everything[1]["seq"]), "--json").json
    assert [e["seq"] for e in later] == [everything[2]["seq"]]
    assert "40 rows of 2 members" in crkafka("events").out


@pytest.mark.parametrize("verb", ["show", "checkpoints", "events"])
def test_a_region_that_is_not_there(crkafka: Crkafka, plane: ControlPlane, verb: str) -> None:
    plane.store.run("orders", lambda tx: tx.set_region(phase="IDLE"))
    plane.do(lambda tx: life.delete(tx))
    answer = crkafka(verb)
    assert answer.code == 1
    assert answer.err == "There is no region 'orders' in this control plane. `crkafka init` makes it.\n"


def test_X8_show_prints_what_somebody_should_look_at(crkafka: Crkafka, plane: ControlPlane) -> None:
    """SPEC G8, X8: a group that does not settle is alarmed, with its foreign members named; a stopped region gives its reason once."""
    assert crkafka("show", "--json").json["alarm"] == ""
    plane.do(lambda tx: resets.begin(tx, ResetCause.PERSON, "c", by="me"))
    plane.do(lambda tx: tx.set_region(reset_at=1.0))
    plane.do(lambda tx: alarms.strangers(tx, ["reporting-tool"], by="orders/0"))
    assert "reporting-tool" in crkafka("show", "--json").json["alarm"]
    assert any(line.startswith("alarm") and "reporting-tool" in line for line in crkafka("show").out.splitlines())
    assert "reporting-tool" in crkafka("show", "--watch", "--once").out
    plane.do(lambda tx: epochs.halt(tx, "a reason"))
    assert crkafka("show", "--json").json["alarm"] == "stopped: a reason"
    assert crkafka("show").out.count("a reason") == 1


def test_x8_health_ends_with_1_when_somebody_should_look(crkafka: Crkafka, plane: ControlPlane) -> None:
    answer = crkafka("health")
    assert (answer.code, answer.out) == (0, "RUNNING: healthy\n")
    assert crkafka("health", "--json").json == {"healthy": True, "phase": "RUNNING", "alarm": ""}
    plane.do(lambda tx: tx.set_region(wanted="run", period=1.0, last_cut_at=1.0, created_at=1.0))
    answer = crkafka("health")
    assert answer.code == 1
    assert answer.out.startswith("no checkpoint was merged for ")
    plane.do(lambda tx: epochs.halt(tx, "a reason"))
    assert (crkafka("health").code, crkafka("health").out) == (1, "stopped: a reason\n")
