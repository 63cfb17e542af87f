"""A member as a process: registers, runs its threads, ends with a code that tells its host what to do (SPEC G3, K1)."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pkgutil
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn, TextIO, TypeVar

from crkafka_core import logs
from crkafka_core.config import RegionConfig
from crkafka_core.config.kafka_section import has_member_epochs
from crkafka_core.kafka.edge import Admin, Consumer
from crkafka_core.kafka.errors import NotAllowed
from crkafka_core.kafka.properties import client_properties
from crkafka_core.loop import Repeated, Signal
from crkafka_core.member import leash
from crkafka_core.member.edges import Edges
from crkafka_core.member.event_loop import EventLoop
from crkafka_core.member.exit_codes import CODES, REFUSED
from crkafka_core.member.kafka_troubles import REFUSED_FOR, Lasting
from crkafka_core.member.message_queue import MessageQueue
from crkafka_core.member.metrics import Metrics
from crkafka_core.member.observer import Observer
from crkafka_core.member.open_segments import OpenSegments
from crkafka_core.member.outside_sql import refuse_anothers
from crkafka_core.member.reporter import Reporter
from crkafka_core.member.resolver import Resolver
from crkafka_core.member.stall_watch import StallWatch
from crkafka_core.member.submitter import Submitter
from crkafka_core.member.watchdog import Watchdog
from crkafka_core.model import errors, limits
from crkafka_core.model.limits import Limits
from crkafka_core.plane import alarms, members, roster
from crkafka_core.plane.member_plane import MemberPlane
from crkafka_core.plane.transact import ControlPlane, open_plane
from crkafka_core.protocol import signals as sg
from crkafka_core.protocol import subscription
from crkafka_core.protocol.signals import ExitKind
from crkafka_core.segments import owner
from crkafka_core.segments.storage import Storage

_log = logging.getLogger(__name__)
T = TypeVar("T")
Hook = Callable[["MemberProcess"], None]
"""What a test or a bench does with a member's parts before its threads start."""


def run_member(
    config: RegionConfig, name: str, *, host: str = "", stop: threading.Event | None = None, hook: Hook | None = None
) -> int:
    """Be the member `name` until its end; the exit code. `stop` asks for a clean end."""
    plane = open_plane(config)
    try:
        return MemberProcess(config, plane, name, host or socket.gethostname()).run(stop or threading.Event(), hook)
    finally:
        plane.store.close()


class MemberProcess:
    """A member from its registration to its end, over edges that may be simulated; its parts, once it is registered."""

    plane: MemberPlane
    storage: Storage
    loop: EventLoop
    submitter: Submitter
    reporter: Reporter
    resolver: Resolver
    observer: Observer
    watchdog: Watchdog

    def __init__(
        self, config: RegionConfig, plane: ControlPlane, name: str, host: str, edges: Edges | None = None
    ) -> None:
        self.config, self.name, self.host = config, name, host
        self._plane = plane
        self.edges = edges or Edges()
        self.runtime = self.edges.runtime
        self.incarnation = self.runtime.unique()[:12]

    def run(self, stop: Signal, hook: Hook | None = None) -> int:
        try:
            return self._run(stop, hook)
        except (errors.NotRunning, errors.Superseded) as refused:
            _log.info("%s", refused)
            return CODES[ExitKind.SUPERSEDED] if isinstance(refused, errors.Superseded) else CODES[ExitKind.CLEAN]
        except (errors.WrongRegion, errors.OldConfiguration, errors.TooOld, errors.NotOwner) as refused:
            _log.error("%s", refused)
            return REFUSED
        except (errors.ServiceUnavailable, NotAllowed) as away:
            if not stop.is_set():
                raise
            _log.info("%s", away)  # it was waited for until the end
            return CODES[ExitKind.CLEAN]

    def _patiently(self, call: Callable[[], T], stop: Signal) -> T:
        """Call until the service answers. The host reports its absence, once for all members. Kafka may refuse our identity or rights for a
        while, as where they are renewed (SPEC X11)."""
        pause, refused = 0.2, Lasting()
        while True:
            try:
                return call()
            except (errors.ServiceUnavailable, NotAllowed) as error:
                if not isinstance(error, NotAllowed):
                    refused.over()
                elif refused.seconds(self.runtime.now()) >= REFUSED_FOR:
                    raise
                _log.info("%s", error)
                if self.runtime.wait(stop, pause):
                    raise
                pause = min(pause * 2, 5.0)

    def _run(self, stop: Signal, hook: Hook | None) -> int:
        config, patiently = self.config, partial(self._patiently, stop=stop)
        plane = self.plane = patiently(lambda: MemberPlane(self._plane, self.name, self.incarnation))
        self.storage = self.edges.storage(config)
        patiently(lambda: owner.check(self.storage, plane.uid, plane.place(), region=config.region))
        kafka = config.resolved_kafka()
        client_id = alarms.client_id(plane.uid, self.name, self.incarnation)
        admin = patiently(lambda: self.edges.admin(kafka, f"{client_id}-admin"))
        launch, cluster = patiently(plane.launch), patiently(admin.cluster_id)
        row = plane.read(lambda _, row: row)
        if not row.head:  # from the first merge on the group's commits name this region
            patiently(lambda: refuse_anothers(admin, config, plane.uid))
        # A new static process of KIP-848 is refused until the session of the old one ends (docs/clients.md C-R2).
        epochs = has_member_epochs(kafka)
        static = config.static_membership and not epochs
        instance = f"{config.region}-{plane.uid[:8]}-{roster.index(self.name)}" if static else ""
        since = patiently(lambda: self._register(launch, cluster, instance, epochs=epochs))
        limit = limits.of(row)
        single, pattern = config.topics is not None and len(config.topics) == 1, config.pattern is not None
        properties = client_properties(
            kafka, limit, client_id=client_id, instance_id=instance or None, single_topic=single, pattern=pattern
        )
        self._wire(admin, limit, since, int(properties["max.poll.interval.ms"]) / 1000)
        if hook is not None:
            hook(self)
        self.edges.settle()
        try:
            consumer = self._start(properties, stop)
        except errors.CrkafkaError as error:  # such as a property that the client does not take
            self._farewell(sg.Exit(ExitKind.CLEAN if stop.is_set() else ExitKind.FAILED, str(error)))
            raise
        return self._leave(consumer, admin, self._live(), properties)

    def _register(self, launch: int, cluster: str, instance: str, *, epochs: bool) -> float:
        """When the lease began: before it was asked for (SPEC G4)."""
        config, asked = self.config, self.runtime.now()
        reads = subscription.dump(config.topics, config.pattern)
        details = (config.region_index, cluster, config.group_id, self.host, instance, reads, epochs, os.getpid())
        self.plane.register(members.Registration(self.name, self.incarnation, launch, *details))
        return asked

    def _wire(self, admin: Admin, limit: Limits, since: float, poll_interval: float) -> None:
        """Make all parts of this member, and start none."""
        config, edges, runtime, plane = self.config, self.edges, self.runtime, self.plane
        loop = self.loop = EventLoop(
            chunk=min(40 * config.max_poll_records, 20_000),
            poll_interval=poll_interval,
            commit_at_drain=config.commit == "drain",
            uid=plane.uid,
            name=self.name,
            runtime=runtime,
        )
        ids, base = lambda: loop.state.topic_ids, lambda: loop.state.base
        segments = OpenSegments(
            self.storage, plane.uid, self.incarnation, config.segment_bytes, ids, base, edges.writer
        )
        queue, trigger = MessageQueue(100 * config.max_poll_records, config.queue_bytes), config.trigger.tuples or 0
        self.submitter = Submitter(queue, segments, loop.post, trigger=trigger, runtime=runtime)
        self.reporter = Reporter(
            plane,
            loop.post,
            topic_ids=lambda: {topic: info.id for topic, info in admin.topics(loop.state.topic_ids).items()},
            runtime=runtime,
        )
        ends = StallWatch(admin, loop.reading, lambda: loop.troubles.partitions, runtime)
        self.resolver = Resolver(
            config, plane, admin, self.storage, loop.post, limits=limit, ends=ends, runtime=runtime
        )
        self.observer = Observer(plane, limit, loop.post, runtime=runtime)
        self.watchdog = Watchdog(
            plane,
            limit,
            loop.post,
            since=since,
            metrics=Metrics(loop, self.submitter, self.resolver, runtime).take,
            standstill=lambda: _standstill(self, limit, runtime.now()),
            superseded_code=CODES[ExitKind.SUPERSEDED],
            runtime=runtime,
            end_process=edges.end_process,
        )

    def _start(self, properties: Mapping[str, Any], stop: Signal) -> Consumer:
        """Every thread but the event thread, which is the caller's; the consumer comes last."""
        loop, watchdog = self.loop, self.watchdog
        loop.post(sg.Lease(True))

        def leave_when_asked() -> bool:
            if not self.runtime.wait(stop, 60.0):
                return True
            loop.post(sg.Stop())
            return False

        threads = (self.submitter, self.submitter.closer, self.reporter, self.resolver, self.observer, watchdog)
        for thread in (*threads, watchdog.renewer, Repeated("stop", leave_when_asked, self.runtime)):
            self.runtime.start(thread)
        consumer = self._patiently(lambda: self._consumer(properties), stop)
        loop.begin(
            consumer,
            self.submitter,
            self.reporter,
            self.resolver,
            self.observer,
            lambda consumer: consumer.subscribe(self.config.topics or (), pattern=self.config.pattern),
            lambda: self.edges.nudge(properties, self.config),
        )
        return consumer

    def _consumer(self, properties: Mapping[str, Any]) -> Consumer:
        """To wait for a token is progress of the event thread, which this is."""
        self.loop.progress = self.runtime.now()
        try:
            return self.edges.consumer(properties)
        except errors.ServiceUnavailable as error:
            self.loop.troubles.note(error)
            raise

    def _live(self) -> sg.Exit:
        """Be the event thread until its end, and end the others."""
        try:
            self.runtime.repeat(self.loop)
            ended = self.loop.exit or sg.Exit(ExitKind.FAILED, "no exit")
        except Exception as error:
            _log.exception("the event thread failed")
            ended = sg.Exit(ExitKind.FAILED, f"{type(error).__name__}: {error}")
        finally:
            self.watchdog.doom()
            for thread in (self.submitter, self.observer, self.resolver, self.reporter):
                thread.end()
        _log.info("%s ends: %s: %s", self.name, ended.kind, ended.why)
        return ended

    def _leave(self, consumer: Consumer, admin: Admin, ended: sg.Exit, properties: Mapping[str, Any]) -> int:
        """Leave the control plane and Kafka; the exit code. Every client ends here, and none is left to Python's way out: where one hangs
        the watchdog ends the process, and after a clean end its host."""
        watchdog = self.watchdog
        if ended.kind is ExitKind.CLEAN:
            watchdog.end()
        # An isolated member reaches no control plane; leaving the group is what matters.
        superseded = not watchdog.isolated and self._farewell(ended)
        code = CODES[ExitKind.SUPERSEDED if superseded else ended.kind]
        watchdog.doom(code)
        consumer.close()
        if watchdog.isolated or (ended.kind is ExitKind.CLEAN and self.loop.state.scaled_in):
            self.edges.depart(properties, self.config)
        if all(self.runtime.ended(asking, 1.0) for asking in (self.resolver, self.reporter)):
            admin.close()
        watchdog.end()
        return code

    def _farewell(self, ended: sg.Exit) -> bool:
        """Report the end to SQL, so that it need not wait for the lease; whether a newer process of this name has taken over. Whatever a
        superseded process failed of, it is not started again: it would supersede the rightful one (SPEC G3, R7)."""
        try:
            if ended.kind is ExitKind.CLEAN:
                self.plane.leave()
            elif ended.kind is ExitKind.FAILED:
                self.plane.fail(ended.why)
        except errors.Superseded:
            return True
        except errors.Lost:
            return False
        except errors.CrkafkaError as error:
            _log.warning("saying goodbye: %s", error)
        return False


def _standstill(member: MemberProcess, limit: Limits, now: float) -> float:
    """For how long a thread has made no progress (SPEC G3). Closing and dropping segments has the cut's deadline. A database that answers
    the renewer, but not another thread for a whole lease, has lost that thread's connection without a word."""
    return max(
        member.loop.standstill(),
        member.submitter.stuck_for(now),
        member.submitter.tidying_for(now) - limit.drain_timeout,
        member.observer.stuck_for(now) - limit.session_timeout,
        member.reporter.stuck_for(now) - limit.session_timeout,
    )


def main(stdin: TextIO = sys.stdin) -> int:
    """`python -m crkafka_core.member.main`: the configuration and the name come as one line of JSON on standard input. With `leash` in it,
    the host keeps the pipe open for as long as it wants this process (`leash.py`)."""
    order = json.loads(stdin.readline())
    logs.begin(order.get("log_level", "INFO"), order.get("log_format", "text"), who=order["name"])
    stop = threading.Event()
    try:
        config = RegionConfig.from_json(order["config"])
        hook = partial(pkgutil.resolve_name(order["hook"]), order["hook_argument"]) if order.get("hook") else None
        if order.get("leash"):
            leash.hold(stdin.fileno(), config, stop)
        else:
            leash.on_signal(stop.set)
        return run_member(config, order["name"], host=order.get("host", ""), stop=stop, hook=hook)
    except errors.CrkafkaError as error:
        _log.error("%s", error)
        return CODES[ExitKind.FAILED]


def leave(code: int) -> NoReturn:
    """End the process at once: Python's own way waits for clients' threads and destructors, which can hang, and nothing watches it.
    Everything is reported and closed by now. A process that hung there would never be started again."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    try:
        _code = main()
    except BaseException:
        _log.critical("this process ends", exc_info=True)
        _code = CODES[ExitKind.FAILED]
    leave(_code)
