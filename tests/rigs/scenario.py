"""A scenario on real services: a region with member processes, a producer of numbered records, faults, and the oracle at the end."""

from __future__ import annotations

import contextlib
import copy
import math
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from checkpoints_db import initialise
from crkafka_core.config import RegionConfig
from crkafka_core.config.kafka_section import has_member_epochs
from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.hosts.processes import ProcessHost
from crkafka_core.model.errors import CrkafkaError, Refused
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Checkpoint, Event, MemberStatus
from crkafka_core.plane import events, roster, starts
from crkafka_core.region import Region
from crkafka_core.region.caught_up import consume
from crkafka_core.testing.generator import Generator
from crkafka_core.testing.pytest_services import unique
from crkafka_core.verify.committed import HEAD_ENDS
from crkafka_core.verify.compare import STRANGE
from crkafka_core.verify.ledger import Ledger
from crkafka_core.verify.verdict import Verdict
from tests.rigs.disturbances import freeze, stranger
from tests.rigs.failpoints import HOOK, Failpoints
from tests.rigs.forked import ForkedProcess
from tests.rigs.seen import Remembered, verified

SHORT: dict[str, Any] = {
    "trigger": {"manual": True},
    "start_grace": 30,
    "isolation_timeout": 2,
    "stale_generation": 3,
    "unheld_timeout": 3,
    "settle_timeout": 20,
    "drain_timeout": 10,
    "handover_timeout": 3,
    "reset_timeout": 20,
    "backoff_base": 0.05,
    "backoff_cap": 0.5,
    "driver_lease": 3,
}
"""Limits of a scenario: as short as two busy cores allow."""
SESSION = 4.0
PACE = 0.1
"""Seconds between two batches of records: the broker's work and the members' goes by batches."""
LEDGER_LAG = 10.0
"""Seconds for which a producer may not have heard yet that Kafka has a record."""
LIMIT = 45.0
"""Seconds after which something that should have happened has not (I10)."""


class Scenario:
    """`with Scenario(kafka, tmp_path) as s: … s.kill(…) … s.finish_and_verify()`."""

    def __init__(
        self,
        kafka: KafkaCluster,
        folder: Path,
        /,
        *,
        members: int = 2,
        partitions: int = 4,
        topics: int = 1,
        rate: float = 400.0,
        abort_every: int = 0,
        url: str = "",
        replication: int = 1,
        session: float = SESSION,
        names: Sequence[str] = (),
        pattern: str = "",
        producer_timeout: float = 60.0,
        settle: bool = True,
        begin: bool = True,
        **config: Any,
    ) -> None:
        """`rate` 0: nothing is produced by itself. `config` overrides what a scenario sets; `begin` false: no host yet."""
        self.kafka, self.folder, self.partitions = kafka, folder, partitions
        name = unique("r")
        self.topics = list(names) or [unique(f"t{i}") for i in range(topics)]
        for topic in self.topics if not names else ():
            kafka.topics.create(topic, partitions, replication=replication)
        self.url = url or f"sqlite:///{folder}/{name}.db"
        client: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap, "group.id": name}
        client |= {"session.timeout.ms": round(session * 1000), "topic.metadata.refresh.interval.ms": 500}
        client |= config.pop("kafka", {})
        if not has_member_epochs(client):  # else it is the broker's
            client.setdefault("heartbeat.interval.ms", 300)
        read: dict[str, Any] = {"pattern": pattern} if pattern else {"topics": self.topics}
        keys = {"region": name, "control_plane": self.url, "storage": str(folder / "segments"), "members": members}
        self.config = RegionConfig.of(base=folder, **SHORT | keys | read | {"kafka": client} | config)
        self.session = session
        self.generator = Generator(kafka.bootstrap, timeout=producer_timeout)
        self.ledger: Ledger = self.generator.ledger
        self.points = Failpoints(folder / "failpoints")
        self.seen = Remembered()
        self._rate, self._abort_every, self._settle, self._begin = rate, abort_every, settle, begin
        self._stream = contextlib.ExitStack()
        self._stopped: set[int] = set()

    # Life

    def __enter__(self) -> Self:
        initialise(self.url)
        self.region = Region.open(self.config)
        self.region.init()
        self.host = self.new_host()
        try:
            self.region.start()
            if self._begin:
                self.host.begin()
                if self._settle:
                    self.wait_running()
            if self._rate:
                self.produce(self._rate, abort_every=self._abort_every)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            print(self.account())
        try:
            self.quieten()
        except Exception as failure:
            if error is None:
                raise
            print(f"the producer failed as well: {failure}")
        finally:
            self.wake()
            self.host.end(patience=0.0)
            self.region.close()

    def new_host(self, log: str = "logs") -> ProcessHost:
        """Another host of the same region: fault 55."""
        return ProcessHost(
            self.config,
            self.region.plane,
            log=self.folder / log,
            hook=HOOK,
            hook_argument=str(self.points.folder),
            launch=ForkedProcess,
        )

    def produce(self, rate: float, *, topics: Sequence[str] = (), partitions: int = 0, abort_every: int = 0) -> None:
        """Records at this rate until `quieten`."""
        names, count = list(topics) or self.topics, partitions or self.partitions
        self._stream.enter_context(
            self.generator.stream(names, per_second=rate, partitions=count, abort_every=abort_every, pace=PACE)
        )

    def quieten(self) -> None:
        """End the producer; everything that it sent is in the ledger then."""
        self._stream.close()

    @property
    def stopping(self) -> Region:
        """The region, by whose cuts members stop until the merge (SPEC D1, D3)."""
        keys = self.config.model_dump(mode="json", exclude_none=True)
        return Region(RegionConfig.of(**{**keys, "drain": "stop"}), self.region.plane)

    def region_on_new_sql(self, **keys: Any) -> Scenario:
        """The same region on a control plane that knows nothing of it, as after the loss of SQL; for the caller to end."""
        other = copy.copy(self)
        other.url = f"sqlite:///{self.folder}/{unique('anew')}.db"
        other.config = RegionConfig.of(
            **{**self.config.model_dump(mode="json", exclude_none=True), "control_plane": other.url, **keys}
        )
        initialise(other.url)
        other.region, other.seen = Region.open(other.config), Remembered()
        other.region.init()
        other.host = other.new_host()
        other.region.start()
        other.host.begin()
        return other

    # Members

    def member(self, number: int) -> str:
        return self.config.member_name(number)

    def pids(self) -> dict[str, int]:
        return self.host.pids()

    def registered_pids(self) -> dict[str, int]:
        """Process ids of the members that are registered from this machine, by name: for a host that is Spark."""
        rows = self.region.plane.read(lambda reader, _: roster.all_of(reader))
        hosts = {m.name: m.host.split(" pid ") for m in rows if m.status is MemberStatus.LIVE}
        return {name: int(at[1]) for name, at in hosts.items() if len(at) == 2 and at[0] == socket.gethostname()}

    def pid(self, number: int) -> int:
        """Of a living member."""
        return int(self.until(lambda: self.pids().get(self.member(number)), f"{self.member(number)} has a process"))

    def kill(self, number: int, sig: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to a member; its process id."""
        pid = self.pid(number)
        if sig == signal.SIGSTOP:
            self.freeze(pid)
            self._stopped.add(pid)
            return pid
        os.kill(pid, sig)
        return pid

    def freeze(self, pid: int) -> None:
        """Stop a process outside of a transaction."""
        path = self.config.resolved_control_plane().removeprefix("sqlite:///")
        freeze(pid, "" if "://" in path else path)

    def wake(self) -> None:
        for pid in list(self._stopped):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._stopped.clear()

    def stop_for(self, number: int, seconds: float) -> None:
        self.kill(number, signal.SIGSTOP)
        time.sleep(seconds)
        self.wake()

    def await_new(self, number: int, incarnation: str, *, timeout: float = LIMIT) -> str:
        """Until another incarnation of this member is registered; its name."""

        def other() -> str:
            now = self.incarnation(number)
            return now if now != incarnation else ""

        return str(self.until(other, f"member {number} is registered anew", timeout=timeout))

    def held(self) -> set[TP]:
        return {tp for m in self.region.status().live for tp in m.partitions or ()}

    def incarnation(self, number: int) -> str:
        return next((m.incarnation for m in self.region.status().members if m.name == self.member(number)), "")

    def stranger(self) -> contextlib.AbstractContextManager[None]:
        return stranger(self.config.resolved_kafka(), self.topics)

    # Region

    @property
    def phase(self) -> Phase:
        return self.region.plane.read(lambda _, row: row.phase)

    @property
    def epoch(self) -> int:
        return self.region.plane.read(lambda _, row: row.epoch)

    @property
    def head(self) -> int:
        return self.region.plane.read(lambda _, row: row.head)

    def cut(self, *, progress: bool = False) -> Checkpoint:
        """One cut; refused or aborted is an error."""
        return self.region.cut(progress=print if progress else lambda _: None)

    def cut_soon(self, *, timeout: float = LIMIT) -> Checkpoint:
        """The next cut that is merged: I10. Cuts that are aborted on the way are part of the fault."""
        end, last = time.monotonic() + timeout, ""
        while time.monotonic() < end:
            try:
                self.wait_running(timeout=max(1.0, end - time.monotonic()))
                return self.cut()
            except Refused as refused:
                last = str(refused)
                time.sleep(0.1)
        raise AssertionError(f"no cut was merged within {timeout:.0f} s (I10): {last}")

    def wait_running(self, epoch: int = 0, *, timeout: float = LIMIT) -> None:
        self.region.await_running(epoch, timeout=timeout)

    def settle(self, *, members: int | None = None, timeout: float = LIMIT) -> None:
        """Until the region runs, is settled, and has the wanted number of live members."""

        def settled() -> bool:
            status = self.region.status()
            wanted = status.region.members_wanted if members is None else members
            return status.region.phase is Phase.RUNNING and len(status.live) == wanted and not status.waits_for

        self.wait_running(timeout=timeout)
        self.until(settled, "the region is settled", timeout=timeout)

    def wait_phase(self, phase: Phase, *, timeout: float = LIMIT) -> None:
        self.until(lambda: self.phase is phase, f"the region is {phase}", timeout=timeout)

    def wait_head(self, head: int, *, timeout: float = LIMIT) -> None:
        self.until(lambda: self.head >= head, f"checkpoint {head} is the head", timeout=timeout)

    def await_flow(self) -> None:
        """Until every member that holds something has landed records since the last reset: a revocation counts from then on (SPEC R2)."""

        def flows() -> bool:
            cut = self.cut_soon()
            offsets = self.region.plane.read(lambda reader, row: starts.merged(reader, cut.id))
            return all(m.rows for m in offsets.values())

        self.until(flows, "records of every partition land")

    def submitted(self) -> int:
        """Tuples that living members have submitted since they started, as their last renewal says."""
        return sum(int(m.metrics.get("submitted", 0)) for m in self.region.status().members)

    def events(self, *kinds: str, since: int = 0) -> list[Event]:
        """Of the log, oldest first; all kinds unless named."""
        rows = self.region.plane.read(lambda reader, row: events.since(reader, since))
        return [e for e in rows if not kinds or e.kind in kinds]

    def mark(self) -> int:
        """Where the event log stands: what comes after it belongs to the fault."""
        return max((e.seq for e in self.events()), default=0)

    def resets(self, since: int) -> list[Event]:
        return self.events("reset", since=since)

    def until(self, condition: Callable[[], Any], what: str, *, timeout: float = LIMIT) -> Any:
        """Poll a condition; what it returns."""
        end = time.monotonic() + timeout
        while True:
            answer = condition()
            if answer:
                return answer
            if time.monotonic() > end:
                raise AssertionError(f"not within {timeout:.0f} s: {what}\n{self.account()}")
            time.sleep(0.05)

    # The end

    def verify(self, **keys: Any) -> Verdict:
        """The oracle against the ledger, while the region runs.

        A record may land before the producer has heard that Kafka has it, and the commit to Kafka follows the merge: the oracle looks
        again for a while. A commit that failed is made up for by that of the next cut (SPEC D5).
        """
        end, cut_at = time.monotonic() + LEDGER_LAG, time.monotonic() + LEDGER_LAG / 2
        while True:
            verdict = verified(self.region, self.seen, self.ledger, **keys)
            texts = [finding.text for finding in verdict.findings]
            passes = verdict.broken.keys() <= {"I2", "I12"} and all(STRANGE in t or HEAD_ENDS in t for t in texts)
            if verdict.ok or not passes or time.monotonic() > end:
                assert verdict.ok, str(verdict)
                return verdict
            time.sleep(0.3)
            if "I12" in verdict.broken and time.monotonic() > cut_at:
                self.cut_soon()
                end, cut_at = time.monotonic() + LEDGER_LAG, math.inf

    def check(self) -> Verdict:
        """The next cut is merged (I10), and the oracle finds nothing; the region and the producer go on."""
        self.points.clear_all()
        self.wake()
        self.settle()
        self.cut_soon()
        return self.verify(quiet=True)

    def finish_and_verify(self, *, rows: int | None = None, exact: bool = True, **keys: Any) -> Verdict:
        """End the producer, let the region catch up, cut, and ask the oracle; `exact`: everything that was committed has landed."""
        self.quieten()
        self.wake()
        self.points.clear_all()
        end = time.monotonic() + LIMIT
        while True:
            try:
                self.wait_running(timeout=LIMIT)
                consume(self.region)
                break
            except CrkafkaError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
        verdict = self.verify(quiet=True, **keys)
        if exact and not verdict.retired:
            due = self.ledger.rows() if rows is None else rows
            assert verdict.rows == due, f"{verdict.rows} rows landed, {due} were committed\n{self.account()}"
        return verdict

    def account(self) -> str:
        """Status, the last events, and the tails of the members' logs."""
        lines = []
        with contextlib.suppress(Exception):
            status = self.region.status()
            lines.append(
                f"{status.region.phase} epoch {status.region.epoch} head {status.region.head} waits for: {status.waits_for}"
            )
            lines += [f"  {m}" for m in status.members]
            lines += [
                f"  {e.at % 1000:8.3f} {e.kind} e{e.epoch} c{e.checkpoint} {e.member} {e.text[:200]}"
                for e in self.events()[-60:]
            ]
        for log in sorted(self.folder.glob("logs*/*.log")):
            lines += [f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-40:]]
        return "\n".join(lines)
