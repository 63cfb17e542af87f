"""Many loops on one thread and on simulated time: who waits gives way, and a seeded scheduler says who goes on when.

Each loop runs in a greenlet. It gives way wherever the real one would wait or could be overtaken: at every call to SQL, Kafka or
the storage, before it reaches them and before it hears of the answer, and between two turns. How long that takes is drawn from the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import Any

from greenlet import getcurrent, greenlet

from crkafka_core.loop import Loop, Signal, Turns
from crkafka_core.member.event_loop import EventLoop
from crkafka_core.member.reporter import Reporter
from crkafka_core.member.resolver import Resolver
from crkafka_core.member.submitter import Closer, Submitter
from crkafka_core.member.watchdog import Watchdog

WAITS_BY_ITSELF: dict[type, tuple[float, Callable[[Any], bool]]] = {
    EventLoop: (0.05, lambda loop: loop._may_poll() or not loop.inbox.empty()),
    Submitter: (1.0, lambda loop: loop._task is not None or loop._over or loop._ready()),
    Closer: (5.0, lambda loop: not loop.todo.empty()),
    Reporter: (5.0, lambda loop: loop._effect is not None or not loop._todo.empty()),
    Resolver: (5.0, lambda loop: not loop._questions.empty()),
    Watchdog: (0.4, lambda loop: loop._over.is_set()),
}
"""Loops whose turn waits inside the process: their longest wait, and whether there is something to do. All others wait by the runtime."""


class Killed(BaseException):
    """What a process was at when it died: it is unwound, and nothing of it reaches anybody."""


class Owner:
    """A simulated operating-system process: it can be killed, stopped, and cut off."""

    copy = False
    """It works for a copy of the control plane."""
    fault = ""
    """Of the plan, the kind for which it asks SQL."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.stalled_until = 0.0
        self.sql_cut_until = 0.0
        self.tasks: list[Task] = []
        """Those that are not done."""

    @property
    def away_until(self) -> float:
        """Before, it does not reach Kafka."""
        return float("inf") if self.dead else self.stalled_until


class Task:
    __slots__ = ("busy", "done", "held_until", "loop", "name", "owner", "run", "ticket")

    def __init__(self, owner: Owner, name: str, loop: object) -> None:
        self.owner = owner
        self.name = name
        self.loop = loop
        self.run: greenlet
        self.ticket = 0
        self.busy: Callable[[], bool] | None = None
        """While it idles: whether there is something to do after all."""
        self.held_until = 0.0
        """This loop alone hangs."""
        self.done = False


class Scheduler:
    """Simulated time, and the tasks that wait for their moment."""

    def __init__(self, rng: Random, now: float) -> None:
        self.rng = rng
        self.now = now
        self.steps = 0
        self.current: Task | None = None
        self.slow = 1.0
        """How slow everything is that takes no stated time."""
        self.sluggish = ""
        """The name of loops that are slower still."""
        self._heap: list[tuple[float, int, Task]] = []
        self._hub = getcurrent()
        self._tickets = 0
        self._doomed: list[Owner] = []
        self._random = rng.random

    # By the hub

    def spawn(self, owner: Owner, name: str, work: Callable[[], None], loop: object = None) -> Task:
        task = Task(owner, name, loop)

        def run() -> None:
            try:
                if not owner.dead:
                    work()
            except Killed:
                pass
            except Exception:
                if not owner.dead:
                    raise
            finally:
                task.done = True
                task.busy = None
                owner.tasks = [other for other in owner.tasks if other is not task]

        task.run = greenlet(run, self._hub)
        owner.tasks.append(task)
        self.wake(task)
        return task

    def step(self) -> None:
        """The next of all tasks goes on, until it gives way."""
        while self._doomed:
            self._unwind(self._doomed.pop())
        at, ticket, task = heappop(self._heap)
        owner = task.owner
        if ticket != task.ticket or owner.dead:
            return
        if owner.stalled_until > at or task.held_until > at:
            self._push(task, max(owner.stalled_until, task.held_until) + 0.01 * self._random())
            return
        if at > self.now:
            self.now = at
        self.steps += 1
        self.current, task.busy = task, None
        task.run.switch()
        self.current = None
        if not owner.dead:
            for other in owner.tasks:  # as `look` does; this one has just looked itself
                busy = other.busy
                if busy is not None and other is not task and busy():
                    self.wake(other)

    def look(self, owner: Owner) -> None:
        """Wake those of its idle tasks that have something to do."""
        for task in owner.tasks:
            busy = task.busy
            if busy is not None and busy():
                self.wake(task)

    def wake(self, task: Task) -> None:
        task.busy = None
        self._push(task, self.now + self.latency(task))

    def _push(self, task: Task, at: float) -> None:
        self._tickets = task.ticket = ticket = self._tickets + 1
        heappush(self._heap, (at, ticket, task))

    def latency(self, task: Task | None = None) -> float:
        """Mostly short, now and then long: so that everybody overtakes everybody some time."""
        chance = self._random()
        if chance > 0.985:
            return self.slow * self._random()
        sluggish = task is not None and task.name == self.sluggish
        return self.slow * (0.1 if sluggish else 0.02) * chance * chance

    def kill(self, owner: Owner) -> None:
        """From now on nothing of it reaches anybody."""
        if not owner.dead:
            owner.dead = True
            self._doomed.append(owner)

    def _unwind(self, owner: Owner) -> None:
        for task in owner.tasks:
            if task.run:
                task.run.throw(Killed)
        owner.tasks = []

    def close(self, owners: list[Owner]) -> None:
        """End what is left of all of them."""
        for owner in owners:
            owner.dead = True
            self._unwind(owner)

    # By a task

    def sleep(self, seconds: float) -> None:
        task = self.current
        if task is None or task.owner.dead or getcurrent() is not task.run:
            raise Killed  # a process that is being unwound
        self._tickets = task.ticket = ticket = self._tickets + 1
        heappush(self._heap, (self.now + seconds, ticket, task))
        self._hub.switch()
        if task.owner.dead:
            raise Killed

    def give_way(self) -> None:
        self.sleep(self.latency(self.current))

    def idle(self, seconds: float, busy: Callable[[], bool]) -> None:
        """Sleep, cut short once there is something to do."""
        task = self.current
        if task is None or task.owner.dead:
            raise Killed
        if busy():
            self.give_way()
            return
        task.busy = busy
        self.sleep(seconds)


class SimulatedSignal:
    """An event that is waited for by the runtime only."""

    def __init__(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def wait(self, timeout: float | None = None) -> bool:
        return self._set


class SimulatedRuntime:
    """`crkafka_core.loop.Runtime` for one process."""

    def __init__(self, scheduler: Scheduler, owner: Owner, unique: Callable[[], str]) -> None:
        self._scheduler = scheduler
        self._owner = owner
        self.unique = unique

    def now(self) -> float:
        return self._scheduler.now

    def sleep(self, seconds: float) -> None:
        self._scheduler.sleep(seconds + self._scheduler.latency())

    def wait(self, signal: Signal, seconds: float) -> bool:
        is_set = signal.is_set
        if not is_set():
            self._scheduler.idle(seconds, is_set)
        return is_set()

    def start(self, loop: Loop) -> None:
        self._scheduler.spawn(self._owner, loop.name, lambda: self.repeat(loop), loop)

    def repeat(self, loop: Turns) -> None:
        waits = WAITS_BY_ITSELF.get(type(loop))
        if waits is None:
            self._repeat(loop)
            return
        longest, busy = waits[0], partial(waits[1], loop)
        turn: Callable[[float], bool] = loop.turn  # type: ignore[assignment]
        idle = self._scheduler.idle
        while turn(0.0):
            idle(longest, busy)

    def _repeat(self, loop: Turns) -> None:
        """Others move in each turn, by what it asks and waits for; between two turns only if they did not."""
        scheduler, before = self._scheduler, self._scheduler.steps
        while loop.turn():
            if scheduler.steps == before:
                scheduler.give_way()
            before = scheduler.steps

    def ended(self, loop: Loop, patience: float | None) -> bool:
        task = next((t for t in self._owner.tasks if t.loop is loop), None)
        if task is not None and not task.done:
            self._scheduler.idle(3600.0 if patience is None else patience, lambda: task.done)
        return task is None or task.done
