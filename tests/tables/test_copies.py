"""Tables are written by who owns the storage: by no copy of the control plane, and by no older state of it (SPEC T3, G10)."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from deltalake import DeltaTable

from checkpoints_db.schema import initialise, open_store
from checkpoints_db.store import SqlStore
from crkafka_core.cli import checks
from crkafka_core.lake import compact, road
from crkafka_core.member.exit_codes import REFUSED
from crkafka_core.member.main import MemberProcess
from crkafka_core.model.errors import NotOwner, Refused, WentBack
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Launch
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.region import Region
from crkafka_core.region.feeder import Feeder
from crkafka_core.region.retire import own
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore

Copy = Callable[[str], Region]


class Stage:
    """A table of a region on SQLite, and copies of its file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "crkafka.db"
        initialise(f"sqlite:///{self.file}")
        self.stores: list[SqlStore] = [open_store(f"sqlite:///{self.file}")]
        self.path = folder / "tables" / "bronze"
        bronze = {"name": "bronze", "format": "delta", "path": str(self.path)}
        self.landing = Landing(self.stores[0], folder, tables=[bronze])
        self.region = self.landing.region

    def land(self) -> None:
        self.landing.land()
        own(self.region.plane, self.landing.storage, self.region.plane.read(lambda _, row: row))

    def copy(self, name: str) -> Region:
        """As a dump would be that is restored at another place."""
        with closing(sqlite3.connect(self.file)) as now, closing(sqlite3.connect(self.folder / name)) as target:
            now.backup(target)
        return self.opened(self.folder / name)

    def opened(self, file: Path) -> Region:
        self.stores.append(open_store(f"sqlite:///{file}"))
        return Region(self.region.config, ControlPlane(self.stores[-1], "orders"))

    def put_in_place(self, backup: Path) -> Region:
        self.stores[0].close()
        for left in self.folder.glob(f"{self.file.name}*"):
            left.unlink()
        self.file.write_bytes(backup.read_bytes())
        return self.opened(self.file)

    def version(self) -> int:
        return DeltaTable(str(self.path)).version()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    for store in made.stores:
        store.close()


def test_68_a_copy_of_the_control_plane_writes_fences_and_maintains_no_table(stage: Stage) -> None:
    stage.land()
    road.advance(stage.region, "bronze")
    stage.land()
    staging, version = stage.copy("staging.db"), stage.version()
    with pytest.raises(NotOwner, match=r"staging\.db is a copy"):
        road.advance(staging, "bronze")
    with pytest.raises(NotOwner):
        road.fence(staging, "bronze")
    with pytest.raises(NotOwner):
        compact.maintain(staging, "bronze")
    reports: list[str] = []
    feeder = Feeder(staging, tell=reports.append)
    feeder.turn(0.0)
    assert len(reports) == 1 and "is a copy" in reports[0]
    assert stage.version() == version
    road.advance(stage.region, "bronze")
    assert stage.version() > version, "production goes on"


def test_68_a_copy_of_the_control_plane_rewinds_nothing_gives_nothing_up_and_runs_no_member(stage: Stage) -> None:
    """Its members would join the group of the original, with the same static ids, before they look back."""
    for _ in range(2):
        stage.land()
    staging = stage.copy("staging.db")
    before = staging.plane.read(lambda _, row: row)
    acts: tuple[Callable[[], object], ...] = (
        lambda: staging.reset("initial"),
        lambda: staging.reset(1),
        lambda: staging.skip(TP("orders", 0), 200, 200),
        lambda: staging.forget("orders"),
        staging.refuse_copy,
    )
    for act in acts:
        with pytest.raises(NotOwner, match=r"staging\.db is a copy"):
            act()
    over = threading.Event()
    over.set()
    assert MemberProcess(staging.config, staging.plane, "orders/0", "here").run(over) == REFUSED
    assert staging.plane.read(lambda _, row: row) == before
    assert staging.plane.read(lambda reader, _: reader.select(Launch)) == []


def test_68_check_tells_whose_the_storage_is_and_what_it_has_seen(stage: Stage) -> None:
    stage.land()
    config = stage.landing.config
    assert "can be written" in checks.storage(config, checks.stored(config))
    stage.copy("older.db")
    copied = config.model_copy(update={"control_plane": f"sqlite:///{stage.folder}/older.db"})
    with pytest.raises(NotOwner, match=r"older\.db is a copy"):
        checks.storage(copied, checks.stored(copied))
    stage.land()
    stage.put_in_place(stage.folder / "older.db")
    with pytest.raises(WentBack, match="the storage has seen epoch 1 and checkpoint 2"):
        checks.storage(config, checks.stored(config))


@pytest.mark.parametrize("act", ["advance", "fence", "maintain"])
def test_67_an_older_state_of_the_control_plane_writes_and_maintains_no_table(stage: Stage, act: str) -> None:
    """Put in place of the newer one; until a person has said how to go on."""
    stage.land()
    stage.copy("older.db")
    stage.land()
    road.advance(stage.region, "bronze")
    older, version = stage.put_in_place(stage.folder / "older.db"), stage.version()
    acts: dict[str, Callable[[], object]] = {
        "advance": lambda: road.advance(older, "bronze"),
        "fence": lambda: road.fence(older, "bronze"),
        "maintain": lambda: compact.maintain(older, "bronze"),
    }
    for _ in range(2):
        with pytest.raises(WentBack, match="restored"):
            acts[act]()
    row = older.plane.read(lambda _, region: region)
    assert (row.phase, row.went_back, stage.version()) == (Phase.STOPPED, True, version)


def test_a_storage_without_the_segments_that_a_table_waits_for_is_refused(tmp_path: Path) -> None:
    """The table stood still for ever, with the question whether somebody had deleted them."""
    bronze = {"name": "bronze", "format": "delta", "path": str(tmp_path / "bronze")}
    landing = Landing(MemoryStore(), tmp_path, partitions=2, tables=[bronze])
    moved = landing.config.model_copy(update={"storage": str(tmp_path / "moved")})
    landing.land(5)
    with pytest.raises(
        Refused,
        match=r"bronze lacks checkpoint 1, whose segments lie in .*/segments: .*/moved has none.*Copy the folder",
    ):
        Region(moved, landing.region.plane).init()
    shutil.copytree(tmp_path / "segments", tmp_path / "moved")
    region = Region(moved, landing.region.plane)
    region.init()
    assert road.advance(region, "bronze") is not None
    again = Region(moved.model_copy(update={"storage": str(tmp_path / "third")}), landing.region.plane)
    again.init()  # nothing waits for what is in the second one
