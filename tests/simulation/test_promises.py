"""What fails is told, and not left to a deadline that lies further off: the region resets for the right cause, and soon."""

from __future__ import annotations

import pytest

from tests.simulation.breakage import check_fits
from tests.simulation.one_failure import Unnoticed
from tests.simulation.promises import PROMISES, Promise
from tests.simulation.silences import SILENCES, Silence

SEEDS = range(2)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda p: p.__name__)
def test_a_promise_is_kept(promise: Promise) -> None:
    for seed in SEEDS:
        promise(seed)


@pytest.mark.parametrize("silence", SILENCES, ids=lambda s: s.name)
def test_a_planted_silence_is_noticed(silence: Silence) -> None:
    with silence.planted():
        for seed in SEEDS:
            try:
                silence.breaks(seed)
            except Unnoticed as unnoticed:
                check_fits(silence.name, str(unnoticed))
                return
    pytest.fail(f"{silence.breaks.__name__} is kept although {silence.name}")
