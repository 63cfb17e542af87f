"""Cuts without a pause, on a real Kafka: records are submitted all the time while a cut is open (SPEC D5)."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from crkafka_core.member.main import run_member
from crkafka_core.member.parts import Parts
from crkafka_core.verify.verify import verify
from tests.rigs.scenario import Scenario

Make = Callable[..., Scenario]
ROWS = 150_000


def test_D5_records_flow_while_a_cut_is_open(scenario: Make) -> None:
    """The longest time without a submitted batch while the queue is full, of marks and of cuts that stop, in turns in one run."""
    s = scenario(begin=False, rate=0, members=1, partitions=2, session=8.0, max_poll_records=2)
    s.generator.send(s.topics[0], ROWS, partitions=2)
    times: list[float] = []
    wired: list[Parts] = []

    def hook(parts: Parts) -> None:
        write, close = parts.submitter._write, parts.submitter._close

        def noted(batch: Any, stamp: Any) -> None:
            write(batch, stamp)
            time.sleep(0.004)  # the downstream: the queue stays full
            times.append(time.monotonic())

        def slow(*given: Any) -> None:
            time.sleep(0.15)  # the storage: members that stop for a cut wait for it
            close(*given)

        setattr(parts.submitter, "_write", noted)  # noqa: B010
        setattr(parts.submitter, "_close", slow)  # noqa: B010
        wired.append(parts)

    stop = threading.Event()
    member = threading.Thread(target=run_member, args=(s.config, s.member(0)), kwargs={"stop": stop, "hook": hook})
    member.start()
    try:
        s.until(lambda: len(times) > 20, "records flow")
        flowing: list[float] = []
        stopping: list[float] = []
        for _ in range(6):
            for region, gaps in ((s.region, flowing), (s.stopping, stopping)):
                begun = time.monotonic()
                cut = region.cut()
                ended = time.monotonic()
                s.until(lambda at=ended: times[-1] > at, "it goes on")
                assert cut.rows
                gaps.append(_longest(times, begun, ended))
        assert sum(wired[0].submitter.nexts().values()) < ROWS, "there was more to read all the time"
        assert statistics.median(flowing) < statistics.median(stopping) / 2, f"{flowing} against {stopping}"
    finally:
        s.region.stop()
        stop.set()
        member.join(30)
    assert verify(s.region).ok


def _longest(times: Sequence[float], begun: float, ended: float) -> float:
    """Between two batches, of which one at least came while the cut was open, or none did."""
    return max(later - earlier for earlier, later in itertools.pairwise(times) if later > begun and earlier < ended)
