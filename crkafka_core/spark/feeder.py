"""Keeps tables fresh that only Spark writes: shaped and typed ones, and those in catalogs; as soon as a checkpoint is merged (SPEC K6, A7).

One per region, by a lease, with one warm session. The tables of one shape are written together, each family in a thread of its own:
one that hangs keeps no other back. `python -m crkafka_core.spark.feeder` is the same as a process, for hosts without Spark.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress

from pyspark.sql import SparkSession

from crkafka_core import logs
from crkafka_core.config import RegionConfig
from crkafka_core.control import Reader
from crkafka_core.holder import holder
from crkafka_core.lake.handle import Handle
from crkafka_core.model import rows
from crkafka_core.model.errors import CrkafkaError, LeaseHeld
from crkafka_core.model.redaction import redact_values
from crkafka_core.plane import tables as plane
from crkafka_core.plane.passes import AT_ONCE
from crkafka_core.region.feeder_process import Tell
from crkafka_core.region.lease import DriverLease, free
from crkafka_core.spark import java_log, launch, location, tables
from crkafka_core.still import starting, telling

_log = logging.getLogger(__name__)
_PATIENCE = 0.5
"""Seconds after which it looks again though nothing was told."""
_SOON = 0.1
"""The same while a table is written."""
_LONGEST = 30.0
"""Seconds between two tries of a table that fails."""
LAST = 45.0
"""Seconds at its end for what is merged by then."""


class SparkFeeder:
    """Threads: its own, one for each table or family that is written at this moment, and one that renews its lease."""

    def __init__(
        self,
        region: Handle,
        session: Callable[[], SparkSession],
        *,
        tell: Tell = lambda _: None,
        news: Tell | None = None,
        why_not: Callable[[], str] = lambda: "",
        token: str = "",
    ) -> None:
        """`session` is asked once, when there is something to write; `why_not` says why there can be no job now.

        `tell` hears what keeps a table back; `news`, or else `tell`, of a write that takes long. `token`: of a lease that its host
        has taken for it already.
        """
        self._region, self._session, self._tell, self._why_not = region, session, tell, why_not
        self._news, self._token = news or tell, token
        self._left = region.config.left_to_others
        self._spark: SparkSession | None = None
        self._lease: DriverLease | None = None
        self._over, self._cancelled = threading.Event(), threading.Event()
        self._work: dict[str, threading.Thread] = {}
        self._failed: dict[str, tuple[int, float]] = {}
        """Family → failures in a row, and when to try again."""
        self._said: dict[str, str] = {}
        self._tag = f"crkafka-feeder-{uuid.uuid4().hex[:12]}"
        self._thread = threading.Thread(target=self._run, name="spark feeder", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Bring in what is merged by now, for at most `LAST` seconds; jobs that hang are cancelled."""
        self._over.set()
        self._thread.join(LAST + 10)
        running = [thread for thread in self._work.values() if thread.is_alive()]
        if running and self._spark is not None and not launch.gone():
            self._tell("a table is still written as this host ends: it stops there, and the next host goes on")
            self._cancelled.set()
            location.cancel_jobs(self._spark, self._tag)
            for thread in running:
                thread.join(10)

    def abandon(self) -> None:
        """Without waiting for Spark's start: others may write the tables at once."""
        self._over.set()
        if self._lease is not None:
            self._lease.let_go()

    def ended(self) -> bool:
        """Whether it has given up, since Spark is gone."""
        return not self._thread.is_alive()

    @property
    def warm(self) -> bool:
        """Whether there is a session."""
        return self._spark is not None

    # -- on its own thread

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                if self._wanted():
                    self._feed()
            except LeaseHeld:
                self._over.wait(2.0)
            except CrkafkaError as error:
                self._say("", str(error))
                self._over.wait(5.0)
            except Exception as error:  # a thread that died in silence would feed nothing any more
                _log.exception("spark feeder")
                self._say("", f"{type(error).__name__}: {error}")
                self._over.wait(5.0)

    def _wanted(self) -> bool:
        """Whether there is a table to write, and a session could."""
        version, families = self._region.plane.read(
            lambda reader, row: (row.version, plane.fed_by_spark(reader, row, self._left))
        )
        if not families:
            self._region.plane.wait(version, 1.0)
            return False
        why = self._why_not()
        self._say("", why)
        if why:
            self._over.wait(5.0)
        return not why

    def _feed(self) -> None:
        """With the lease, until the end. It is held while Spark starts: nobody else need start one for these tables."""
        free(self._region, plane.SPARK_FEEDER)
        data = plane.left_out(self._left)
        with DriverLease(self._region.plane, plane.SPARK_FEEDER, holder(), token=self._token, data=data) as lease:
            self._lease = lease
            if self._spark is None:
                self._spark = self._session()
            while not self._over.is_set() and not self._lost():
                lease.check()
                version, why = self._region.plane.read(lambda _, row: row.version), self._why_not()
                if why and not self._running():  # since `scale`, for example: others may write the tables meanwhile
                    return
                if why or not self._begin_what_is_due():
                    self._rest(version)
            limit = time.monotonic() + LAST
            while time.monotonic() < limit and not self._lost():
                if not self._begin_what_is_due(last=True) and not self._running():
                    return
                time.sleep(0.05)

    def _rest(self, version: int) -> None:
        """Until the region has changed or a write has ended: what was merged meanwhile is due then."""
        if running := [thread for thread in self._work.values() if thread.is_alive()]:
            running[0].join(_SOON)
        else:
            self._region.plane.wait(version, _PATIENCE)

    def _lost(self) -> bool:
        """Whether Spark is gone. Who started this one starts another, or others write the tables: the lease is let go."""
        why = "" if self._spark is None else launch.over(self._spark)
        if why:
            self._say("", why)
            self._over.set()
        return bool(why)

    def _running(self) -> bool:
        return any(thread.is_alive() for thread in self._work.values())

    def _begin_what_is_due(self, *, last: bool = False) -> bool:
        """Whether anything was begun. At the end what has failed is not tried again."""
        begun = False
        for names, owed in self._region.plane.read(lambda reader, row: due(reader, row, self._left)):
            key = names[0]
            running = self._work.get(key)
            failures, again = self._failed.get(key, (0, 0.0))
            if (running is not None and running.is_alive()) or time.monotonic() < again or (last and failures):
                continue
            self._work[key] = threading.Thread(target=self._write, args=(key, owed), name=f"feeds {key}", daemon=True)
            self._work[key].start()
            begun = True
        return begun

    # -- on the thread of a family

    def _write(self, key: str, owed: list[str]) -> None:
        """The fences that are owed, then what is merged."""
        spark = self._spark
        assert spark is not None
        try:
            location.tag_jobs(spark, self._tag)
            with telling(self._still, lambda s: self._still_writing(key, s)):
                for name in owed:
                    tables.fence(spark, self._region, name)
                tables.advance(spark, self._region, key, limit=AT_ONCE)
            self._failed.pop(key, None)
            self._said.pop(key, None)
        except LeaseHeld as held:
            if not free(self._region, f"writer:{key}"):
                self._fail(key, str(held), quiet=True)
        except CrkafkaError as error:
            self._fail(key, str(error))
        except Exception as error:
            said = launch.explained(error)
            if said is None:
                _log.exception("spark feeder: table %s", key)
            self._fail(key, str(said or f"{type(error).__name__}: {error}"))

    def _still_writing(self, key: str, seconds: float) -> str:
        why = ""
        with suppress(CrkafkaError):  # the control plane may be away
            why = self._why_not()
        return f"table {key}: Spark is still writing, for {seconds:.0f} s now" + (f": {why}" if why else "")

    def _still(self, text: str) -> None:
        if not self._cancelled.is_set():
            self._news(text)

    def _fail(self, key: str, text: str, *, quiet: bool = False) -> None:
        failures = self._failed.get(key, (0, 0.0))[0] + 1
        self._failed[key] = (failures, time.monotonic() + min(2.0 ** (failures - 1), _LONGEST))
        if not quiet and not self._cancelled.is_set():
            self._say(key, f"table {key}: {text}")

    def _say(self, key: str, text: str) -> None:
        """Once, until it is something else. Whoever hears it may not know the secrets of this process."""
        text = redact_values(text)
        if text and self._said.get(key) != text:
            _log.warning("spark feeder: %s", text)
            self._tell(text)
        self._said[key] = text


def due(reader: Reader, row: rows.Region, left: frozenset[str]) -> list[tuple[list[str], list[str]]]:
    """Families with something to write, by their names in the order in which they are written; and which of them owe a fence."""
    found = []
    for family in plane.fed_by_spark(reader, row, left):
        owed = [t.name for t in family if t.owes_fence]
        if owed or any(t.acknowledged < row.head for t in family):
            found.append(([t.name for t in family], owed))
    return found


def main() -> int:
    """As a process: the region's configuration and the token of its lease come by a pipe, and the end of it is the end."""
    from crkafka_core.region import Region
    from crkafka_core.spark.session import open_session

    config, token = RegionConfig.from_json(sys.stdin.readline()), sys.stdin.readline().strip()
    logs.about(config.region)
    logs.begin(logs.level("WARNING"), logs.form())
    logs.in_one_voice()
    _log.setLevel(logging.ERROR)  # what else it has to say its host tells

    def tell(text: str, good: bool = False) -> None:
        print(json.dumps([text, good]), flush=True)

    def news(text: str) -> None:
        tell(text, True)

    with Region.open(config) as region:

        def session() -> SparkSession:
            return starting(news, lambda: open_session(config, log=java_log.path()))

        feeder = SparkFeeder(region, session, tell=tell, news=news, token=token)
        feeder.begin()
        hung_up = threading.Event()

        def leash() -> None:
            sys.stdin.read()
            hung_up.set()

        threading.Thread(target=leash, name="leash", daemon=True).start()
        while not feeder.ended() and not hung_up.wait(0.2):
            launch.cap_log()
        if feeder.warm:
            feeder.end()
        else:  # a host that ends so soon does not wait for Spark's start; the next one, or others, write the tables
            feeder.abandon()
            java_log.remove()
            os._exit(0)
    return 0 if hung_up.is_set() else 1


if __name__ == "__main__":
    sys.exit(main())
