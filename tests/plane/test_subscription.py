"""A topic that is taken out of the configuration while members of the old one run (SPEC S4; fault 76)."""

from __future__ import annotations

from functools import partial

import pytest

from crkafka_core.model.errors import DataLoss, OldConfiguration
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Region
from crkafka_core.plane import life, members, resets, starts
from crkafka_core.protocol import subscription
from tests.plane.conftest import Kit
from tests.rigs.merging import merge_cut

T0, U0 = TP("t", 0), TP("u", 0)
IDS = {T0: "id-t", U0: "id-u"}
OLD, NEW = subscription.dump(["t", "u"], None), subscription.dump(["t"], None)


def _configure(kit: Kit, subscribed: str) -> None:
    row = Region(name="orders", uid="x", region_index=0, config_json=subscribed, subscription_json=subscribed)
    life.declare(kit.plane.store, row)


def _register(kit: Kit, number: int, subscribed: str) -> None:
    name = f"orders/{number}"
    kit.launches += 1
    launch = kit.do(lambda tx: members.launch(tx, name))
    who = members.Registration(name, f"i{kit.launches}", launch, 0, "cluster", "group", subscription=subscribed)
    kit.do(lambda tx: members.register(tx, who))
    kit.live[name] = who.incarnation


def _holds(kit: Kit, number: int, *held: TP, at: int = 0) -> None:
    """It resolves its starts, and reports; what it sees anew begins there."""
    name, row = f"orders/{number}", kit.row
    kit.do(
        lambda tx: starts.resolve(
            tx,
            member=name,
            incarnation=kit.live[name],
            epoch=row.epoch,
            base=row.head,
            topic_ids={tp: IDS[tp] for tp in held},
            proposals={tp: starts.Proposal(IDS[tp], at, "beginning") for tp in held},
        )
    )
    kit.report(number, set(held))
    kit.advance()


def _known(kit: Kit) -> set[str]:
    return kit.read(lambda reader, row: {tp.topic for tp in starts.known(reader)})


@pytest.fixture
def fresh(kit: Kit) -> Kit:
    """Two members of the old configuration, who know where both topics begin."""
    _configure(kit, OLD)
    kit.do(lambda tx: life.start(tx, by="test"))
    for number in (0, 1):
        _register(kit, number, OLD)
    _holds(kit, 0, T0), _holds(kit, 1, U0)
    return kit


@pytest.fixture
def old(fresh: Kit) -> Kit:
    """The same; the topic `u` has been read up to 10."""
    kit = fresh
    kit.at = {T0: 0, U0: 0}
    cut = kit.open()
    for number, tp in ((0, T0), (1, U0)):
        kit.contribute(cut, number, 10, held={tp}, topic_ids={tp.topic: IDS[tp]})
    kit.do(lambda tx: merge_cut(tx, cut))
    assert (kit.row.phase, _known(kit)) == (Phase.RUNNING, {"t", "u"})
    return kit


def test_x4_a_rewind_over_rows_of_a_topic_that_nobody_wants_is_refused_before_it_is_forgotten_too(old: Kit) -> None:
    """It would be forgotten as soon as the members have the new configuration, and its rows were superseded by then."""
    _configure(old, NEW)
    with pytest.raises(DataLoss, match=r"rows of u would be superseded.*--to initial --give-up u"):
        old.do(lambda tx: resets.request(tx, by="me", target=0))
    _configure(old, OLD)
    old.do(lambda tx: resets.request(tx, by="me", target=0))


def test_76_a_dropped_topic_is_carried_forward_once_all_members_have_the_new_configuration(old: Kit) -> None:
    _configure(old, NEW)
    assert _known(old) == {"t", "u"}, "members of the old configuration still read it"
    _register(old, 0, NEW)
    old.hand_over()
    old.generation += 1
    _holds(old, 0, T0), _holds(old, 1, U0)
    assert (old.row.phase, _known(old)) == (Phase.RUNNING, {"t", "u"}), "one of them goes on reading it"
    _register(old, 1, NEW)
    old.hand_over()
    assert (_known(old), old.row.dropped_json) == ({"t"}, "[]"), "nothing is left that would have to go"
    old.generation += 1
    _holds(old, 0, T0), _holds(old, 1)
    assert old.row.phase is Phase.RUNNING
    cut = old.open()
    old.at = {T0: 10}
    old.contribute(cut, 0, 5, held={T0})
    old.contribute(cut, 1, held=set())
    old.do(lambda tx: merge_cut(tx, cut))
    merged = old.read(lambda reader, row: starts.merged(reader, cut))
    assert {tp: m.to_offset for tp, m in merged.items()} == {T0: 15, U0: 10}


def test_76_a_topic_that_an_old_member_finds_after_the_change_goes_when_no_member_reads_it(kit: Kit) -> None:
    _configure(kit, OLD)
    kit.do(lambda tx: life.start(tx, by="test"))
    for number in (0, 1):
        _register(kit, number, OLD)
    _configure(kit, NEW)
    _holds(kit, 0, T0), _holds(kit, 1, U0)
    assert (kit.row.phase, _known(kit)) == (Phase.RUNNING, {"t", "u"}), "they read both"
    for number in (0, 1):
        _register(kit, number, NEW)
    assert _known(kit) == {"t"}
    kit.generation += 1
    _holds(kit, 0, T0), _holds(kit, 1)
    assert kit.row.phase is Phase.RUNNING


@pytest.mark.parametrize("how", ["leaves", "is lost"])
def test_76_the_last_reader_that_goes_lets_the_topic_go(old: Kit, how: str) -> None:
    _configure(old, NEW)
    _register(old, 0, NEW)
    if how == "leaves":
        old.do(lambda tx: members.leave(tx, "orders/1", old.live["orders/1"]))
    else:
        old.do(lambda tx: members.lose(tx, "orders/1", old.live["orders/1"], by="orders/1", why="x"))
    assert _known(old) == {"t"}


def test_76_a_dropped_topic_is_never_called_deleted(old: Kit) -> None:
    """Who no longer reads it does not find it in Kafka's answer; that says nothing."""
    _configure(old, NEW)
    old.do(lambda tx: starts.topics_gone(tx, {"u": "id-u"}, member="orders/0"))
    assert old.row.phase is Phase.RUNNING


def test_76_a_dropped_topic_that_kafka_has_deleted_waits_for_no_restart_of_old_members(old: Kit) -> None:
    """They read it, and nobody can hold it any more: its partitions were nobody's until the host was restarted."""
    _configure(old, NEW)
    old.do(lambda tx: starts.topics_gone(tx, {"u": "another"}, member="orders/0"))
    assert _known(old) == {"t", "u"}
    old.do(lambda tx: starts.topics_gone(tx, {"u": "id-u"}, member="orders/0"))
    assert (old.row.phase, _known(old)) == (Phase.RUNNING, {"t"})
    for number in (0, 1):  # their host starts them again as they were
        name = f"orders/{number}"
        old.do(partial(members.lose, name=name, incarnation=old.live[name], by=name, why="x"))
        _register(old, number, OLD)
    assert _known(old) == {"t"}


def test_76_a_late_process_of_the_old_configuration_brings_the_topic_back_no_more(old: Kit) -> None:
    _configure(old, NEW)
    for number in (0, 1):
        _register(old, number, NEW)
    assert _known(old) == {"t"}
    with pytest.raises(OldConfiguration, match="reads u"):
        _register(old, 1, OLD)
    old.generation += 1
    _holds(old, 0, T0), _holds(old, 1)
    assert (old.row.phase, _known(old)) == (Phase.RUNNING, {"t"})


def test_s4_a_topic_that_is_put_back_goes_on_where_it_was_left(old: Kit) -> None:
    _configure(old, NEW)
    for number in (0, 1):
        _register(old, number, NEW)
    _configure(old, OLD)
    for number in (0, 1):
        _register(old, number, OLD)
    old.generation += 1
    _holds(old, 0, T0)
    assert _known(old) == {"t"}, "it comes back with who holds it"
    _holds(old, 1, U0)
    assert (old.row.phase, _known(old)) == (Phase.RUNNING, {"t", "u"})
    found = old.read(lambda reader, row: starts.lookup(reader, row, IDS))
    assert found.offsets == {T0: 10, U0: 10}
    assert [e.text for e in old.events("topic back")] == ["1 partition goes on where it was left"]
    assert len(old.events("birth", "partitions found")) == 2, "it is none that nobody saw before"


def test_s4_who_reads_a_forgotten_topic_that_is_dropped_once_more_does_not_say_anew_where_it_begins(fresh: Kit) -> None:
    """It was put back when the member came, and dropped again before it resolved its starts; nothing of it is merged yet."""
    _configure(fresh, NEW)
    for number in (0, 1):
        _register(fresh, number, NEW)
    assert _known(fresh) == {"t"}
    _configure(fresh, OLD)
    _register(fresh, 1, OLD)
    _configure(fresh, NEW)
    _holds(fresh, 1, U0, at=69)
    found = fresh.read(lambda reader, row: starts.lookup(reader, row, IDS))
    assert found.offsets == {T0: 0, U0: 0}
    _register(fresh, 1, NEW)
    assert _known(fresh) == {"t"}, "it goes with its last reader"


@pytest.mark.parametrize(
    ("said", "topic", "reads"),
    [
        (subscription.dump(["a", "b"], None), "a", True),
        (subscription.dump(["a", "b"], None), "ab", False),
        (subscription.dump(None, r"^shop\..*"), "shop.orders", True),
        (subscription.dump(None, r"^shop\..*"), "shops", False),
        (subscription.UNKNOWN, "anything", True),
    ],
)
def test_what_a_subscription_reads(said: str, topic: str, reads: bool) -> None:
    assert subscription.reads(said, topic) is reads
