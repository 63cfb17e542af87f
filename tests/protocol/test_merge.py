"""When a merge is complete and right: sets, chains, coverage (SPEC C2, C3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crkafka_core.model.offsets import TP, pack, pack_offsets, unpack, unpack_offsets
from crkafka_core.model.rows import ContributedOffset, Contribution, Filler
from crkafka_core.model.segment import Span
from crkafka_core.protocol.merge import broken, broken_spans, digest, wrong_sets

A, B = TP("t", 0), TP("t", 1)
LINE = {A: 10, B: 20}


def filler(member: str, *tps: TP, incarnation: str = "1") -> Filler:
    return Filler("r", 8, member, incarnation, pack_offsets({tp: LINE.get(tp, 0) for tp in tps}))


def contribution(member: str, incarnation: str = "1") -> Contribution:
    return Contribution("r", 8, member, incarnation, 1, 7, 1, "[]", "{}", 0, 0, 0, "")


def offset(member: str, tp: TP, start: int, stop: int) -> ContributedOffset:
    return ContributedOffset("r", 8, member, tp.topic, tp.partition, start, stop, stop - start)


def test_C3_exactly_the_expected_incarnations_are_compared_as_sets() -> None:
    fixed = [filler("r/0", A), filler("r/1", B)]
    assert wrong_sets(fixed, [contribution("r/0"), contribution("r/1")]) == (set(), set())
    assert wrong_sets(fixed, [contribution("r/0")]) == ({"r/1"}, set())
    assert wrong_sets(fixed, [contribution("r/0"), contribution("r/2")]) == ({"r/1"}, {"r/2"}), (
        "two of two, and still wrong"
    )
    assert wrong_sets(fixed, [contribution("r/0"), contribution("r/1", "2")]) == ({"r/1"}, {"r/1"}), (
        "another incarnation is another member"
    )


def test_C3_a_merge_that_goes_on_where_the_parent_ended_is_right() -> None:
    assert (
        broken(
            [filler("r/0", A), filler("r/1", B)], [offset("r/0", A, 10, 12), offset("r/1", B, 20, 20)], 7, LINE, LINE
        )
        == ""
    )


@pytest.mark.parametrize(
    ("offsets", "words"),
    [
        ([offset("r/0", A, 10, 12), offset("r/1", A, 10, 12)], "contributed by r/0 and by r/1"),
        ([offset("r/0", A, 10, 12)], "nobody contributed t[1]"),
        ([offset("r/0", A, 11, 12), offset("r/1", B, 20, 20)], "begins at 11, but checkpoint 7 left it at 10"),
        ([offset("r/0", A, 10, 9), offset("r/1", B, 20, 20)], "goes back"),
        ([offset("r/0", A, 10, 12), offset("r/0", B, 20, 20)], "which does not fill it"),
    ],
)
def test_C3_what_is_wrong_with_a_merge_is_named(offsets: list[ContributedOffset], words: str) -> None:
    assert words in broken([filler("r/0", A), filler("r/1", B)], offsets, 7, LINE, LINE)


def test_C3_a_partition_without_a_stored_start_is_refused() -> None:
    other = TP("u", 0)
    assert "no stored start" in broken([filler("r/0", other)], [offset("r/0", other, 0, 1)], 0, (), ())


def test_C3_spans_chain_without_a_hole_and_rows_add_up() -> None:
    assert broken_spans([(A, 10, 15, 4)], [Span(A, 10, 12, 2), Span(A, 12, 15, 2)]) == "", (
        "offset holes of Kafka are inside a span"
    )
    assert "begins at 13 where 12 was due" in broken_spans([(A, 10, 15, 4)], [Span(A, 10, 12, 2), Span(A, 13, 15, 2)])
    assert "the segments end at 12" in broken_spans([(A, 10, 15, 2)], [Span(A, 10, 12, 2)])
    assert "2 rows, the contribution says 3" in broken_spans([(A, 10, 12, 3)], [Span(A, 10, 12, 2)])
    assert "not contributed" in broken_spans([], [Span(A, 10, 12, 2)])
    assert broken_spans([(A, 10, 10, 0)], []) == "", "a partition without new tuples needs no segment"
    assert broken_spans([(A, 10, 10, 0)], [Span(A, 10, 10, 0)]) == "", "and may have one with nothing of it"
    assert "begins at 10" in broken_spans([(A, 10, 9, 2)], [Span(A, 10, 9, 2)]), "none goes back"


tps = st.builds(TP, st.text("aZ09._-", min_size=1, max_size=5), st.integers(0, 99))


@given(st.dictionaries(tps, st.integers(0, 2**62), max_size=8))
def test_I5_the_hash_of_a_map_is_of_its_content_only(offsets: dict[TP, int]) -> None:
    assert unpack_offsets(pack_offsets(offsets)) == offsets
    assert digest(offsets) == digest(dict(reversed(list(offsets.items()))))
    for tp in offsets:
        assert digest({**offsets, tp: offsets[tp] + 1}) != digest(offsets)


@given(st.sets(tps, max_size=8))
def test_a_packed_set_of_partitions_is_read_back(held: set[TP]) -> None:
    assert unpack(pack(held)) == held and pack(held) == pack(sorted(held, reverse=True))
