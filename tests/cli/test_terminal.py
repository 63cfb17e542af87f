"""Text from outside is shown as it is, and controls neither `rich` nor the terminal."""

from __future__ import annotations

import dataclasses
import io
import json
import logging

import pytest
from rich.console import Console

from crkafka_core import logs
from crkafka_core.cli.output import note, print_json, print_pairs, print_table
from crkafka_core.cli.status import status_and_history
from crkafka_core.cli.watching import view
from crkafka_core.config import RegionConfig
from crkafka_core.model.errors import ServiceUnavailable
from crkafka_core.plane import events, pauses
from tests.plane.conftest import Kit

EVIL = "[/x][red]\x1b]2J\x9b1m\r!"
SHOWN = r"[/x][red]\x1b]2J\x9b1m\r!"


@pytest.fixture
def config() -> RegionConfig:
    kafka = {"bootstrap.servers": "localhost:1", "group.id": "g"}
    return RegionConfig.of(region="orders", control_plane="sqlite:///x.db", storage="s", topics=["t"], kafka=kafka)


def test_watch_shows_any_text_as_it_is(config: RegionConfig) -> None:
    kit = Kit()
    kit.running()
    kit.do(lambda tx: pauses.pause(tx, "pattern", "^" + EVIL, member="", by=EVIL))
    kit.do(lambda tx: events.log(tx, "NOTE", EVIL, by=EVIL))
    look = kit.plane.read(lambda reader, row: status_and_history(reader, row))
    now = look.status
    evil = dataclasses.replace(
        now,
        waits_for=EVIL,
        region=dataclasses.replace(now.region, name=EVIL),
        members=tuple(dataclasses.replace(m, host=EVIL) for m in now.members),
    )
    look = dataclasses.replace(look, status=evil)
    drawn = io.StringIO()
    Console(file=drawn, width=400).print(view(look, look))
    assert drawn.getvalue().count(SHOWN) >= 7
    assert not {"\x1b", "\x9b", "\r"} & set(drawn.getvalue())


def test_so_does_the_reason_why_there_is_nothing_to_watch() -> None:
    drawn = io.StringIO()
    Console(file=drawn, width=200).print(view(ServiceUnavailable(EVIL), None))
    assert SHOWN in drawn.getvalue()


def test_and_every_table_pair_and_note(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("a",), [(EVIL,)])
    print_pairs([("a", EVIL)])
    note(EVIL)
    out, err = capsys.readouterr()
    assert (out.count(SHOWN), err) == (2, SHOWN + "\n")
    assert "\x1b" not in out
    print_pairs([("reason", "gone\nphase   RUNNING"), ("x", 1)])
    assert capsys.readouterr().out.splitlines() == ["reason  gone", "        phase   RUNNING", "x       1"]
    print_table(("a", "b"), [("one", "two\nthree  four")])
    assert capsys.readouterr().out.splitlines()[1:] == [r"one  two\nthree  four"], "no line that looks like another row"


@pytest.mark.parametrize("who", ["", "orders/0"])
def test_and_every_line_of_a_log(who: str, capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        logs.begin("INFO", "text", who=who, force=True)
        logging.getLogger("x").warning("client %s", EVIL + "\nERROR:root:forged")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    colon = ": " if who else ":"
    assert capsys.readouterr().err.endswith(f"x{colon}client {SHOWN}\\nERROR:root:forged\n")


def test_and_json_for_programs_and_logs(capsys: pytest.CaptureFixture[str]) -> None:
    given = {"client": f"Łódź 注文 {EVIL}\u202e"}
    print_json(given)
    out = capsys.readouterr().out
    line = logs._Json("m").format(logging.LogRecord("x", logging.INFO, "f", 1, given["client"], None, None))
    for text, said in ((out, json.loads(out)["client"]), (line, json.loads(line)["message"])):
        assert said == given["client"] and "Łódź 注文" in text
        assert text.rstrip("\n").replace("\n", "").isprintable()


def test_watch_fits_a_terminal_of_80_columns_and_shows_tables(config: RegionConfig) -> None:
    kit = Kit(tables=("bronze",))
    kit.running()
    look = kit.plane.read(lambda reader, row: status_and_history(reader, row))
    drawn = io.StringIO()
    Console(file=drawn, width=80).print(view(look, look))
    lines = drawn.getvalue().splitlines()
    assert not any("…" in line for line in lines if "submitted" in line)
    assert any("bronze" in line and "fresh" in line for line in lines)
