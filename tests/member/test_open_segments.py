"""The segments between two cuts: what was handed over is never removed by the member again (SPEC C7, D4, T3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from crkafka_core.member.open_segments import OpenSegments
from crkafka_core.model.offsets import TP
from crkafka_core.model.segment import Span
from crkafka_core.segments.storage import Storage
from tests.rigs.landing import records

P0 = TP("t", 0)


def _segments(folder: Path, max_bytes: int = 1 << 30) -> tuple[OpenSegments, Storage]:
    storage = Storage.open(folder)
    return OpenSegments(storage, "uid", "m0", max_bytes), storage


def test_c7_what_was_handed_to_a_contribution_survives_a_drop(tmp_path: Path) -> None:
    """A merge may have named it before this member hears of the reset that followed: removing it would be data loss."""
    segments, storage = _segments(tmp_path)
    segments.write(records(P0, 0, 100), 2, 0, {P0: 0})
    (handed,) = segments.close(segments.hand_over())
    segments.write(records(P0, 100, 200), 2, 1, {P0: 100})
    segments.drop()
    assert [file.path for file in storage.list("uid")] == [handed.path]
    segments.drop()
    assert storage.exists(handed.path)


def test_d4_what_was_never_handed_over_is_removed(tmp_path: Path) -> None:
    segments, storage = _segments(tmp_path, max_bytes=1)
    for at in (0, 100, 200):
        segments.write(records(P0, at, at + 100), 2, 0, {P0: at})
    assert len(list(storage.list("uid"))) >= 1
    segments.drop()
    assert list(storage.list("uid")) == []
    assert segments.close(segments.hand_over()) == ()


def test_each_cut_is_handed_its_own_segments(tmp_path: Path) -> None:
    segments, _ = _segments(tmp_path)
    segments.write(records(P0, 0, 10), 2, 0, {P0: 0})
    first = segments.close(segments.hand_over())
    segments.write(records(P0, 10, 30), 2, 1, {P0: 10})
    second = segments.close(segments.hand_over())
    assert [(s.rows, s.spans) for s in (*first, *second)] == [
        (10, (Span(P0, 0, 10, 10),)),
        (20, (Span(P0, 10, 30, 20),)),
    ]


def test_d5_what_is_written_while_the_cuts_segments_are_still_open_goes_into_others(tmp_path: Path) -> None:
    segments, storage = _segments(tmp_path)
    segments.write(records(P0, 0, 10), 2, 4, {P0: 0})
    open_still = segments.hand_over()
    segments.write(records(P0, 10, 30), 2, 5, {P0: 10})
    segments.drop()
    ((handed,), rest) = segments.close(open_still), segments.close(segments.hand_over())
    assert (handed.rows, rest) == (10, ())
    assert [file.path for file in storage.list("uid")] == [handed.path], "a drop takes nothing of what was handed over"


@pytest.mark.parametrize("other", [(2, 5), (3, 4)])
def test_C8_rows_of_another_number_or_epoch_are_refused_until_the_segments_are_handed_over(
    tmp_path: Path, other: tuple[int, int]
) -> None:
    """Also where the first ones have filled a segment, and it is closed."""
    segments, _ = _segments(tmp_path, max_bytes=1)
    segments.write(records(P0, 0, 10), 2, 4, {P0: 0})
    with pytest.raises(ValueError, match="among those of"):
        segments.write(records(P0, 10, 20), *other, {P0: 10})
    segments.close(segments.hand_over())
    segments.write(records(P0, 10, 20), *other, {P0: 10})
