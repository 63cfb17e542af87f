"""Members: who may register, whose word counts, and who is lost (SPEC G1, G3, G4, G5; faults 33, 44)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crkafka_core.model.errors import NotRunning, OldConfiguration, Stale, Superseded, WrongRegion
from crkafka_core.model.offsets import TP, pack
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Launch, Member, MemberStatus, Region
from crkafka_core.plane import advance, life, members
from crkafka_core.plane.transact import ControlPlane
from tests.plane.conftest import LIMITS, P0, P1, Kit
from tests.rigs.merging import merge_cut


def test_44_member_cut_off_from_kafka_alone_is_lost_after_a_while(kit: Kit) -> None:
    kit.running()
    epoch = kit.row.epoch
    kit.rebalance(1)
    kit.generation = 2
    kit.resolve(1, {P0, P1})
    kit.report(1, {P0, P1})
    kit.report(0, {P0}, generation=1)
    kit.advance(1.0)
    assert kit.row.phase is Phase.RESETTING
    kit.advance(5.0)
    assert kit.member(0).status is MemberStatus.LIVE, "not at once: it may be on its way"
    kit.advance(6.0)
    assert kit.member(0).status is MemberStatus.LOST
    kit.advance()
    assert (kit.row.phase, kit.row.epoch) == (Phase.RUNNING, epoch + 1)


@pytest.mark.parametrize(("silent", "seconds"), [(False, LIMITS.stale_generation), (True, 45.0)])
def test_G4_who_is_behind_and_has_withdrawn_its_report_has_a_whole_session(
    make_kit: type[Kit], silent: bool, seconds: float
) -> None:
    kit = make_kit(session_timeout=45.0).running()
    kit.report(1, {P1}, generation=2)
    if silent:
        kit.unsettle(0)
    kit.advance()
    kit.advance(seconds - 0.5)
    assert kit.member(0).status is MemberStatus.LIVE
    kit.advance(0.5)
    assert kit.member(0).status is MemberStatus.LOST


@pytest.mark.parametrize(
    ("held", "other", "reached", "behind"),
    [
        ({P0}, {P1}, (4, 4), False),
        ({P0}, {P1}, (3, 4), False),
        ({P0, P1}, {P1}, (4, 4), True),
        (set(), {P0, P1}, (4, 4), False),
        (set(), {P0, P1}, (3, 4), True),
        (None, {P1}, (3, 3), False),
        (None, {P1}, (3, 4), True),
        (None, {P0, P1}, (4, 4), True),
    ],
    ids=[
        "disjoint",
        "disjoint in an older epoch of the region",
        "both hold one",
        "idle",
        "idle in an older epoch of the region",
        "withdrawn, and no report in the epoch of the region",
        "withdrawn in an older epoch of the region",
        "withdrawn in the epoch of the region",
    ],
)
def test_G4_member_epochs_are_compared_where_two_hold_one_partition(
    kit: Kit, held: set[TP] | None, other: set[TP], reached: tuple[int, int], behind: bool
) -> None:
    """Without a partition, the region's epochs are compared."""
    kit.running()
    region = replace(kit.row, epoch=4)
    old, new = (replace(kit.member(n), member_epochs=True, epoch=reached[n]) for n in (0, 1))
    old = replace(old, generation=4, assignment_json="" if held is None else pack(held))
    new = replace(new, generation=7, assignment_json=pack(other))
    assert members.behind(region, [old, new]) == ([old] if behind else [])


def test_44_spare_by_member_epochs_that_is_cut_off_from_kafka_alone_is_lost_after_a_session() -> None:
    """SPEC G4; fault 44: its last report holds nothing, and shows no older epoch of Kafka's where another holds something."""
    kit = Kit(wanted=3, member_epochs=True, session_timeout=45.0, reset_timeout=180.0).running()
    kit.dies(0)
    kit.settle()
    assert kit.row.phase is Phase.RESETTING, "it waits for the spare"
    kit.advance(44.5)
    assert kit.member(2).status is MemberStatus.LIVE
    kit.advance(0.5)
    assert kit.member(2).status is MemberStatus.LOST
    assert kit.row.phase is Phase.RUNNING


@pytest.mark.parametrize("member_epochs", [False, True])
def test_G4_nobody_is_lost_while_no_generation_advances(member_epochs: bool) -> None:
    kit = Kit(member_epochs=member_epochs).running()
    if member_epochs:  # as is usual there
        kit.report(1, {P1}, generation=3)
    kit.rebalance(0)
    for _ in range(2):
        kit.advance(3_600.0)
    assert {kit.member(n).status for n in (0, 1)} == {MemberStatus.LIVE}


def test_G4_loss_is_void_when_the_counter_has_moved(kit: Kit) -> None:
    kit.running()
    kit.do(lambda tx: members.renew(tx, "orders/0", kit.live["orders/0"]))
    with pytest.raises(Stale):
        kit.do(lambda tx: members.lose(tx, "orders/0", kit.live["orders/0"], renewals=0, by="orders/1", why="test"))
    assert kit.member(0).status is MemberStatus.LIVE
    kit.do(lambda tx: members.lose(tx, "orders/0", kit.live["orders/0"], renewals=1, by="orders/1", why="test"))
    assert kit.member(0).status is MemberStatus.LOST


def test_G1_member_of_another_region_is_refused_without_a_trace(kit: Kit) -> None:
    kit.running()
    stranger = members.Registration("orders/1", "x", 99, 5, "cluster", "group")
    with pytest.raises(WrongRegion, match="group"):
        kit.do(lambda tx: members.register(tx, stranger))
    life.declare(kit.plane.store, Region(name="other", uid="uid2", region_index=1, members_wanted=1))
    other = ControlPlane(kit.plane.store, "other")
    other.do(lambda tx: life.start(tx, by="test"))
    launch = other.do(lambda tx: members.launch(tx, "other/0"))
    with pytest.raises(WrongRegion) as refused:
        other.do(lambda tx: members.register(tx, members.Registration("other/0", "x", launch, 1, "cluster", "group")))
    assert all(word in str(refused.value) for word in ("'group'", "orders", "other"))
    assert other.read(lambda reader, _: reader.count(Member)) == 0


def test_G3_older_launch_never_registers_over_a_newer_one(kit: Kit) -> None:
    kit.running()
    old = kit.do(lambda tx: members.launch(tx, "orders/0"))
    new = kit.do(lambda tx: members.launch(tx, "orders/0"))
    kit.do(lambda tx: members.register(tx, members.Registration("orders/0", "newer", new, 0, "cluster", "group")))
    for launch in (old, new):
        late = members.Registration("orders/0", "older", launch, 0, "cluster", "group")
        with pytest.raises(Superseded):
            kit.do(lambda tx, late=late: members.register(tx, late))
    assert kit.member(0).incarnation == "newer"


def test_g10_a_launch_number_from_before_sql_went_back_supersedes_nobody_who_is_launched_after_it(kit: Kit) -> None:
    """The numbers that SQL draws began at an older one then: who came next was refused for good, and its place stayed empty."""
    kit.running()
    (drawn,) = kit.read(lambda reader, _: reader.select(Launch, ("name", "=", "orders/0")))
    ahead = members.Registration("orders/0", "ahead", drawn.number + 3, 0, "cluster", "group")
    kit.do(lambda tx: members.register(tx, ahead))
    kit.do(lambda tx: members.leave(tx, "orders/0", "ahead"))
    kit.register(0)
    assert kit.member(0).incarnation == kit.live["orders/0"]


def test_R6_the_process_of_a_member_is_known_before_its_first_renewal(kit: Kit) -> None:
    kit.running()
    launch = kit.do(lambda tx: members.launch(tx, "orders/0"))
    who = members.Registration("orders/0", "i9", launch, 0, "cluster", "group", pid=4711)
    assert kit.do(lambda tx: members.register(tx, who)).metrics == kit.member(0).metrics == {"pid": 4711}


def test_G3_registration_raises_the_epoch_only_where_records_flow(kit: Kit) -> None:
    kit.running()
    epoch = kit.row.epoch
    kit.register(0)
    kit.hand_over()
    assert (kit.row.epoch, kit.row.phase) == (epoch + 1, Phase.RESETTING)
    kit.register(1)
    kit.register(0)
    assert kit.row.epoch == epoch + 1


@pytest.mark.parametrize("end", ["left", "killed", "failed"])
def test_G5_a_spare_that_goes_and_comes_back_causes_no_reset(end: str) -> None:
    """It holds nothing: nothing of it is missing, and no cut waits for it."""
    kit = Kit(wanted=3).running()
    epoch = kit.row.epoch
    if end == "left":
        kit.do(lambda tx: members.leave(tx, "orders/2", kit.live["orders/2"]))
    elif end == "failed":
        kit.do(lambda tx: members.lose(tx, "orders/2", kit.live["orders/2"], by="orders/2", why="no memory"))
    kit.register(2)
    kit.report(2, set())
    checkpoint = kit.open()
    for number in (0, 1):
        kit.contribute(checkpoint, number, 10)
    assert kit.do(lambda tx: merge_cut(tx, checkpoint)).merged_at
    kit.report(2, set())
    assert (kit.row.epoch, kit.row.phase, kit.row.head) == (epoch, Phase.RUNNING, checkpoint)
    kit.report(2, {P1})
    kit.hand_over()
    assert kit.row.epoch == epoch + 1, "it holds what another fills"


def test_G5_a_spare_that_an_open_cut_waits_for_is_a_loss() -> None:
    kit = Kit(wanted=3).running()
    kit.open()
    kit.register(2)
    kit.hand_over()
    assert kit.row.phase is Phase.RESETTING


def test_33_superseded_process_is_told_so_before_it_is_told_anything_else(kit: Kit) -> None:
    kit.running()
    old = kit.live["orders/0"]
    kit.register(0)
    for act in (
        lambda tx: members.report(tx, "orders/0", old, epoch=kit.row.epoch, base=0, generation=1, held={P0}),
        lambda tx: members.renew(tx, "orders/0", old),
    ):
        with pytest.raises(Superseded):
            kit.do(act)


def test_G5_who_is_not_wanted_is_refused_with_what_to_do(kit: Kit) -> None:

    def refused(name: str) -> NotRunning:
        who = members.Registration(name, "new", 99, 0, "cluster", "group")
        with pytest.raises(NotRunning) as found:
            kit.do(lambda tx: members.register(tx, who))
        return found.value

    found = refused("orders/0")
    assert "orders is not started: no members are wanted" in str(found) and "`crkafka start`" in (found.hint or "")
    kit.running()
    found = refused("orders/2")
    assert "orders wants 2 members; orders/2 is not one" in str(found) and "`crkafka scale`" in (found.hint or "")
    assert kit.read(lambda reader, _: reader.count(Member)) == 2


@pytest.mark.parametrize("new", [True, False], ids=["to KIP-848", "to classic"])
def test_R1_member_of_the_other_protocol_is_refused_until_the_region_was_stopped(new: bool) -> None:
    """Kafka lets both share a group, but not one generation: each cut failed, and its error blamed a member of one of them."""
    kit = Kit(member_epochs=not new).running()
    kit.do(lambda tx: members.leave(tx, "orders/1", kit.live["orders/1"]))
    kit.member_epochs = new
    words = {True: "group.protocol consumer", False: "group.protocol classic"}
    with pytest.raises(
        OldConfiguration, match=f"orders/1 has {words[new]}, but orders/0 .* {words[not new]}"
    ) as refused:
        kit.register(1)
    assert "`crkafka stop`" in (refused.value.hint or "")
    assert kit.member(1).status is MemberStatus.LEFT
    kit.do(lambda tx: life.stop(tx, token="x", by="test"))
    kit.hand_over()
    kit.advance(60.0)
    assert kit.row.phase is Phase.IDLE
    kit.do(lambda tx: life.start(tx, by="test"))
    kit.register(1)  # orders/0 was killed before the start: no process of the other protocol is left
    assert kit.member(0).status is MemberStatus.LIVE
    kit.register(0)
    kit.settle()
    assert kit.row.phase is Phase.RUNNING


@pytest.mark.parametrize(("cluster", "group"), [("another", "group"), ("cluster", "another")])
def test_G1_a_member_that_connects_to_another_group_or_cluster_is_refused(kit: Kit, cluster: str, group: str) -> None:
    kit.running()
    who = members.Registration("orders/1", "new", 99, 0, cluster, group)
    with pytest.raises(WrongRegion, match=f"orders/1 connects to group '{group}' on cluster {cluster}"):
        kit.do(lambda tx: members.register(tx, who))
    assert kit.member(1).incarnation == kit.live["orders/1"]


def test_G3_an_earlier_process_that_says_it_failed_costs_the_later_one_nothing(kit: Kit) -> None:
    kit.running()
    old = kit.live["orders/0"]
    kit.register(0)
    epoch = kit.row.epoch
    kit.do(lambda tx: members.lose(tx, "orders/0", old, by="orders/0", why="x"))
    assert (kit.member(0).status, kit.row.epoch) == (MemberStatus.LIVE, epoch)
    kit.do(lambda tx: members.leave(tx, "orders/0", kit.live["orders/0"]))
    kit.do(lambda tx: members.lose(tx, "orders/0", kit.live["orders/0"], by="orders/0", why="x"))
    assert kit.member(0).status is MemberStatus.LEFT


def test_44_who_caught_up_has_its_whole_time_again_when_it_falls_behind_again(kit: Kit) -> None:
    kit.running()
    kit.report(1, {P1}, generation=2)
    assert kit.read(advance.due)
    kit.advance()
    assert kit.member(0).stale_since == kit.now
    kit.report(0, {P0}, generation=2)
    assert kit.read(advance.due)
    kit.advance(1.0)
    assert kit.member(0).stale_since == 0.0 and not kit.read(advance.due)
    kit.report(1, {P1}, generation=3)
    kit.advance(60.0)
    assert kit.member(0).status is MemberStatus.LIVE
    kit.advance(LIMITS.stale_generation - 0.5)
    assert kit.member(0).status is MemberStatus.LIVE
    kit.advance(0.5)
    assert kit.member(0).status is MemberStatus.LOST
