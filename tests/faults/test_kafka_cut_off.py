"""One member without Kafka, while SQL and the others go on (fault 44)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rigs.proxy import kafka_behind_proxy
from tests.rigs.pytest_scenarios import Lasting
from tests.rigs.scenario import Scenario


@pytest.mark.soak
@pytest.mark.parametrize(
    ("static", "protocol"),
    [(True, {}), (False, {}), (False, {"group.protocol": "consumer"})],
    ids=["static", "dynamic", "kip848"],
)
def test_44_member_cut_off_from_kafka_alone_is_lost_and_comes_back(
    services_folder: Path, tmp_path: Path, lasting: Lasting, static: bool, protocol: dict[str, str]
) -> None:
    """SPEC G4: it renews its lease all the while; another one shows a newer generation, so it is lost, and replaced when it can."""
    lasting.drop()
    folder = services_folder / f"kafka-{'s' if static else 'c' if protocol else 'd'}"
    with (
        kafka_behind_proxy(folder) as (kafka, proxy, address),
        Scenario(kafka, tmp_path, kafka={"bootstrap.servers": address, **protocol}, static_membership=static) as s,
    ):
        # By KIP-848 the first member has everything until the second one's heartbeat, and the region may run by then.
        s.until(
            lambda: len(s.region.status().live) == 2 and all(m.partitions for m in s.region.status().live), "shared"
        )
        s.cut_soon()
        mark, was = s.mark(), s.incarnation(1)
        proxy.cut(f"{s.member(1)}-")
        s.until(lambda: len(s.held()) == 4 and s.events("lost", since=mark), "the other has it all", timeout=60)
        assert "generation" in s.events("lost", since=mark)[0].text
        assert s.cut_soon().members == 1
        assert len(s.resets(mark)) <= 2, [e.text for e in s.resets(mark)]
        proxy.mend()
        s.await_new(1, was)
        s.settle()
        s.finish_and_verify()
