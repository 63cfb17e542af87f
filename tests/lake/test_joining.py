"""The keeper of a table joins its small files beside the commits (SPEC K6)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from crkafka_core.lake import compact
from crkafka_core.region import feeder
from crkafka_core.region.feeder import ByRoad, Feeder
from tests.lake.rig import Iceberg, Rig


@pytest.mark.parametrize("kind", [Rig, Iceberg])
def test_K6_a_table_has_few_small_files_however_long_it_is_written(
    kind: type[Rig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact, "CROWD", 10)
    monkeypatch.setattr(feeder, "EVERY", 5)
    rig, told, most = kind(tmp_path), list[str](), 0
    keeper = Feeder(rig.region, tell=told.append, means=rig.means)
    for number in range(1, 41):
        rig.land(1)
        if number > 2:
            rig.landing.retire(number - 2)
        keeper.turn(0.0)
        way = keeper._way
        assert isinstance(way, ByRoad)
        if way._joining._loop is not None:
            way._joining._loop.join(20)
        snapshot = rig.log("bronze", str(rig.path), {}).look()
        most = max(most, len(list(snapshot.files())))
    keeper.end()
    assert rig.table().acknowledged == 40 and most < 40, "80 files were written"
    assert rig.rows() == rig.truth() and rig.look().clean and not told


def test_K6_joining_ends_with_its_keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = list[str]()

    def join(_: object, name: str, left: set[str], *, go_on: Callable[[], bool], logs: object) -> compact.Maintained:
        while go_on():
            time.sleep(0.01)
        ended.append(name)
        return compact.Maintained(name)

    monkeypatch.setattr(compact, "join_crowds", join)
    monkeypatch.setattr(feeder, "EVERY", 1)
    rig = Rig(tmp_path)
    keeper = Feeder(rig.region, means=rig.means)
    rig.land(1)
    keeper.turn(0.0)
    keeper.end()
    assert ended == ["bronze"]
