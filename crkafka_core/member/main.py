"""A member as a process: registers, runs its threads, ends with a code that tells its host what to do (SPEC G3, K1)."""

from __future__ import annotations

import importlib
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TextIO, TypeVar

from crkafka_core.config import RegionConfig
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.kafka.consumer import GroupConsumer
from crkafka_core.kafka.depart import depart
from crkafka_core.kafka.nudge import nudge
from crkafka_core.kafka.properties import client_properties
from crkafka_core.member import memory
from crkafka_core.member.event_loop import EventLoop
from crkafka_core.member.lease import Watchdog
from crkafka_core.member.message_queue import MessageQueue
from crkafka_core.member.observer import Observer
from crkafka_core.member.open_segments import OpenSegments
from crkafka_core.member.reporter import Reporter
from crkafka_core.member.resolver import Resolver
from crkafka_core.member.submitter import Submitter
from crkafka_core.model.errors import CrkafkaError, Lost, NotRunning, ServiceUnavailable, Superseded, WrongRegion
from crkafka_core.model.limits import Limits
from crkafka_core.plane import limits, members
from crkafka_core.plane.stores import open_plane
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.protocol import signals as sg
from crkafka_core.protocol.signals import ExitKind
from crkafka_core.segments.storage import Storage

_log = logging.getLogger(__name__)
T = TypeVar("T")

CODES = {ExitKind.CLEAN: 0, ExitKind.SUPERSEDED: 10, ExitKind.LOST: 11, ExitKind.FAILED: 12}
"""Exit codes of a member's process; a host restarts it on every code but the first two."""
REFUSED = 14
"""Exit code of a process that must not be a member at all: another region's group (SPEC G1)."""
NO_RESTART = frozenset({CODES[ExitKind.SUPERSEDED], REFUSED})
"""Not started again as long as the region wants this name; a clean end is, if the region wants it (again) after all."""


Hook = Callable[["Parts"], None]


@dataclass(frozen=True)
class Parts:
    """The wired parts of a member, before its threads start: what a fault test gets hold of."""

    name: str
    plane: ControlPlane
    storage: Storage
    loop: EventLoop
    submitter: Submitter
    reporter: Reporter
    resolver: Resolver
    observer: Observer
    watchdog: Watchdog


def run_member(
    config: RegionConfig, name: str, *, host: str = "", stop: threading.Event | None = None, hook: Hook | None = None
) -> int:
    """Be the member `name` until its end; the exit code. `stop` asks for a clean end, `hook` is called before the threads start."""
    plane = open_plane(config)
    try:
        return _Member(config, plane, name, host or socket.gethostname()).run(stop or threading.Event(), hook)
    except (NotRunning, Superseded) as refused:
        _log.info("%s", refused)
        return CODES[ExitKind.SUPERSEDED] if isinstance(refused, Superseded) else CODES[ExitKind.CLEAN]
    except WrongRegion as refused:
        _log.error("%s", refused)
        return REFUSED
    finally:
        plane.store.close()


def _patiently(call: Callable[[], T], stop: threading.Event) -> T:
    """Wait for a service that is not there yet."""
    pause = 0.2
    while True:
        try:
            return call()
        except ServiceUnavailable as error:
            _log.warning("%s", error)
            if stop.wait(pause):
                raise
            pause = min(pause * 2, 5.0)


class _Member:
    def __init__(self, config: RegionConfig, plane: ControlPlane, name: str, host: str) -> None:
        self.config = config
        self.plane = plane
        self.name = name
        self.host = host
        self.incarnation = uuid.uuid4().hex[:12]
        self.counted = (0, time.monotonic())

    def run(self, stop: threading.Event, hook: Hook | None) -> int:
        config, plane = self.config, self.plane
        launch = _patiently(lambda: plane.do(lambda tx: members.launch(tx, self.name)), stop)
        kafka = config.resolved_kafka()
        admin = KafkaAdmin(kafka, client_id=f"crkafka-{self.name}-{self.incarnation}-admin")
        cluster = _patiently(admin.cluster_id, stop)
        region = plane.read(lambda _, row: row)
        limit = limits.of(region)
        instance = f"{config.region}-{region.uid[:8]}-{members.index(self.name)}" if config.static_membership else None
        who = members.Registration(
            self.name,
            self.incarnation,
            launch,
            config.region_index,
            cluster,
            config.group_id,
            self.host,
            instance or "",
        )
        registered_at = _patiently(lambda: self._register(who), stop)
        properties = client_properties(
            kafka, limit, client_id=f"crkafka-{self.name}-{self.incarnation}", instance_id=instance,
            single_topic=config.topics is not None and len(config.topics) == 1,
        )  # fmt: skip
        resolved = config.resolve()
        storage = Storage.open(resolved.storage, resolved.storage_options)
        loop = EventLoop(
            chunk=min(10 * config.max_poll_records, 5_000), poll_interval=int(properties["max.poll.interval.ms"]) / 1000,
            commit_at_drain=config.commit == "drain", uid=region.uid, name=self.name,
        )  # fmt: skip
        submitter = Submitter(
            MessageQueue(100 * config.max_poll_records, config.queue_bytes),
            OpenSegments(storage, region.uid, self.incarnation, config.segment_bytes), loop.post, trigger=config.trigger.tuples or 0,
        )  # fmt: skip
        reporter = Reporter(
            plane, self.name, self.incarnation, loop.post,
            topic_ids=lambda: {topic: info.id for topic, info in admin.topics(loop.state.topic_ids).items()},
        )  # fmt: skip
        resolver = Resolver(config, plane, admin, storage, self.name, self.incarnation, loop.post)
        observer = Observer(plane, self.name, self.incarnation, limit, loop.post)
        watchdog = Watchdog(
            plane, self.name, self.incarnation, limit, loop.post, since=registered_at,
            metrics=lambda: {**self.metrics(loop, submitter), "unavailable": resolver.unavailable},
            standstill=lambda: _standstill(loop, submitter, (observer, reporter), limit), superseded_code=CODES[ExitKind.SUPERSEDED],
        )  # fmt: skip
        if hook is not None:
            hook(Parts(self.name, plane, storage, loop, submitter, reporter, resolver, observer, watchdog))
        memory.settle()
        loop.post(sg.Lease(True))
        threads: tuple[Submitter | Reporter | Resolver | Observer | Watchdog, ...] = (
            submitter,
            reporter,
            resolver,
            observer,
            watchdog,
        )
        for thread in threads:
            thread.start()
        threading.Thread(target=_pass_on, args=(stop, loop), name="stop", daemon=True).start()
        consumer = GroupConsumer(properties)
        try:
            ended = loop.run(
                consumer, submitter, reporter, resolver, observer, self._subscribe, lambda: self._nudge(properties)
            )
        except Exception as error:
            _log.exception("the event thread failed")
            ended = sg.Exit(ExitKind.FAILED, f"{type(error).__name__}: {error}")
        finally:
            watchdog.doom()
            for thread in (submitter, observer, resolver, reporter):
                thread.end()
        _log.info("%s ends: %s: %s", self.name, ended.kind, ended.why)
        if ended.kind is ExitKind.CLEAN:
            watchdog.end()
        superseded = (
            False if watchdog.isolated else self._farewell(ended)
        )  # isolated: nobody hears it, and leaving the group matters
        code = CODES[ExitKind.SUPERSEDED if superseded else ended.kind]
        watchdog.doom(code)
        consumer.close()
        if watchdog.isolated or (ended.kind is ExitKind.CLEAN and loop.state.scaled_in):
            depart(properties, config.topics or (), config.pattern)
        watchdog.end()
        return code

    def _register(self, who: members.Registration) -> float:
        """When the lease began: before it was asked for (SPEC G4)."""
        asked = time.monotonic()
        self.plane.do(lambda tx: members.register(tx, who))
        return asked

    def _subscribe(self, consumer: GroupConsumer) -> None:
        consumer.subscribe(self.config.topics or (), pattern=self.config.pattern)

    def _farewell(self, ended: sg.Exit) -> bool:
        """What SQL should know at once, instead of learning it from the lease; whether a newer process of this name has taken over.

        Whatever a superseded process failed of, it is not started again: it would supersede the rightful one (SPEC G3, R7).
        """
        try:
            if ended.kind is ExitKind.CLEAN:
                self.plane.do(lambda tx: members.leave(tx, self.name, self.incarnation))
            elif ended.kind is ExitKind.FAILED:
                self.plane.read(lambda reader, region: members.of(reader, self.name, self.incarnation, region.name))
                self.plane.do(lambda tx: members.fail(tx, self.name, self.incarnation, ended.why))
        except Superseded:
            return True
        except Lost:
            return False
        except CrkafkaError as error:
            _log.warning("saying goodbye: %s", error)
        return False

    def _nudge(self, properties: Mapping[str, str]) -> None:
        """On a thread of its own: the member that asks for a rebalance has to poll for it."""
        arguments = (properties, self.config.topics or (), self.config.pattern)
        threading.Thread(target=nudge, args=arguments, name="nudge", daemon=True).start()

    def metrics(self, loop: EventLoop, submitter: Submitter) -> dict[str, object]:
        """What is stored with each renewal of the lease (SPEC R6, D3)."""
        state = loop.state
        held = state.held or frozenset()
        nexts, high, now = submitter.nexts(), loop.high, time.monotonic()
        partitions: dict[str, dict[str, list[int]]] = {}
        for tp in sorted(nexts.keys() & high.keys()):
            partitions.setdefault(tp.topic, {})[str(tp.partition)] = [nexts[tp], high[tp]]
        before, since = self.counted
        self.counted = (submitter.submitted, now)
        return {
            "partitions": partitions,
            "lag": sum(max(0, end - at) for ps in partitions.values() for at, end in ps.values()),
            "tuplesPerSecond": round((submitter.submitted - before) / max(0.001, now - since), 1),
            "pid": os.getpid(),
            "nPartitionsAssigned": len(held),
            "nConsumedTopics": len({tp.topic for tp in held}),
            "submitted": submitter.submitted,
            "nPartitionRebalances": loop.rebalances,
            "drainTimeMillis": submitter.drain_ms,
            "drainTimeMillisMax": submitter.drain_ms_max,
            "cuts": loop.cuts,
            "pausesMillis": list(submitter.pauses),
            "queueRecords": submitter.queue.records,
            "queueBytes": submitter.queue.bytes,
            "state": state.client,
        }


def _standstill(loop: EventLoop, submitter: Submitter, others: tuple[Observer | Reporter, ...], limit: Limits) -> float:
    """For how long a thread has made no progress (SPEC G3).

    Closing segments has the cut's deadline. A database that answers the renewer, but not another thread for a whole lease, has
    lost that thread's connection without a word.
    """
    now = time.monotonic()
    return max(
        loop.standstill(),
        submitter.stuck_for(now),
        submitter.saving_for(now) - limit.drain_timeout,
        *(other.stuck_for(now) - limit.session_timeout for other in others),
    )


def _pass_on(stop: threading.Event, loop: EventLoop) -> None:
    stop.wait()
    loop.post(sg.Stop())


def _hook(where: str, argument: str) -> Hook | None:
    """`package.module:function`, as a host's order names it; called with the parts and the argument."""
    if not where:
        return None
    module, _, function = where.partition(":")
    call = getattr(importlib.import_module(module), function)
    return lambda parts: call(parts, argument)


def main(stdin: TextIO = sys.stdin) -> int:
    """`python -m crkafka_core.member.main`: the configuration and the name come as JSON on standard input."""
    order = json.load(stdin)
    logging.basicConfig(
        level=order.get("log_level", "INFO"),
        stream=sys.stderr,
        format=f"%(asctime)s %(levelname)s {order['name']} %(threadName)s %(name)s: %(message)s",
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        config, hook = (
            RegionConfig.from_json(order["config"]),
            _hook(order.get("hook", ""), order.get("hook_argument", "")),
        )
        return run_member(config, order["name"], host=order.get("host", ""), stop=stop, hook=hook)
    except CrkafkaError as error:
        _log.error("%s", error)
        return CODES[ExitKind.FAILED]


if __name__ == "__main__":
    sys.exit(main())
