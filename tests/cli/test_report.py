"""`crkafka report`: one HTML file with a region's history, without dependencies (SPEC X8)."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from crkafka_core.cli.history import read_report
from crkafka_core.cli.report_page import page
from crkafka_core.config import RegionConfig
from crkafka_core.control import Tx
from crkafka_core.model.rows import Checkpoint, ResetCause
from crkafka_core.plane import events, resets
from crkafka_core.plane.transact import ControlPlane
from tests.cli.conftest import Crkafka


class Balanced(HTMLParser):
    """Fails where an element is closed that is not open, and knows what was left open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_shows_what_happened_and_needs_nothing_else(
    crkafka: Crkafka, plane: ControlPlane, tmp_path: Path
) -> None:
    plane.do(lambda tx: resets.begin(tx, ResetCause.LOST, "orders/1 died", by="orders/0", member="orders/1"))
    plane.do(lambda tx: events.log(tx, "resumed", "from head 2"))
    plane.do(lambda tx: events.log(tx, "process died", "SIGKILL", member="orders/1"))
    assert crkafka("report").out == "report-orders.html: 2 checkpoints, 1 reset\n"
    text = (tmp_path / "report-orders.html").read_text()
    read = Balanced()
    read.feed(text)
    assert read.open == []
    assert not {"src", "href"} & {name for name, _ in read.attributes}
    assert not re.search(r"https?:|<script|@import|url\(", text)
    for shown in (
        "checkpoint 2, MERGED: 40 records, pause 7 ms",
        "orders/1 died",
        "✖",
        "80</b><span>records landed<",
        "1</b><span>reset<",
    ):
        assert shown in text


def test_two_pauses_have_the_mean_as_median_and_a_moment_in_a_month_is_a_bar_that_is_seen(
    crkafka: Crkafka, plane: ControlPlane, tmp_path: Path
) -> None:
    first, second = plane.read(lambda reader, _: reader.select(Checkpoint, order=("id",)))
    month = 30 * 86_400.0
    early = replace(first, drain_ms=617, opened_at=first.opened_at - month, merged_at=first.merged_at - month)
    plane.do(lambda tx: tx.put(early, replace(second, drain_ms=17)))
    assert crkafka("report").code == 0
    text = (tmp_path / "report-orders.html").read_text()
    assert "317 ms</b><span>pause, median<" in text
    assert min(float(width) for width in re.findall(r'<rect [^>]*width="([\d.]+)"[^>]*><title>checkpoint', text)) >= 3.0


def test_what_others_wrote_is_text_and_no_markup(
    crkafka: Crkafka, plane: ControlPlane, tmp_path: Path, region_file: Path
) -> None:
    evil = "<script>alert(1)</script>\x1b[2J"
    plane.do(lambda tx: resets.begin(tx, ResetCause.PERSON, evil, by=evil))
    plane.do(lambda tx: events.log(tx, "note", evil, by=evil))
    text = page(read_report(RegionConfig.load(region_file)))
    assert "<script" not in text and "\x1b" not in text
    assert text.count("&lt;script&gt;") >= 3


def test_a_region_that_has_done_nothing_yet_has_a_page_too(crkafka: Crkafka, region_file: Path) -> None:
    assert crkafka("init").code == 0
    assert crkafka("report", "-o", "empty.html").code == 0


def test_a_place_that_cannot_be_written_is_told(crkafka: Crkafka, plane: ControlPlane) -> None:
    said = crkafka("report", "-o", "/proc/report.html")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "Name another file with -o" in said.err


@pytest.mark.parametrize("last", [2, 500])
def test_stretches_follow_each_other_without_a_hole(
    plane: ControlPlane, region_file: Path, crkafka: Crkafka, last: int
) -> None:
    def happens(what: Callable[[Tx], object]) -> None:
        plane.do(what)
        time.sleep(0.005)  # SQL's clock tells milliseconds, and no region is reset and resumes within one

    happens(lambda tx: events.log(tx, "resumed", "born"))
    happens(lambda tx: resets.begin(tx, ResetCause.START, "started", by="me"))
    happens(lambda tx: events.log(tx, "resumed", "again"))
    happens(lambda tx: resets.begin(tx, ResetCause.LOST, "died", by="me"))
    found = read_report(RegionConfig.load(region_file), last=last).stretches
    assert [s.state for s in found] == ["running", "starting", "running", "resetting"]
    assert all(a.until == b.since for a, b in itertools.pairwise(found))
    assert found[-1].until == 0.0
