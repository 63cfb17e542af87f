"""Partitions: their keys, and the reconciliation of what Dagster has with what is live (SPEC A3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_project.names import checkpoint_of, key_of
from dagster_project.partitions import reconcile


def test_keys_sort_as_their_checkpoints() -> None:
    ids = [1, 9, 10, 999, 1_000, 4_941, 2**31, 10**11]
    assert sorted(map(key_of, ids)) == [key_of(i) for i in ids]
    assert [checkpoint_of(key_of(i)) for i in ids] == ids


@pytest.mark.parametrize("key", ["7", "abc", "", "-00000000001", "0000000000001", "00000000001x"])
def test_a_key_that_names_no_checkpoint_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="names no checkpoint"):
        checkpoint_of(key)


def apply(present: list[str], wanted: list[str], chunk: int) -> tuple[list[str], int]:
    """Carry out ticks until none does anything; what is there then, and the number of ticks."""
    for ticks in range(200):
        change = reconcile(present, wanted, chunk=chunk)
        assert len(change.add) + len(change.remove) <= chunk
        if not change.add and not change.remove:
            assert not change.more
            return present, ticks
        present = [k for k in present if k not in change.remove]
        present += [k for k in change.add if k not in present]
    raise AssertionError("it does not come to an end")


@given(st.lists(st.integers(1, 40), unique=True), st.sets(st.integers(1, 40)), st.integers(1, 10))
def test_whatever_is_there_it_becomes_what_is_live_and_in_order(there: list[int], live: set[int], chunk: int) -> None:
    """From the lowest that is there and live: what left the history does not come back."""
    lowest = min(live & set(there), default=0)
    wanted = [key_of(i) for i in sorted(live)]
    assert apply([key_of(i) for i in there], wanted, chunk)[0] == [key_of(i) for i in sorted(live) if i >= lowest]
