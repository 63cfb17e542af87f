"""Texts that reach SQL: no secret, and nothing that a database refuses (SPEC X8)."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from checkpoints_db import initialise, open_store
from crkafka_core.config.resolving import remember
from crkafka_core.model.rows import ROWS, Region
from crkafka_core.plane import epochs, events, life, members, resets
from crkafka_core.plane.transact import ControlPlane
from tests.plane.conftest import Kit


def test_x8_an_event_shows_no_secret_that_this_process_has_resolved(kit: Kit) -> None:
    remember("canary-in-an-event")
    kit.do(lambda tx: events.log(tx, "NOTE", "refused: canary-in-an-event", data={"said": "canary-in-an-event"}))
    found = kit.events("NOTE")[0]
    assert (found.text, found.data_json) == ("refused: ***", '{"said": "***"}')


def test_nor_has_any_row_that_tells_why_a_region_reset_or_stopped(kit: Kit) -> None:
    """Also no zero byte, which PostgreSQL refuses: the member could not even say that it failed."""
    remember("canary-in-a-row")
    kit.running()
    kit.open()
    said = "RuntimeError: refused: canary-in-a-row \0"
    kit.do(lambda tx: members.lose(tx, "orders/0", kit.live["orders/0"], by="orders/0", why=said))
    kit.do(lambda tx: epochs.halt(tx, said))
    kit.do(lambda tx: events.raise_alarm(tx, "unsettled", said))
    with kit.plane.store.read("orders") as reader:
        rows = [row for kind in ROWS for row in reader.select(kind)]
    assert sum("refused: ***" in str(row) for row in rows) >= 5
    assert not [row for row in rows if "canary-in-a-row" in str(row) or "\\x00" in repr(row)]


def test_x8_a_text_that_is_no_utf_8_is_kept_as_far_as_it_goes(tmp_path: Path) -> None:
    """As an argument of a command in another encoding, or an error about a folder with such a name: no database took it."""
    initialise(url := f"sqlite:///{tmp_path}/control.db")
    with closing(open_store(url)) as store:
        plane = ControlPlane(store, "orders")
        life.declare(store, Region("orders", "uid", 0))
        plane.do(lambda tx: life.start(tx, by="me"))
        plane.do(lambda tx: resets.request(tx, cause="caf\udce9", by="me"))
        assert plane.read(lambda _, row: row.reset_cause).endswith("as asked by me: caf?")
