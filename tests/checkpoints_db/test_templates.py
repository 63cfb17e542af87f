"""Tables of topics are declared and passed over on each database as in memory (SPEC K6)."""

from __future__ import annotations

from pathlib import Path

from checkpoints_db import open_store
from crkafka_core.plane import passes, templates
from tests.rigs.landing import Landing


def test_K6_a_new_topic_is_declared_where_it_begins_and_passed_over_where_it_is_quiet(
    new_url: str, tmp_path: Path
) -> None:
    table = {"each": "topic", "name": "{topic}", "path": str(tmp_path / "lake" / "{topic}")}
    store = open_store(new_url)
    landing = Landing(store, tmp_path, topics=("a",), pattern="^.*", tables=[table], control_plane=new_url)
    plane, config = landing.region.plane, landing.config
    landing.land(1)
    landing.new_topic("b")
    landing.land(1, quiet=["a"])
    landing.land(1, quiet=["a"])
    assert templates.declare_new(plane, config) == {"a", "b"}

    def acknowledged() -> dict[str, int]:
        return {t.name: t.acknowledged for t in plane.read(lambda reader, _: templates.of_topics(reader))}

    assert acknowledged() == {"a": 0, "b": 1}
    landing.land(1, quiet=["b"])
    assert plane.do(passes.pass_over) == 0, "both have something that waits"
    landing.new_topic("c")
    landing.land(1)
    templates.declare_new(plane, config, known={"a", "b"})
    assert acknowledged() == {"a": 0, "b": 1, "c": 4}
    landing.new_topic("d")
    templates.declare_new(plane, config)
    assert acknowledged()["d"] == 5, "it has nothing yet"
    landing.land(1, quiet=["d"])
    assert plane.do(passes.pass_over) == 1
    assert acknowledged()["d"] == 6
    store.close()
