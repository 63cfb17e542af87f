"""Joins small files of tables in the background of their keeper, at low priority (SPEC K6)."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from crkafka_core.lake import compact
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.road import Means
from crkafka_core.loop import Repeated
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.redaction import redact_values
from crkafka_core.plane import tables

_log = logging.getLogger(__name__)
EVERY = 25
"""Commits to a table between two looks at its files."""
_NICENESS = 15


class Joining:
    """One table after another, on a thread that ends when none is due. Without a lease: no commit of rows waits for it."""

    def __init__(self, region: Handle, means: Means, tell: Callable[[str], None]) -> None:
        self._region, self._means, self._tell = region, means, tell
        self._commits: Counter[str] = Counter()
        """Table → commits since the last look."""
        self._left: set[str] = set()
        """Files that cannot be joined."""
        self._over = False
        self._loop: Repeated | None = None

    def committed(self, name: str) -> None:
        """Count a commit of rows to the table and those of its shape."""
        self._commits[name] += 1

    def begin(self) -> None:
        """Start the thread if a table is due and none runs."""
        runtime = self._region.runtime
        if max(self._commits.values(), default=0) >= EVERY and (self._loop is None or runtime.ended(self._loop, 0.0)):
            self._loop = Repeated("joins files", self._turn, runtime)
            runtime.start(self._loop)

    def end(self, patience: float) -> None:
        """Make no further file; wait so many seconds for the one that is being made."""
        self._over = True
        if self._loop is not None:
            self._region.runtime.ended(self._loop, patience)

    def _turn(self) -> bool:
        with suppress(OSError, AttributeError):  # of this thread alone; not on every system
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        name = max(self._commits, key=lambda each: self._commits[each])
        if self._commits[name] < EVERY or self._over:
            return False
        self._commits[name] = 0
        try:
            for table in self._region.plane.read(lambda reader, _: tables.siblings(reader, tables.of(reader, name))):
                done = compact.join_crowds(
                    self._region, table.name, self._left, go_on=lambda: not self._over, logs=self._means.logs
                )
                if done.merged:
                    _log.info("table %s: %s", table.name, compact.in_words(done))
        except Exception as error:
            ours = isinstance(error, CrkafkaError)
            if not ours:
                _log.exception("table %s: small files", name)
            why = f"{'' if ours else f'{type(error).__name__}: '}{error}"
            self._tell(redact_values(f"table {name}: its small files are not joined: {why}"))
        return True
