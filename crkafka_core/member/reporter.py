"""The reporter: carries the machine's SQL effects out, in order, through outages of SQL (fault 37)."""

from __future__ import annotations

import logging
import queue
import random
from collections.abc import Callable, Mapping

from crkafka_core.loop import THREADS, Loop, Runtime
from crkafka_core.member.submitter import Taken
from crkafka_core.model.errors import CrkafkaError, SchemaError, ServiceUnavailable
from crkafka_core.plane import advance, contributions, cuts, epochs, events, goals, members, merging
from crkafka_core.plane.member_plane import MemberPlane
from crkafka_core.protocol import signals as sg

_log = logging.getLogger(__name__)


class Reporter(Loop):
    """Every effect is idempotent, so it is tried until SQL answers."""

    def __init__(
        self,
        plane: MemberPlane,
        post: Callable[[sg.Event], None],
        *,
        topic_ids: Callable[[], Mapping[str, str]] = dict,
        runtime: Runtime = THREADS,
    ) -> None:
        """`topic_ids`: the current ids of the topics that this member reads, as far as Kafka gives them."""
        super().__init__("reporter", runtime)
        self._plane, self._post = plane, post
        self._todo: queue.SimpleQueue[sg.Effect | None] = queue.SimpleQueue()
        self._topic_ids = topic_ids
        self._ids: Mapping[str, str] = {}
        self._over = False
        self._effect: sg.Effect | None = None
        self._failures = 0
        self._busy_since: float | None = None

    def stuck_for(self, now: float) -> float:
        """Seconds for which one try has hung in the database, which answers others (SPEC G3)."""
        since = self._busy_since
        return 0.0 if since is None else now - since

    def do(self, effect: sg.Effect) -> None:
        self._todo.put(effect)

    def end(self) -> None:
        self._over = True
        self._todo.put(None)

    def turn(self, patience: float | None = None) -> bool:
        """One try of one effect: the next, or again the one that SQL has not answered."""
        if self._effect is None:
            try:
                self._effect = self._todo.get(timeout=patience)
            except queue.Empty:
                return True
            self._failures = 0
        if self._effect is None or self._over:
            return False
        if self._try(self._effect):
            self._effect = None
        return True

    def _try(self, effect: sg.Effect) -> bool:
        """Try once; whether the effect is done, or refused for good."""
        try:
            self._busy_since = self._runtime.now()
            self._carry_out(effect)
        except (ServiceUnavailable, SchemaError) as error:  # tables may be missing while a dump is restored
            self._failures += 1
            if self._failures in (1, 10, 100):
                _log.warning("%s: %s", type(effect).__name__, error)
            self._busy_since = None
            self._runtime.sleep(min(0.05 * 2 ** min(self._failures, 10), 2.0) * random.uniform(0.5, 1.0))
            return False
        except CrkafkaError as error:
            _log.info("%s was refused: %s", type(effect).__name__, error)
            if isinstance(effect, sg.Contribute):
                self._post(sg.NotContributed())
            elif isinstance(effect, sg.Report):
                self._post(sg.NotReported(effect))
        except Exception as error:
            _log.exception("%s failed", type(effect).__name__)
            self._post(sg.Broken(f"{type(effect).__name__}: {type(error).__name__}: {error}"))
        finally:
            self._busy_since = None
        return True

    def _carry_out(self, effect: sg.Effect) -> None:
        """Each is one transaction, but for those with a method of their own."""
        do, name, incarnation = self._plane.do, self._plane.name, self._plane.incarnation
        me, who = (name, incarnation), {"member": name, "incarnation": incarnation}
        match effect:
            case sg.Report(epoch, base, generation, held):
                do(lambda tx: members.report(tx, *me, epoch=epoch, base=base, generation=generation, held=held))
                self._post(sg.Reported(effect))
                do(advance.advance)
            case sg.Save():
                # Only the id shows that a topic was recreated since its start (docs/clients.md C-R9). The answer to an earlier cut does not
                # count for this one, whether or not Kafka answers now.
                self._ids = {}
                try:
                    self._ids = self._topic_ids()
                except ServiceUnavailable as error:
                    _log.warning("looking at topic ids: %s", error)
            case sg.Contribute():
                self._contribute(effect)
            case sg.Withdraw(why):
                do(lambda tx: members.withdraw(tx, *me, why=why))
            case sg.AskToLeave(epoch):
                do(lambda tx: members.ask_to_leave(tx, *me), epoch=epoch)
            case sg.GiveUp(cut, why, cause):
                do(lambda tx: merging.give_up(tx, cut, **who, why=f"{name}: {why}", cause=cause))
            case sg.AskReset(epoch, why, cause):
                do(lambda tx: merging.failed(tx, cause, f"{name}: {why}", member=name, epoch=epoch))
            case sg.Halt(epoch, why):
                do(lambda tx: epochs.halt(tx, why, member=name), epoch=epoch)
            case sg.Reach(token, begun, epoch, reached):
                do(lambda tx: goals.reach(tx, token, begun, **who, epoch=epoch, reached=reached))
            case sg.Tell(kind, text):
                do(lambda tx: events.log(tx, kind, text, by=name))
            case sg.AskCut(epoch, head):
                do(lambda tx: cuts.ask(tx, **who, epoch=epoch, head=head))
            case _:
                raise AssertionError(f"no effect on SQL: {effect}")

    def _contribute(self, effect: sg.Contribute) -> None:
        taken = effect.payload
        assert isinstance(taken, Taken)
        part = contributions.Part(
            checkpoint=effect.cut.id,
            member=self._plane.name,
            incarnation=self._plane.incarnation,
            epoch=effect.epoch,
            base=effect.base,
            generation=effect.generation,
            members=effect.cut.members,
            topic_ids={topic: self._ids.get(topic) or at_start for topic, at_start in effect.topic_ids.items()},
            offsets=taken.offsets,
            segments=taken.segments,
            drain_ms=taken.drain_ms,
            leader_epochs=taken.leader_epochs,
        )
        self._plane.do(lambda tx: merging.hand_in(tx, part))
        self._post(sg.Contributed(effect.cut.id))
