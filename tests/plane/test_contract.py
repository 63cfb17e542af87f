"""Rules of the contract that need only rows: groups, regions, contributions, archives, the timeline (SPEC G2, G6, C1, T2, R6, M3)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from crkafka_core.control import Reader, Tx
from crkafka_core.member.offsets import OffsetManager
from crkafka_core.model import limits
from crkafka_core.model.desired import Desired
from crkafka_core.model.errors import ConfigError, ManualAssignment, NoSuchCheckpoint, Refused, TooOld
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import (
    Checkpoint,
    ContributedOffset,
    Contribution,
    Initial,
    Member,
    MergedOffset,
    Region,
    Segment,
)
from crkafka_core.model.segment import SegmentName, segment_path
from crkafka_core.plane import epochs, life, member_plane, reading, resets, retire, transact
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.protocol import SPOKEN
from crkafka_core.region import Region as Facade
from crkafka_core.segments.batch import Run
from tests.plane.conftest import P0, P1, Kit
from tests.rigs.configs import configured
from tests.rigs.memory import MemoryStore


def test_G2_assigning_by_hand_is_refused_with_the_reason() -> None:
    region = Facade(configured(), ControlPlane(MemoryStore(), "orders"))
    for act in (region.assign, region.unassign):
        with pytest.raises(ManualAssignment, match=r"t\[1\].*'g'.*shares its partitions"):
            act([P1])


def test_G6_regions_of_one_name_one_after_the_other_are_never_taken_for_each_other(kit: Kit) -> None:
    kit.running()
    kit.cut()
    old = kit.row.uid
    with pytest.raises(Refused):
        kit.do(life.delete)
    kit.do(lambda tx: epochs.idle(tx, "test"))
    kit.do(life.delete)
    life.declare(kit.plane.store, Region(name="orders", uid="another", region_index=0))
    assert (kit.row.uid, kit.row.head, kit.row.epoch) == ("another", 0, 1)
    for kind in (Checkpoint, Segment, Initial, MergedOffset, Contribution):
        assert kit.read(lambda reader, row, k=kind: reader.count(k)) == 0
    one, other = (segment_path(uid, 1, "m0", 0, 1) for uid in (old, "another"))
    assert one != other
    name = SegmentName.parse(other)
    assert name is not None
    assert name.uid == "another"


def test_C1_contribution_holds_who_what_and_from_where(kit: Kit) -> None:
    kit.running()
    cut = kit.open()
    kit.contribute(cut, 0, 10)
    where = (("checkpoint", "=", cut),)
    one = kit.read(lambda reader, _: reader.select(Contribution, *where))[0]
    assert (one.member, one.incarnation, one.epoch, one.base, one.generation) == (
        "orders/0",
        kit.live["orders/0"],
        kit.row.epoch,
        0,
        1,
    )
    assert json.loads(one.members_json) == ["orders/0", "orders/1"]
    assert json.loads(one.topic_ids_json) == {"t": "id-t"}
    offsets = kit.read(lambda reader, _: reader.select(ContributedOffset, *where))
    assert [(o.topic, o.partition, o.from_offset, o.to_offset, o.rows) for o in offsets] == [("t", 0, 0, 10, 10)]
    segment = kit.read(lambda reader, _: reader.select(Segment, *where))[0]
    assert (json.loads(segment.spans_json), segment.rows, segment.hash) == ([["t", 0, 0, 10, 10]], 10, "h")


def test_T3_retirement_deletes_no_file_that_is_not_the_regions_own(kit: Kit) -> None:
    """A row of SQL may name any file below the storage."""
    kit.running()
    own = kit.cut(5)
    foreign = [segment_path("other", 1, "m0", own, 0), "warehouse/orders/data.parquet", "uid/00000001/../x-1-1.parquet"]

    def name(tx: Tx) -> None:
        first = tx.select(Segment, ("checkpoint", "=", own))[0]
        tx.add(*(replace(first, path=path) for path in foreign))

    kit.do(name)
    kit.do(lambda tx: tx.set_region(limits_json='{"retain": 1}'))
    kit.cut(5)
    paths = kit.do(lambda tx: retire.retire(tx, [own]))
    assert len(paths) == 2 and not set(paths) & set(foreign)


def test_T2_archived_checkpoint_can_be_replayed_and_not_reset_to(kit: Kit) -> None:
    kit.running()
    first = kit.cut(10, epochs={P0: 3})
    kit.cut(5)
    kit.do(lambda tx: tx.set_region(limits_json='{"retain": 1}'))
    assert kit.read(retire.plan).retire == (first,)
    paths = kit.do(lambda tx: retire.retire(tx, [first]))
    assert len(paths) == 2
    assert kit.do(lambda tx: retire.retire(tx, [first])) == [], "again, it finds nothing to do"
    row = kit.checkpoint(first)
    assert (row.status, row.parent, row.rows) == ("RETIRED", 0, 20)
    assert (row.cluster_id, json.loads(row.archive_topics_json)) == ("cluster", {"t": "id-t"})
    assert json.loads(row.archive_json) == {"t": {"0": [0, 10, 10, 3], "1": [0, 10, 10]}}
    made = kit.read(lambda reader, region: reading.plan(reader, region, upto=first))
    assert [(r.tp, r.start, r.stop, r.leader_epoch) for r in made.ranges] == [(P0, 0, 10, 3), (P1, 0, 10, -1)]
    with pytest.raises(NoSuchCheckpoint, match="retired"):
        kit.do(lambda tx: resets.request(tx, cause="back", by="me", target=first))


def test_T1_retirement_stops_at_what_a_table_has_not_acknowledged(make_kit: type[Kit]) -> None:
    kit = make_kit(tables=("bronze",)).running()
    for _ in range(3):
        kit.cut()
    kit.do(lambda tx: tx.set_region(limits_json='{"retain": 1}'))
    plan = kit.read(retire.plan)
    assert plan.retire == ()
    assert "bronze" in plan.held[0]
    assert kit.do(lambda tx: retire.retire(tx, [1, 2])) == []


def test_R6_each_rebalance_is_an_event_with_what_was_held(kit: Kit) -> None:
    kit.running()
    kit.withdraw(1)
    kit.generation = 2
    kit.settle({0: {P0, P1}})
    revoked, assigned = kit.events("revoked")[-1], kit.events("assigned")[-1]
    assert (revoked.member, json.loads(revoked.data_json)) == ("orders/1", {"held": '{"t":[1]}', "generation": 1})
    assert assigned.member == "orders/0"
    assert "generation 2" in assigned.text
    assert json.loads(assigned.data_json)["held"] == '{"t":[0,1]}'
    assert kit.member(0).rebalances == 2
    kit.do(lambda tx: resets.request(tx, cause="bad rows downstream", by="ann@host"))
    asked = kit.events("reset")[-1]
    assert (asked.by, asked.text) == ("ann@host", "back to initial state, as asked by ann@host: bad rows downstream")


def test_M3_offsets_are_kept_for_assigned_partitions_only() -> None:
    offsets = OffsetManager()
    offsets.place({P0: 5, P1: 7})
    offsets.record(Run(P0, 0, 3, 6, 9, leader_epoch=4))
    assert offsets.take() == {P0: (5, 9, 3), P1: (7, 7, 0)}
    assert offsets.leader_epochs == {P0: 4}
    assert offsets.take() == {P0: (9, 9, 0), P1: (7, 7, 0)}
    offsets.place({P1: 2})
    assert offsets.next == {P1: 2}
    with pytest.raises(KeyError):
        offsets.record(Run(P0, 0, 1, 11, 12))


def test_g6_a_newer_protocols_region_is_read_and_not_changed(kit: Kit) -> None:
    kit.do(lambda tx: tx.set_region(protocol=SPOKEN + 1))
    with pytest.raises(TooOld, match=f"protocol {SPOKEN + 1}; this program speaks {SPOKEN}, and changes nothing"):
        kit.do(lambda tx: life.start(tx, by="me"))
    before = kit.row
    with pytest.raises(TooOld):
        life.declare(kit.plane.store, replace(before, period=7.0))
    assert kit.row == before and before.phase is Phase.IDLE


def test_a_control_plane_that_is_not_installed_and_one_without_roles_are_told_apart() -> None:
    with pytest.raises(ConfigError, match=r"No control plane for 'nosuch' is installed.*There are: .*sqlite"):
        transact.open_store("nosuch://there")
    with pytest.raises(ConfigError, match="For 'sqlite' there are no roles"):
        transact.roles("sqlite:///crkafka.db")


def _desired(kit: Kit, number: int, incarnation: str = "") -> Desired:
    name = f"orders/{number}"

    def ask(reader: Reader, row: Region) -> Desired:
        return member_plane.desired(reader, row, reader.select(Member), name, incarnation or kit.live.get(name, ""))

    return kit.read(ask)


def test_m3_a_member_reads_whether_it_is_wanted_whether_it_was_replaced_and_whether_all_are_there(kit: Kit) -> None:
    kit.do(lambda tx: life.start(tx, by="test"))
    kit.register(0)
    assert not _desired(kit, 0).assembled
    kit.register(1)
    said = [_desired(kit, number) for number in range(3)]
    assert [(d.wanted, d.registered, d.superseded, d.assembled) for d in said] == [
        (True, True, False, True),
        (True, True, False, True),
        (False, False, False, True),
    ]
    older = _desired(kit, 1, "older")
    assert (older.wanted, older.registered, older.superseded) == (True, False, True)


def test_s2_an_open_cut_tells_each_member_what_of_its_own_all_tables_have(make_kit: type[Kit]) -> None:
    kit = make_kit(tables=("slow",)).running()
    kit.cut(10)
    kit.open()
    mine, strangers = _desired(kit, 1).cut, _desired(kit, 7).cut
    assert mine is not None and strangers is not None
    assert (mine.mine, mine.landed) == ({P1}, ((P1, 0),))
    assert (strangers.mine, strangers.landed) == (None, ())
    replaced = _desired(kit, 1, "older").cut
    assert replaced is not None and replaced.mine is None, "what is fixed is fixed for one process"


def test_a_limit_of_another_version_of_this_program_is_no_concern_of_a_member_that_runs(kit: Kit) -> None:
    stored = json.dumps({"retain": 3, "of_the_next_release": 1.0})
    assert limits.of(replace(kit.row, limits_json=stored)).retain == 3


def test_g6_a_region_that_is_declared_anew_is_run_by_the_rules_of_this_program(kit: Kit) -> None:
    kit.do(lambda tx: tx.set_region(protocol=SPOKEN - 1))
    life.declare(kit.plane.store, kit.row)
    assert kit.row.protocol == SPOKEN
