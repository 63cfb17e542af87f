"""When a group is settled (SPEC G8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crkafka_core.model.limits import Limits, dump
from crkafka_core.model.offsets import TP, pack
from crkafka_core.model.rows import Member, MemberStatus, Region
from crkafka_core.protocol.settle import missing

A, B = TP("t", 0), TP("t", 1)
LIMITS = dump(Limits(start_grace=10.0))
REGION = Region("r", "u", 0, epoch=4, head=3, members_wanted=2, wait_for_wanted=False, limits_json=LIMITS)
POINTER = "; `crkafka group` lists who else is in the group"


def member(name: str, *held: TP, **changes: object) -> Member:
    row = Member(
        "r", name, "1", 1, epoch=4, base=3, generation=5, assignment_json=pack(held), first_registered_at=100.0
    )
    return replace(row, **changes)  # type: ignore[arg-type]


def asked(*there: Member, region: Region = REGION, now: float = 100.0) -> str:
    return missing(region, there, lambda: {A, B}, now)


def test_G8_one_generation_disjoint_and_covering_is_settled() -> None:
    assert asked(member("r/0", A), member("r/1", B)) == ""


def test_G8_members_with_epochs_of_their_own_need_no_common_one() -> None:
    own = {"member_epochs": True}
    assert asked(member("r/0", A, **own), member("r/1", B, generation=9, **own)) == ""
    assert "is held by r/0 and by r/1" in asked(member("r/0", A, B, **own), member("r/1", B, generation=9, **own))


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ((), "no member is there"),
        ((member("r/0", A, B), member("r/1", assignment_json="")), "no report of what it holds from r/1"),
        ((member("r/0", A, B), member("r/1", generation=4)), "different generations"),
        ((member("r/0", A, B), member("r/1", B)), "t[1] is held by r/0 and by r/1"),
        ((member("r/0", A), member("r/1")), f"nobody holds t[1]{POINTER}"),
    ],
)
def test_G8_what_is_missing_is_named(there: tuple[Member, ...], words: str) -> None:
    assert words in asked(*there)


def test_G8_of_many_partitions_that_nobody_holds_a_few_are_named() -> None:
    def words(count: int) -> str:
        return missing(REGION, [member("r/0")], lambda: {TP("t", n) for n in range(count)}, 100.0)

    assert words(5) == f"nobody holds t[0], t[1], t[2], t[3], t[4]{POINTER}"
    assert words(6) == f"nobody holds t[0], t[1], t[2], t[3], t[4] …{POINTER}"


def test_G8_lost_and_left_members_are_not_waited_for() -> None:
    gone = member("r/1", assignment_json="", status=MemberStatus.LOST)
    assert asked(member("r/0", A, B), gone, member("r/2", assignment_json="", status=MemberStatus.LEFT)) == ""


def test_G8_an_idle_member_counts() -> None:
    assert asked(member("r/0", A, B), member("r/1")) == ""


def test_G8_the_first_start_waits_for_the_wanted_number_until_the_grace_is_over() -> None:
    waiting = replace(REGION, wait_for_wanted=True)
    alone = member("r/0", A, B)
    assert "1 of 2 members are there" in asked(alone, region=waiting, now=109.9)
    assert asked(alone, region=waiting, now=110.0) == ""
    assert asked(member("r/0", A), member("r/1", B), region=waiting, now=100.0) == ""


def test_G8_the_known_partitions_are_asked_for_only_when_all_else_holds() -> None:
    def known() -> set[TP]:
        raise AssertionError("a read too many")

    assert missing(REGION, [member("r/0", assignment_json="")], known, 0.0)
