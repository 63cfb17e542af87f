"""Planned changes drop nothing that was submitted; a kill, only what the killed process had submitted (SPEC X10; fault 97)."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from crkafka_core.model.rows import Segment
from crkafka_core.model.segment import SegmentName
from tests.rigs.scenario import Scenario

Make = Callable[..., Scenario]


def dropped(s: Scenario) -> set[str]:
    """Incarnations of which a segment lies there that no checkpoint names, of epochs that are over: what it holds was read again."""
    row = s.region.status().region
    named = {r.path for r in s.region.plane.read(lambda reader, _: reader.select(Segment))}
    found = (SegmentName.parse(file.path) for file in s.region.storage().list(row.uid) if file.path not in named)
    return {name.incarnation for name in found if name is not None and name.epoch < row.epoch}


def _flows(s: Scenario) -> None:
    """Records have been submitted since the head."""
    before = s.submitted()
    s.until(lambda: s.submitted() > before, "records flow")


CLASSIC, KIP_848, COOPERATIVE = (
    {},
    {"group.protocol": "consumer"},
    {"partition.assignment.strategy": "cooperative-sticky"},
)


@pytest.mark.parametrize(
    ("static", "protocol"),
    [
        pytest.param(True, CLASSIC, id="static"),
        pytest.param(False, CLASSIC, id="dynamic", marks=pytest.mark.soak),
        pytest.param(True, KIP_848, id="kip848"),
        pytest.param(True, COOPERATIVE, id="cooperative", marks=pytest.mark.soak),
        pytest.param(False, COOPERATIVE, id="cooperative-dynamic", marks=pytest.mark.soak),
    ],
)
def test_X10_a_planned_change_reads_nothing_again(scenario: Make, static: bool, protocol: dict[str, str]) -> None:
    s = scenario(members=2, partitions=6, static_membership=static, retain=1_000, kafka=protocol)
    s.cut_soon()  # by KIP-848 the group may be sharing still
    for wanted in (4, 2):
        _flows(s)
        mark = s.mark()
        s.region.scale(wanted)
        s.settle()
        assert len(s.resets(mark)) <= 1, [e.text for e in s.resets(mark)]
        assert dropped(s) == set(), f"scale to {wanted}"
        s.until(lambda n=wanted: s.cut_soon().members == n, f"a cut of {wanted}")
    for number in (0, 1):
        _flows(s)
        was = s.incarnation(number)
        s.kill(number, signal.SIGTERM)
        s.await_new(number, was)
        s.settle()
        assert dropped(s) == set(), f"restart of {number}"
    _flows(s)
    mark = s.mark()
    s.kafka.topics.add_partitions(s.topics[0], 7)
    s.until(lambda: s.resets(mark), "the group is given the partition")
    s.settle()
    assert dropped(s) == set(), "a new partition"
    assert not s.events("abort")
    s.finish_and_verify()


@pytest.mark.parametrize(
    "protocol",
    [
        pytest.param(CLASSIC, id="classic"),
        *(
            pytest.param(p, id=n, marks=pytest.mark.soak)
            for p, n in ((KIP_848, "kip848"), (COOPERATIVE, "cooperative"))
        ),
    ],
)
def test_97_a_kill_of_one_of_four_reads_again_what_that_one_had_submitted(
    scenario: Make, protocol: dict[str, str]
) -> None:
    s = scenario(members=4, partitions=8, retain=1_000, kafka=protocol)
    s.cut_soon()  # by KIP-848 the group may be sharing still
    _flows(s)
    dead, mark = s.incarnation(2), s.mark()
    s.kill(2)
    s.await_new(2, dead)
    s.settle()
    assert dropped(s) <= {dead}
    assert len(s.resets(mark)) == 1 and not s.events("abort", since=mark)
    s.finish_and_verify()
