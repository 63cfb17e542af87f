"""The observer: reads the desired state whenever it changes, and does what anyone may do who finds it due (SPEC G4, G7)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from crkafka_core.control import Reader
from crkafka_core.loop import THREADS, Loop, Runtime
from crkafka_core.member.kafka_troubles import Lasting
from crkafka_core.model import limits as stored
from crkafka_core.model.desired import Desired
from crkafka_core.model.errors import CrkafkaError, NoSuchRegion, SchemaError, ServiceUnavailable, TooOld
from crkafka_core.model.limits import Limits
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Member, Region
from crkafka_core.plane import advance, member_plane, members, roster, settling
from crkafka_core.plane.member_plane import MemberPlane
from crkafka_core.protocol import signals as sg
from crkafka_core.protocol.settle import live, one_generation

_log = logging.getLogger(__name__)
RESTLESS = 0.1
"""How often a region that is not RUNNING is looked at, in seconds: deadlines and graces pass without a change in SQL."""
QUIET = 1.0
"""How often a RUNNING one is: generations and lost members."""
_HOLDING = frozenset({Phase.BIRTH, Phase.RUNNING, Phase.RESETTING})
"""Phases in which an unheld partition holds up the resume or the next cut. An open cut merges first."""
_UNHELD_LOOKS = 5
"""Reads of the unheld partitions within `unheld_timeout`; each reads all known partitions."""


class Observer(Loop):
    """The only reader of the desired state, so that snapshots come in order."""

    def __init__(
        self, plane: MemberPlane, limits: Limits, post: Callable[[sg.Event], None], *, runtime: Runtime = THREADS
    ) -> None:
        super().__init__("observer", runtime)
        self._plane, self._post = plane, post
        self._lease = limits.session_timeout
        self._losses = LossWatch(self._lease)
        self._unheld_timeout = limits.unheld_timeout
        self._unheld = Lasting()
        self._unheld_look_at = 0.0
        self._kicked = threading.Event()
        self._over = False
        self._last: Desired | None = None
        self._failures = 0
        self.progress = runtime.now()
        """When this thread last came round."""

    def stuck_for(self, now: float) -> float:
        """Seconds for which one look has hung in the database, which answers others (SPEC G3)."""
        return now - self.progress

    def kick(self) -> None:
        """Post a fresh snapshot even if nothing changed."""
        self._kicked.set()

    def end(self) -> None:
        self._over = True

    def turn(self, patience: float = QUIET) -> bool:
        """One look at SQL, then a wait for a change."""
        if self._over:
            return False
        self.progress = self._runtime.now()
        try:
            self._last = self._observe(patience)
            self._failures = 0
        except (NoSuchRegion, TooOld) as error:
            self._post(sg.Broken("the region was deleted" if isinstance(error, NoSuchRegion) else str(error)))
            return False
        except (ServiceUnavailable, SchemaError) as error:
            self._failures += 1
            if self._failures in (1, 10, 100):
                _log.warning("reading the desired state: %s", error)
            self._losses.blind()
            self._runtime.sleep(min(0.05 * 2 ** min(self._failures, 10), 1.0))
        except CrkafkaError as error:
            _log.warning("reading the desired state: %s", error)
            self._runtime.sleep(0.2)
        except Exception as error:  # a thread that died in silence would leave a member that knows nothing any more
            _log.exception("reading the desired state")
            self._post(sg.Broken(f"reading the desired state: {type(error).__name__}: {error}"))
            return False
        return True

    def _observe(self, patience: float) -> Desired:
        """Compares the whole: SQL that went back and on since has the old version with another content (SPEC G10)."""
        desired, due, peers, lease = self._plane.read(self._snapshot)
        # Who began before the limits were changed, or after that, has another one.
        self._losses.lease = max(self._lease, lease)
        self._plane.observed(desired)
        if desired != self._last or self._kicked.is_set():
            self._kicked.clear()
            self._post(sg.Observed(desired))
        if due:
            self.progress = self._runtime.now()
            self._plane.do(advance.advance)
        self._watch_unheld(desired, peers)
        for peer in self._losses.lost(peers, self._runtime.now()):
            if peer.name != self._plane.name:
                self._lose(peer)
        restless = desired.phase in (Phase.BIRTH, Phase.RESETTING, Phase.REWINDING, Phase.CUTTING)
        end = self._runtime.now() + min(RESTLESS if restless else QUIET, patience)
        while not self._over and not self._kicked.is_set() and (left := end - self._runtime.now()) > 0:
            self.progress = self._runtime.now()
            if self._plane.wait(desired.version, min(left, 0.25)) != desired.version:
                break
        return desired

    def _watch_unheld(self, desired: Desired, peers: list[Member]) -> None:
        """Force a rebalance where partitions of a stable group are unheld; only the first member by name does (SPEC G8)."""
        now = self._runtime.now()
        if now < self._unheld_look_at:
            return
        self._unheld_look_at = now + self._unheld_timeout / _UNHELD_LOOKS
        stable = bool(peers) and all(p.assignment_json and not p.member_epochs for p in peers) and one_generation(peers)
        mine = stable and desired.phase in _HOLDING and min(p.name for p in peers) == self._plane.name
        if not mine or not self._plane.read(settling.unheld):
            self._unheld.over()
        elif self._unheld.seconds(now) > self._unheld_timeout:
            self._unheld.over()
            self._post(sg.WronglyShared("some partitions are unheld"))

    def _lose(self, peer: Member) -> None:
        _log.warning("%s has not renewed its lease", peer.name)
        why, by = "its lease was not renewed", self._plane.name
        self._plane.do(lambda tx: members.lose(tx, peer.name, peer.incarnation, renewals=peer.renewals, by=by, why=why))

    def _snapshot(self, reader: Reader, region: Region) -> tuple[Desired, bool, list[Member], float]:
        rows = roster.all_of(reader)
        plane = self._plane
        desired = member_plane.desired(reader, region, rows, plane.name, plane.incarnation, plane.launched)
        peers = live(rows)
        return desired, advance.due(reader, region, peers), peers, stored.of(region).session_timeout


class LossWatch:
    """Sees renewal counters stand still, by its own monotonic clock while it reaches SQL itself (SPEC G4)."""

    def __init__(self, lease: float) -> None:
        self.lease = lease
        self._seen: dict[str, tuple[str, int, float]] = {}
        self._looked = float("-inf")

    def blind(self) -> None:
        """SQL was out of reach: counters seen before it do not count."""
        self._seen = {}

    def lost(self, peers: list[Member], now: float) -> list[Member]:
        """Members whose counter has stood still for a whole lease."""
        if now - self._looked > self.lease / 2:
            self.blind()  # a look that hung, or a process that was stopped: it did not see what happened meanwhile
        self._looked = now
        still = []
        for peer in peers:
            seen = self._seen.get(peer.name)
            if seen is None or seen[:2] != (peer.incarnation, peer.renewals):
                self._seen[peer.name] = (peer.incarnation, peer.renewals, now)
            elif now - seen[2] > self.lease:
                still.append(peer)
        return still
