"""Names of segments (SPEC C7, G6, T3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crkafka_core.model.segment import SegmentName, epoch_folder, segment_path

word = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,11}", fullmatch=True)
number = st.integers(0, 2**63 - 1)


@given(word, number, word, number, number)
def test_a_path_gives_its_name_back(uid: str, epoch: int, incarnation: str, parent: int, seq: int) -> None:
    name = SegmentName(uid, epoch, incarnation, parent, seq)
    assert SegmentName.parse(name.path) == name
    assert name.path.startswith(epoch_folder(uid, epoch) + "/")


def test_the_path_holds_what_makes_it_unique() -> None:
    assert segment_path("r1", 7, "abc", 12, 3) == "r1/00000007/abc-12-3.parquet"


@pytest.mark.parametrize(
    "path",
    [
        "r1/00000007/abc-12.parquet",
        "r1/7/abc-12-3.parquet",
        "r1/00000007/abc-12-3.parquet.tmp",
        "r1/00000007/sub/abc-12-3.parquet",
        "r1/00000007/abc-012-3.parquet",
        "r1/000000007/abc-12-3.parquet",
        "../00000007/abc-12-3.parquet",
        "_SUCCESS",
    ],
)
def test_what_is_not_ours_has_no_name(path: str) -> None:
    assert SegmentName.parse(path) is None


@pytest.mark.parametrize(("uid", "incarnation"), [("a/b", "c"), ("..", "c"), ("a", "orders/0"), ("", "c"), ("a", "")])
def test_words_that_would_leave_the_folder_are_refused(uid: str, incarnation: str) -> None:
    with pytest.raises(ValueError, match="segment's path"):
        segment_path(uid, 1, incarnation, 0, 0)
