"""What lies in the storage outlives a control plane that went back in time, and a copy of it (SPEC G10, T3; faults 67, 68)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from checkpoints_db.schema import initialise, open_store
from crkafka_core.control import Place
from crkafka_core.kafka.edge import Committed
from crkafka_core.member.outside_sql import OutsideSql, look_outside
from crkafka_core.model.errors import LeaseLost, NoSuchRegion, NotOwner, NotRunning, Refused, WentBack
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase, Wanted
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Segment, Table
from crkafka_core.model.segment import segment_path
from crkafka_core.plane import epochs, leases, resets, restored, tables
from crkafka_core.plane import retire as rules
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.protocol.commit_metadata import CommitMetadata
from crkafka_core.region import Region
from crkafka_core.region.availability import check_kept
from crkafka_core.region.retire import Retired, own, retire
from crkafka_core.segments import owner
from crkafka_core.segments.storage import Storage
from tests.plane.conftest import P0, Kit
from tests.rigs.landing import Landing
from tests.rigs.simulation.backup import put, rows_of


class Commits:
    """The group's committed offsets, as Kafka would tell them."""

    def __init__(self, metadata: str = "") -> None:
        self.metadata = metadata

    def committed(self, group_id: str, tps: Iterable[TP]) -> dict[TP, Committed]:
        return {TP("orders", 0): Committed(1, self.metadata)} if self.metadata else {}


class Backups:
    """A region on SQLite, and copies of its file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "crkafka.db"
        initialise(f"sqlite:///{self.file}")
        self.store = open_store(f"sqlite:///{self.file}")
        self.landing = Landing(self.store, folder)
        self.plane, self.storage = self.landing.region.plane, self.landing.storage
        self.plane.do(lambda tx: tx.set_region(limits_json='{"retain": 1}'))
        self.kafka = Commits()

    def backup(self, name: str) -> Path:
        with closing(sqlite3.connect(self.file)) as now, closing(sqlite3.connect(self.folder / name)) as there:
            now.backup(there)
        return self.folder / name

    def put_in_place(self, backup: Path) -> None:
        self.store.close()
        for left in self.folder.glob(f"{self.file.name}*"):
            left.unlink()
        self.file.write_bytes(backup.read_bytes())
        self.store = open_store(f"sqlite:///{self.file}")
        self.plane = ControlPlane(self.store, "orders")

    def retire(self) -> Retired:
        return retire(self.plane, self.storage, self.kafka, group_id="orders", holder="test", progress=lambda _: None)

    def look(self) -> OutsideSql:
        return look_outside(self.plane, self.storage, self.kafka, "orders")

    def stopped_as_older(self) -> None:
        seen = self.look().seen
        with pytest.raises(WentBack):
            self.plane.do(lambda tx: restored.check(tx, seen, by="me"))

    def named(self) -> list[str]:
        return self.plane.read(lambda reader, region: [s.path for s in reader.select(Segment)])

    def missing(self) -> list[str]:
        return [path for path in self.named() if not self.storage.exists(path)]

    def put(self, path: str) -> str:
        self.storage.put(path, b"x")
        return path


@pytest.fixture
def backups(tmp_path: Path) -> Iterator[Backups]:
    made = Backups(tmp_path)
    yield made
    made.store.close()


@pytest.mark.parametrize("lost", [1, 3])
def test_67_older_backup_and_retirement_leave_every_file_that_the_newer_one_names(backups: Backups, lost: int) -> None:
    backups.landing.land(times=4)
    backups.retire()
    backups.landing.land()
    older = backups.backup("older")
    for _ in range(lost):
        last = backups.landing.land()
    backups.plane.do(lambda tx: resets.request(tx, cause="newer epochs too", by="test"))
    newer = backups.backup("newer")
    uid = backups.landing.uid
    backups.kafka.metadata = CommitMetadata(uid, last, last - 1).text()
    backups.put_in_place(older)
    for _ in range(2):  # the second one finds it STOPPED for this
        with pytest.raises(WentBack, match="newer backup"):
            backups.retire()
    region = backups.plane.read(lambda _, row: row)
    assert (region.phase, region.went_back) == (Phase.STOPPED, True)
    backups.put_in_place(newer)
    assert len(backups.named()) > 2
    assert backups.missing() == []
    assert backups.retire().checkpoints
    assert backups.missing() == []


def test_96_newer_backup_put_back_after_an_older_one_was_rewound_and_retired_is_refused_and_can_go_to_initial_state(
    backups: Backups,
) -> None:
    """It was REWINDING without end, for segments that our own retirement had deleted; and nothing named what helps."""
    backups.plane.do(lambda tx: tables.declare(tx, "bronze", "delta", "/t/bronze"))
    backups.landing.land(times=3)
    older = backups.backup("older")
    for _ in range(2):
        last = backups.landing.land()
    newer = backups.backup("newer")
    backups.kafka.metadata = CommitMetadata(backups.landing.uid, last, last - 1).text()
    backups.put_in_place(older)
    backups.stopped_as_older()
    check_kept(backups.plane, backups.look().files)
    seen = backups.look().seen
    row = backups.plane.do(lambda tx: restored.rewind(tx, seen, by="me"))
    own(backups.plane, backups.storage, row)
    backups.landing.region = replace(backups.landing.region, plane=backups.plane)
    backups.plane.do(lambda tx: tx.set_region(phase=Phase.RUNNING))
    backups.landing.land(times=4)
    backups.retire()
    assert backups.missing() == []
    backups.put_in_place(newer)
    assert backups.missing(), "of the checkpoints that the rewind has left behind"
    backups.stopped_as_older()
    with pytest.raises(
        Refused, match=r"bronze .* lacks checkpoint 4.*retired after this backup.*`crkafka start --restored initial`"
    ):
        check_kept(backups.plane, backups.look().files)
    seen = backups.look().seen
    row = backups.plane.do(lambda tx: restored.rewind(tx, seen, by="me", initial=True))
    assert (row.head, row.went_back, row.wanted) == (0, False, Wanted.RUN)
    assert not backups.plane.read(lambda reader, _: reader.count(Checkpoint, ("status", "=", CheckpointStatus.MERGED)))
    assert backups.look().seen.epoch < row.epoch


@pytest.mark.parametrize("acknowledged", [None, 3, 2])
def test_g10_a_backup_older_than_retention_is_rewound_unless_a_table_lacks_what_was_retired_since(
    backups: Backups, acknowledged: int | None
) -> None:
    """Without a table, or with one that had all by then, no segment of the backup is needed."""
    backups.landing.land(times=3)
    if acknowledged is not None:
        backups.plane.do(lambda tx: tables.declare(tx, "bronze", "delta", "/t/bronze"))
        backups.plane.do(lambda tx: tx.put(replace(tx.select(Table)[0], acknowledged=acknowledged)))
    last_night = backups.backup("last night")
    for _ in range(3):
        last = backups.landing.land()
    backups.plane.do(lambda tx: tx.put(*(replace(table, acknowledged=last) for table in tx.select(Table))))
    assert backups.retire().checkpoints == (1, 2, 3, 4, 5), "as every few minutes"
    backups.kafka.metadata = CommitMetadata(backups.landing.uid, last, last - 1).text()
    backups.put_in_place(last_night)
    backups.stopped_as_older()
    assert backups.missing()
    if acknowledged != 2:
        check_kept(backups.plane, backups.look().files)
    else:
        with pytest.raises(Refused, match="bronze of region orders lacks checkpoint 3, whose segments are gone"):
            check_kept(backups.plane, backups.look().files)


def test_g10_no_file_goes_while_the_region_is_stopped_for_it_until_a_person_has_said_how_to_go_on(
    backups: Backups,
) -> None:
    backups.landing.land(times=3)
    backups.plane.do(lambda tx: restored.notice(tx, "a member saw a newer epoch", by="orders/0"))
    for phase in (Phase.STOPPED, Phase.IDLE):  # also when a person has stopped it since
        backups.plane.do(lambda tx, p=phase: tx.set_region(phase=p, stop_reason=""))  # type: ignore[misc]
        with pytest.raises(WentBack):
            backups.retire()
    assert len(backups.named()) == 6
    seen = look_outside(backups.plane, backups.storage, backups.kafka, "orders").seen
    backups.plane.do(lambda tx: restored.trust(tx, seen, by="me"))
    assert backups.retire().checkpoints == (1, 2)


@pytest.mark.parametrize(
    ("epochs_back", "number", "told"), [(1, 3, "checkpoint 3, and SQL has handed out 2"), (0, 2, "an earlier one")]
)
def test_g10_a_number_that_sql_did_not_hand_out_in_its_epoch_stops_the_region_and_deletes_nothing(
    backups: Backups, epochs_back: int, number: int, told: str
) -> None:
    """An older state has gone on to the same numbers: they alone show nothing."""
    backups.landing.land(times=2)
    backups.plane.do(lambda tx: resets.request(tx, by="me"))
    backups.landing.land()
    epoch = backups.plane.read(lambda _, row: row.epoch)
    path = backups.put(segment_path(backups.landing.uid, epoch - epochs_back, "i1", number, 0))
    with pytest.raises(WentBack, match=told):
        backups.retire()
    assert backups.storage.exists(path)
    assert backups.missing() == []


def test_t3_files_of_numbers_above_the_head_stay_and_go_once_the_head_is_past_them(backups: Backups) -> None:
    head = backups.landing.land()
    backups.plane.do(lambda tx: tx.set_region(epoch=4))
    old = backups.put(segment_path(backups.landing.uid, 2, "killed", head, 0))
    new = backups.put(segment_path(backups.landing.uid, 2, "killed", head + 1, 0))
    assert backups.retire().orphans == 1
    assert (backups.storage.exists(old), backups.storage.exists(new)) == (False, True)
    backups.landing.land()
    assert backups.retire().orphans == 1
    assert not backups.storage.exists(new)


def test_t3_a_control_plane_replaced_between_the_look_and_the_deletion_deletes_nothing(kit: Kit) -> None:
    kit.running()
    kit.cut()
    looked = kit.row
    kit.cut()
    kit.do(lambda tx: restored.same(tx, looked))
    newer = kit.row
    kit.do(lambda tx: restored.check(tx, restored.Seen(), by="me"))
    with pytest.raises(WentBack, match="replaced"):
        kit.do(lambda tx: restored.same(tx, replace(newer, version=newer.version + 1)))


def test_t3_nor_does_one_that_went_on_to_the_same_version(kit: Kit) -> None:
    """Files begun at a head that was lost were taken for orphans (found by seed 190015979)."""
    kit.running()
    kit.cut()
    backup = rows_of(kit.plane.store, kit.row.name)
    kit.cut()
    looked = kit.row
    kit.do(lambda tx: restored.same(tx, looked))
    put(kit.plane.store, backup)
    kit.do(lambda tx: resets.request(tx, by="me", target=0))
    while kit.row.version < looked.version:
        kit.do(lambda tx: tx.set_region(reset_cause=f"after {tx.region().version}"))
    assert kit.row.epoch > looked.epoch
    with pytest.raises(WentBack, match="replaced"):
        kit.do(lambda tx: restored.same(tx, looked))


def test_68_copy_of_the_control_plane_is_refused_for_writing_and_deleting(backups: Backups) -> None:
    """A staging copy at another place; production goes on."""
    backups.landing.land(times=3)
    own(backups.plane, backups.storage, backups.plane.read(lambda _, row: row))
    files = {f.path for f in backups.storage.list("")}
    copy = open_store(f"sqlite:///{backups.backup('staging.db')}")
    staging = ControlPlane(copy, "orders")
    with pytest.raises(NotOwner, match=r"belong to the control plane .*crkafka\.db.*staging\.db is a copy.*--moved"):
        retire(staging, backups.storage, backups.kafka, group_id="orders", holder="staging", progress=lambda _: None)
    with pytest.raises(NotOwner):
        look_outside(staging, backups.storage, backups.kafka, "orders")
    assert {f.path for f in backups.storage.list("")} == files
    assert backups.retire().checkpoints == (1, 2), "production is unaffected"
    seen = look_outside(staging, backups.storage, backups.kafka, "orders", claim=True).seen
    assert seen.checkpoint == 3
    copy.close()


def test_t3_a_dump_restored_into_a_new_database_of_the_old_address_is_told_apart_with_what_to_do(
    tmp_path: Path,
) -> None:
    storage, shown = Storage.open(tmp_path), "postgresql+psycopg://crkafka@db/crkafka"
    owner.claim(storage, "uid", Place("postgresql:7/1/crkafka", shown), epoch=3, checkpoint=2)
    with pytest.raises(
        NotOwner, match=r"belong to another database than the one that .*@db/crkafka is now .*restored"
    ) as e:
        owner.check(storage, "uid", Place("postgresql:7/2/crkafka", shown), region="orders")
    assert "is a copy of it" not in str(e.value) and "`crkafka start --moved`" in str(e.value)


def test_68_copy_that_has_the_same_place_is_told_by_the_numbers(backups: Backups) -> None:
    """The same path on another machine: what the original has issued since is in the mark, though its files are gone."""
    backups.landing.land()
    copy = backups.backup("copy")
    backups.landing.land(times=2)
    backups.retire()
    for path in backups.named():
        backups.storage.delete(path)
    backups.put_in_place(copy)
    with pytest.raises(WentBack, match="owner-"):
        backups.retire()


def test_t3_a_control_plane_and_its_segments_may_be_moved_together(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    made = Backups(tmp_path / "a")
    made.landing.land()
    made.retire()
    made.store.close()
    (tmp_path / "a").rename(tmp_path / "b")
    store = open_store(f"sqlite:///{tmp_path}/b/crkafka.db")
    look_outside(ControlPlane(store, "orders"), Storage.open(tmp_path / "b/segments"), None)
    store.close()
    assert owner.read(Storage.open(tmp_path / "b/segments"), made.landing.uid) is not None


def test_8_who_slept_past_its_lease_while_it_retired_deletes_nothing(
    backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC G11, A6; fault 8: taken over from between its plan and its transaction."""
    backups.landing.land(times=4)
    before = backups.named()

    def slept(store: object, region: object) -> object:
        planned = plan(store, region)  # type: ignore[arg-type]
        held = backups.plane.read(lambda reader, row: leases.held(reader, "retire"))[0]
        backups.plane.do(lambda tx: tx.put(replace(held, holder="another", token="another", number=held.number + 1)))
        return planned

    plan = rules.plan
    monkeypatch.setattr(rules, "plan", slept)
    with pytest.raises(LeaseLost, match="another"):
        backups.retire()
    assert backups.named() == before and backups.missing() == []


def test_g10_what_the_newer_self_merged_and_was_open_here_does_not_stop_a_rewind_again(kit: Kit) -> None:
    """A backup, or a replica that lags, taken while a cut was open, which the newer self merged and went on from."""
    kit.running(), kit.cut()
    opened = kit.open()
    seen = restored.Seen(
        kit.row.epoch, opened, numbers=frozenset({(kit.row.epoch, n) for n in (1, opened, opened + 1)})
    )
    with pytest.raises(WentBack, match="older than what was seen"):
        kit.do(lambda tx: restored.check(tx, seen, by="orders/0"))
    kit.do(lambda tx: restored.rewind(tx, seen, by="ann"))
    kit.do(lambda tx: restored.check(tx, seen, by="orders/0"))
    assert (kit.row.phase, kit.row.went_back) == (Phase.RESETTING, False)
    assert kit.row.filling > opened + 1
    (told,) = kit.events("restored")
    assert (told.text, told.by) == ("went on from head 1 after the control plane went back", "ann")


def test_g10_no_reset_and_no_skip_before_a_person_has_said_how_to_go_on(kit: Kit) -> None:
    kit.running(), kit.cut()
    kit.do(lambda tx: restored.notice(tx, "older than what was seen", by="orders/0"))
    for work in (
        lambda tx: resets.request(tx, cause="again", by="ann"),
        lambda tx: resets.skip(tx, P0, 10, 10, by="ann"),
    ):
        with pytest.raises(WentBack):
            kit.do(work)
    assert kit.row.phase is Phase.STOPPED


def test_g10_a_start_that_finds_the_backup_older_still_stops_the_region_and_says_how_to_go_on(kit: Kit) -> None:
    kit.running(), kit.cut()
    seen = restored.Seen(kit.row.epoch + 1, 1, "the group's commit")
    with pytest.raises(WentBack, match=r"the group's commit names epoch .*--restored rewind"):
        kit.do(lambda tx: restored.trust(tx, seen, by="ann"))
    assert (kit.row.phase, kit.row.went_back) == (Phase.STOPPED, True)


def test_g10_a_region_whose_members_run_is_not_rewound_under_them(kit: Kit) -> None:
    kit.running(), kit.cut()
    before = kit.row
    with pytest.raises(NotRunning, match="is RUNNING; what a backup lost is mended while it is stopped"):
        kit.do(lambda tx: restored.rewind(tx, restored.Seen(epoch=9, checkpoint=9, where="x"), by="ann"))
    assert kit.row == before


def _idle(landing: Landing) -> Region:
    landing.land()
    region = Region(landing.config, landing.region.plane)
    own(region.plane, landing.storage, region.plane.do(lambda tx: tx.set_region(phase=Phase.IDLE)))
    return region


@pytest.mark.parametrize("killed_at", ["delete_folder", "remove"])
def test_g9_a_deletion_that_was_killed_behind_sql_is_done_by_the_next_one(
    backups: Backups, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    """The rows were gone, so that nothing told any more which files had been the region's: they lay there for ever."""
    region, storage = _idle(backups.landing), backups.landing.storage

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(*((type(storage), killed_at) if killed_at == "delete_folder" else (owner, killed_at)), killed)
        with pytest.raises(KeyboardInterrupt):
            region.delete()
    assert list(storage.list(""))
    left = len(list(storage.list(backups.landing.uid)))
    assert region.delete() == left
    assert list(storage.list("")) == []
    with pytest.raises(NoSuchRegion):
        region.delete()


def test_g9_a_deletion_that_was_refused_leaves_nothing_behind(backups: Backups) -> None:
    region = _idle(backups.landing)
    region.plane.do(lambda tx: tx.set_region(phase=Phase.RUNNING))
    with pytest.raises(NotRunning, match="only an idle one"):
        region.delete()
    assert owner.deletion(backups.landing.storage, "orders") == ""
    assert backups.missing() == []


def test_68_a_copy_of_the_control_plane_goes_on_with_no_deletion_of_its_original(backups: Backups) -> None:
    region = _idle(backups.landing)
    owner.begin_deletion(region.storage(), "orders", backups.landing.uid)
    initialise(f"sqlite:///{backups.folder / 'staging.db'}")
    with (
        closing(open_store(f"sqlite:///{backups.folder / 'staging.db'}")) as staging,
        pytest.raises(NotOwner, match="belong to the control plane"),
    ):
        Region(region.config, ControlPlane(staging, "orders")).delete()
    assert backups.missing() == []


def test_g10_that_sql_went_back_is_the_reason_also_where_the_region_was_stopped_before(kit: Kit) -> None:
    """Whoever asked for a reset was refused with the reason of the earlier stop, and told to restore a backup."""
    kit.running()
    kit.do(lambda tx: epochs.halt(tx, "5 resets in a row"))
    kit.do(lambda tx: restored.notice(tx, "The control plane went back.", by="retire"))
    assert kit.row.stop_reason == "The control plane went back."
