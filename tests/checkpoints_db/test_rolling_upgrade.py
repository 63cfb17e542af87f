"""Members of an older version live through `crkafka init` by a newer one: a schema is expanded first, and contracted later."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from checkpoints_db import SqlStore, initialise, migrations, open_store, schema
from checkpoints_db.address import parse
from crkafka_core.model.errors import TooOld
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, MergedOffset
from crkafka_core.plane import life
from crkafka_core.plane.transact import ControlPlane

RELEASED = "0009"
"""The oldest version whose members may still run when a newer program says `init`. A migration that would end that has to
wait until a release in between has made it needless."""


def test_members_of_the_oldest_released_version_live_through_init_by_this_one(empty_url: str) -> None:
    with closing(SqlStore(parse(empty_url), may_create=True)) as store, store.engine.connect() as connection:
        if not store.address.postgres:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        schema.migrate(connection, upto=RELEASED)
        connection.commit()
    old = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("old_member.py")), empty_url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with old:
        assert old.stdin is not None and old.stdout is not None

        def cut() -> str:
            old.stdin.write("cut\n")
            old.stdin.flush()
            return old.stdout.readline().strip()

        try:
            assert old.stdout.readline() == "ready\n"
            assert cut() == "RUNNING 1"
            initialise(empty_url)
            assert cut() == "RUNNING 2"
            with closing(open_store(empty_url)) as store:
                plane = ControlPlane(store, "orders")
                plane.do(lambda tx: tx.set_region(stop_reason=""))
                assert cut() == "RUNNING 3"
                with store.read("orders") as reader:
                    merged = reader.select(Checkpoint)
                    assert [(c.id, c.status) for c in merged] == [(n, CheckpointStatus.MERGED) for n in (1, 2, 3)]
                    assert reader.count(MergedOffset, ("checkpoint", "=", 3))
                    assert store.regions()[0].protocol == 1
            old.stdin.close()
            assert old.wait(30) == 0
        finally:
            old.kill()


def test_the_versions_after_the_oldest_released_one_only_expand() -> None:
    """What a later version drops or renames, a member that still runs would miss."""
    folder = Path(migrations.__file__).parent / "versions"
    later = [path for path in folder.glob("[0-9]*.py") if path.stem[:4] > RELEASED]
    assert later
    for path in later:
        text = path.read_text()
        for taken_away in ("drop_column", "drop_table", "alter_column", "rename_table", "drop_constraint"):
            assert taken_away not in text, f"{path.name}: {taken_away}"
        for line in text.splitlines():
            if "add_column" in line and "nullable=False" in line:
                assert "server_default" in line, f"{path.name}: a member that does not know the column writes none"


def test_a_program_that_is_too_old_reads_and_changes_nothing(new_url: str) -> None:
    from checkpoints_db.testing.players import Player, new_region

    with closing(open_store(new_url)) as store:
        life.declare(store, new_region("orders", members_wanted=1))
        plane = ControlPlane(store, "orders")
        plane.do(lambda tx: life.start(tx, by="me"))
        plane.do(lambda tx: tx.set_region(protocol=2))
        before = plane.read(lambda _, row: row)
        with pytest.raises(TooOld, match=r"protocol 2; this program speaks 1.*Install the crkafka"):
            Player(plane, "orders/0").step()
        with pytest.raises(TooOld):
            life.declare(store, new_region("orders", members_wanted=1))
        assert plane.read(lambda _, row: row) == before


def test_a_value_that_a_newer_program_has_written_is_told(new_url: str) -> None:
    from checkpoints_db.testing.players import new_region

    with closing(open_store(new_url)) as store:
        life.declare(store, new_region("orders", members_wanted=1))
        plane = ControlPlane(store, "orders")
        with store.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE region SET phase = 'DREAMING'")
        asks = (
            store.regions,
            lambda: plane.read(lambda _, row: row),
            lambda: plane.do(lambda tx: life.start(tx, by="me")),
        )
        for ask in asks:
            with pytest.raises(
                TooOld, match=r"region .*has the phase 'DREAMING', which this program does not know\. A newer"
            ):
                ask()
