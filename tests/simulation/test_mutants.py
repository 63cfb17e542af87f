"""Would it be seen if the rules broke? Machine-made mutants against the tests of the rules and the simulation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crkafka_core.member.observer import live as view_live
from crkafka_core.model.rows import Member
from crkafka_core.protocol import settle
from tests.simulation.killers import arguments, equivalent, known, report
from tests.simulation.mutants import all_mutants

SAMPLE = os.environ.get("CRKAFKA_MUTANTS", "0")
"""How many of all, chosen anew by each `CRKAFKA_SOAK_SEED`; 0: all of them."""
KILLED = 0.9
"""The least share, of those that change something."""


def test_a_mutant_changes_one_function_for_everybody_and_is_taken_back() -> None:
    mutant = next(m for m in all_mutants() if m.module.endswith("protocol.settle") and m.function == "live")
    there = Member("r", "r/0", "a", 1)
    with mutant.planted():
        assert settle.live([there]) == view_live([there]) == [], str(mutant)
    assert settle.live([there]) == view_live([there]) == [there]


def test_who_was_asked_about_nothing_has_found_nothing() -> None:
    assert report(arguments(["--sample", "5"]), {}) == (0.0, [])


def test_every_rule_has_places_where_it_can_be_broken() -> None:
    modules = {mutant.module.rpartition(".")[2] for mutant in all_mutants()}
    assert modules >= {"machine", "merge", "settle", "cuts", "members", "resets", "starts", "tables", "retire"}
    keys = [mutant.key for mutant in all_mutants()]
    assert len(keys) == len(set(keys)) > 1_000, "each has a name of its own"


def test_what_is_called_equivalent_is_there_and_has_its_reason() -> None:
    there = {mutant.key for mutant in all_mutants()}
    for key, why in equivalent().items():
        assert key in there, f"no such mutant any more: {key}"
        assert len(why) > 20, key


@pytest.mark.soak
@pytest.mark.timeout(12_000)
def test_most_mutants_of_the_rules_are_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Survivors are printed: each is a missing check, redundant code, or equivalent."""
    given = ["--sample", SAMPLE, "--seed", os.environ.get("CRKAFKA_SOAK_SEED", "0"), "--keep", str(tmp_path / "m.json")]
    with capsys.disabled():
        subprocess.run([sys.executable, "-m", "tests.simulation.killers", *given, "--seconds", "11000"], check=True)
    options = arguments(given)
    share, survivors = report(options, known(options))
    assert share >= KILLED, survivors
