"""What this member has reached of bounded runs (SPEC V3)."""

from __future__ import annotations

from collections.abc import Mapping

from crkafka_core.member.reporter import Reporter
from crkafka_core.member.submitter import Submitter
from crkafka_core.model.desired import Desired
from crkafka_core.model.offsets import TP
from crkafka_core.protocol import signals as sg
from crkafka_core.protocol.state import State


class Aims:
    """Belongs to the event thread."""

    def __init__(self, submitter: Submitter, reporter: Reporter) -> None:
        self._submitter, self._reporter = submitter, reporter
        self._reached: dict[str, tuple[sg.Reach, Desired]] = {}
        """Token of a bounded run → the last report of it, and the state of SQL that it was made for."""

    def look(self, state: State, ends: Mapping[TP, int]) -> None:
        """Report what is reached: submitted up to it, or met the end with nothing left in the queue. `ends`: as they were met."""
        d = state.desired
        if d is None or not d.aims or not state.submits:
            return
        nexts, idle = self._submitter.nexts(), self._submitter.idle
        met = ends if idle else {}
        for aim in d.aims:
            reached = frozenset(tp for tp, end in aim.ends if tp in nexts and max(nexts[tp], met.get(tp, -1)) >= end)
            reach = sg.Reach(aim.token, aim.at, state.epoch, reached)
            if reached and reached != aim.reached and (reach, d) != self._reached.get(aim.token):
                self._reached[aim.token] = reach, d
                self._reporter.do(reach)
