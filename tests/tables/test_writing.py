"""The steps of a write that every format shares."""

from __future__ import annotations

from pathlib import Path

from crkafka_core.control import Tx
from crkafka_core.lake import writing
from crkafka_core.lake.hold import Hold
from crkafka_core.lake.writing import Written
from crkafka_core.plane import leases, permits
from crkafka_core.plane.permits import Permit
from tests.rigs.landing import Landing
from tests.rigs.memory import MemoryStore


def test_tables_that_are_written_together_hold_their_segments_each_until_its_own_end(tmp_path: Path) -> None:
    """The first to end let go of what the other was reading."""
    declared = [{"name": name, "format": "delta", "path": f"lake.shop.{name}"} for name in ("typed", "dead")]
    landing = Landing(MemoryStore(), tmp_path, partitions=1, tables=declared)
    landing.land(5)
    region = landing.region
    held: list[int] = []

    def readers() -> int:
        return len(region.plane.read(lambda reader, _: leases.held(reader, "reader")))

    def write(name: str) -> None:
        def ask(tx: Tx, token: str) -> Permit | None:
            return permits.permit_commit(tx, name, holder="me", token=token)

        def put(permit: Permit, hold: Hold) -> Written:
            if name == "typed":
                held.append(readers())
                write("dead")
            held.append(readers())
            return Written("1", 0)

        assert writing.commit(region, name, ask, put, token="shape-1") is not None

    write("typed")
    assert (held, readers()) == ([1, 2, 1], 0)
