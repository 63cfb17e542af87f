"""A request that cannot succeed is refused before a question, a start or a loss."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from crkafka_core.model.errors import ConfigError
from crkafka_core.model.offsets import TP, parse_offsets
from crkafka_core.model.rows import Initial, Table
from crkafka_core.plane import leases, starts
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.region import host
from tests.cli.conftest import YAML, Crkafka


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("ordesr", "does not read a topic 'ordesr'. Did you mean \"orders\"?"),
        ("refunds[3]", "does not read a topic 'refunds'. It reads orders."),
        ("^shop", "The pattern '^shop' matches no topic"),
        ("nosuch/0", "'nosuch/0' is not a member of region orders. Write it as orders/0."),
    ],
)
def test_a_pause_of_what_would_never_be_read_is_refused(
    crkafka: Crkafka, plane: ControlPlane, what: str, said: str
) -> None:
    answer = crkafka("pause", what)
    assert (answer.code, said in answer.err) == (1, True), answer.err  # as other names that are not known
    assert crkafka("pause", "orders[99]").code == 0, "a partition that may come"


def test_a_rewind_that_would_lose_rows_of_a_forgotten_topic_is_refused_before_it_is_asked_for(
    crkafka: Crkafka, plane: ControlPlane
) -> None:
    plane.do(lambda tx: starts.forget(tx, "orders", by="me"))
    answer = crkafka("reset", "--to", "1")
    assert answer.code == 1
    assert (
        "rows of orders would be superseded" in answer.err and "`crkafka reset --to 1 --give-up orders`" in answer.err
    )
    assert "--yes" in crkafka("reset", "--to", "1", "--give-up", "orders").err, "that one is asked for"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("tables", "replay", "bronce", "--after", "0", "--upto", "2"),
            "declares no table 'bronce'. Declared: bronze.",
        ),
        (("tables", "mend", "bronce"), "declares no table 'bronce'. Declared: bronze."),
        (("tables", "advance", "bronce"), "declares no table 'bronce'. Declared: bronze."),
        (("forget", "ordesr"), "knows no topic 'ordesr', or has forgotten it already. It knows orders."),
        (("skip", "ordesr[0]@3"), "knows no topic 'ordesr', or has forgotten it already. It knows orders."),
        (("checkpoints", "99"), "has no checkpoint 99. `crkafka checkpoints` lists them."),
        (("reset", "--to", "99"), "Checkpoint 99 of region orders is unknown"),
        (
            ("tables", "replay", "bronze", "--after", "0", "--upto", "99"),
            "What can be read: 1, 2 (2 on the line to the head).",
        ),
    ],
)
def test_what_is_not_there_is_refused_before_anything_starts(
    crkafka: Crkafka, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.setattr("crkafka_core.spark.session.open_session", _no_session)
    plane.do(lambda tx: tx.put(Table("orders", "bronze", "delta", "lake.shop.bronze", acknowledged=2)))
    answer = crkafka(*arguments)
    assert (answer.code, said in answer.err, "--yes" in answer.err) == (1, True, False), answer.err


def test_a_replay_into_a_table_by_key_is_refused_before_spark_starts(
    crkafka: Crkafka, region_file: Path, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was refused only after the start of Spark, two minutes, and after it had been announced."""
    monkeypatch.setattr("crkafka_core.spark.session.open_session", _no_session)
    (region_file.parent / "order.json").write_text('{"type": "object", "properties": {"id": {"type": "integer"}}}')
    typed = "typed: {json: order.json}, mode: upsert"
    region_file.write_text(YAML + f"tables: [{{name: customers, format: delta, path: t, {typed}}}]\n")
    assert crkafka("init").code == 0
    answer = crkafka("tables", "replay", "customers", "--after", "0", "--upto", "2")
    assert (answer.code, answer.err.count("\n")) == (1, 1), answer.err
    assert "keeps the last record of each kafka_key: rows of single checkpoints cannot be written again." in answer.err


def _no_session(*_: object) -> NoReturn:
    raise AssertionError("Spark was started")


@pytest.mark.parametrize(
    ("wanted", "said"), [("0", "`crkafka stop` ends all members."), ("20000", "A region has 10,000 at most.")]
)
def test_a_number_of_members_that_cannot_be_is_refused(
    crkafka: Crkafka, plane: ControlPlane, wanted: str, said: str
) -> None:
    answer = crkafka("scale", wanted)
    assert (answer.code, answer.err.endswith(f" {said}\n")) == (1, True), answer.err
    assert plane.read(lambda _, row: row.members_wanted) == 2


def test_who_says_no_when_asked_hears_that_nothing_was_done(
    crkafka: Crkafka, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: "n\n"))
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: "n")
    answer = crkafka("reset", "--to", "1")
    assert (answer.code, answer.err.splitlines()[-1]) == (1, "Nothing was done.")


@pytest.mark.parametrize("verb", ["host", "consume"])
def test_a_host_that_is_refused_changes_nothing_of_the_region(
    crkafka: Crkafka, plane: ControlPlane, region_file: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Its file is older, or of somebody who tries something: the members of the other host would have gone by it."""

    def hold() -> None:
        plane.do(lambda tx: leases.take(tx, host.LEASE, holder="anna@there", token="anna", length=30.0))

    usual = host._until_free
    monkeypatch.setattr(host, "_until_free", lambda *given: (hold(), usual(*given))[1])
    hold()
    before = plane.read(lambda _, row: row)
    region_file.write_text(YAML.replace("members: 2", "members: 5"))
    assert crkafka(verb).code
    assert plane.read(lambda _, row: (row.members_wanted, row.config_json)) == (2, before.config_json)


@pytest.mark.parametrize(
    ("text", "found"), [("orders[3]@17", (TP("orders", 3), 17, 17)), ("a.b-c[0]@0-20", (TP("a.b-c", 0), 0, 20))]
)
def test_x9_offsets_are_written_as_errors_write_them(text: str, found: tuple[TP, int, int]) -> None:
    assert parse_offsets(text) == found


@pytest.mark.parametrize("text", ["orders@3", "orders[3]", "[1]@2", "orders[x]@1", "orders[1]@2-"])
def test_x9_what_names_no_offsets_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_offsets(text)


@pytest.mark.parametrize(
    ("what", "kind"), [("orders", "topic"), ("orders[3]", "partition"), ("^ord.*", "pattern"), ("orders/0", "member")]
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
