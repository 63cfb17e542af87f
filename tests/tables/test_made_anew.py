"""Compactions and rewinds in any order beside a topic that was made anew, whose old checkpoints are archived: nothing is fetched."""

from __future__ import annotations

import random

import pytest

from tests.tables.conftest import Lake


@pytest.mark.parametrize("seed", range(12))
def test_what_a_rewind_supersedes_leaves_and_nothing_else(lake: Lake, seed: int) -> None:
    rng, retired = random.Random(seed), 1 + seed % 4  # checkpoints that the old topic has
    for _ in range(retired):
        lake.land(rng.randint(2, 8))
    lake.advance()
    if rng.random() < 0.3:
        lake.compact()
    lake.landing.make_topics_anew()
    lake.land(rng.randint(1, 5))
    lake.advance()
    lake.landing.retire(*range(1, retired + 1))
    for _ in range(30):
        match rng.choice(["land", "land", "advance", "advance", "compact", "compact", "rewind", "maintain"]):
            case "land":
                lake.land(rng.randint(1, 6))
            case "advance":
                lake.advance()
            case "compact":
                lake.compact()
            case "maintain":
                lake.maintain(2_000)
            case "rewind":
                line = lake.region.plane.read(lambda reader, row: reader.line(row.head))
                lake.landing.rewind(rng.choice([c for c in line if c > retired]))
                lake.fence()
                assert lake.values() == lake.truth(lake.table().acknowledged)
    lake.advance()
    assert lake.values() == lake.truth() and lake.look().clean
