"""`pause` and `resume` set the region's marks (SPEC P2), and know a partition from a topic, a pattern and a member."""

from __future__ import annotations

import pytest

from crkafka_core.model.rows import Initial
from crkafka_core.plane.transact import ControlPlane
from tests.cli.conftest import Crkafka


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("orders", "topic"),
        ("orders[3]", "partition"),
        ("^ord.*", "pattern"),
        ("orders/0", "member"),
    ],
)
def test_P2_a_mark_is_set_listed_and_taken_away(crkafka: Crkafka, plane: ControlPlane, what: str, kind: str) -> None:
    assert [(m["kind"], m["what"]) for m in crkafka("pause", what, "--json").json] == [(kind, what)]
    assert [(m["kind"], m["what"]) for m in crkafka("pause", "--json").json] == [(kind, what)]
    assert what in crkafka("show").out
    gone = crkafka("resume", what)
    assert (gone.code, gone.out) == (0, f"{kind} {what} flows again\n")
    assert crkafka("resume", what).code == 1
    assert crkafka("pause").out == "nothing is paused\n"


def test_who_paused_is_in_the_event_log(crkafka: Crkafka, plane: ControlPlane) -> None:
    crkafka("pause", "orders")
    (event,) = [e for e in crkafka("events", "--json").json if e["kind"] == "paused"]
    assert "@" in event["by"]


def test_P1_a_mark_of_one_member_is_beside_that_of_the_region(crkafka: Crkafka, plane: ControlPlane) -> None:
    crkafka("pause", "orders")
    assert crkafka("pause", "orders", "--member", "orders/1").code == 0
    assert "topic orders of orders/1" in crkafka("show").out
    assert crkafka("resume", "orders").code == 0
    assert [(m["what"], m["member"]) for m in crkafka("pause", "--json").json] == [("orders", "orders/1")]
    assert crkafka("resume", "orders", "--member", "orders/1").code == 0
    refused = crkafka("pause", "orders[0]", "--member", "orders/7")
    assert refused.code == 1
    assert "orders/7" in refused.err


def test_P2_a_mark_on_a_partition_that_is_not_there_yet_says_which_are(crkafka: Crkafka, plane: ControlPlane) -> None:
    assert crkafka("pause", "orders[3]").err == ""
    answer = crkafka("pause", "orders[9]")
    assert answer.code == 0
    assert answer.err == (
        "orders[9] does not exist yet, and is paused once it does; known of its topic are orders[0] to orders[3]\n"
    )
    plane.do(lambda tx: tx.delete(Initial))
    assert crkafka("pause", "orders[5]").err == "", "nothing is known of its topic"
