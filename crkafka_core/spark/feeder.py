"""Keeps tables fresh whose rows Spark makes, by a warm session of the host, or of a process beside it (SPEC K6, A7).

`python -m crkafka_core.spark.feeder` is that process, for hosts without Spark.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from pyspark.sql import SparkSession

from crkafka_core import logs
from crkafka_core.config import RegionConfig
from crkafka_core.control import Reader
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.road import MEANS
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import tables as plane
from crkafka_core.plane.passes import AT_ONCE
from crkafka_core.region.feeder import Joining
from crkafka_core.region.keeper import Keeper, Tell, Way
from crkafka_core.spark import java_log, launch, location, tables
from crkafka_core.still import starting, telling


class BySpark(Way):
    """A keeper's way of writing, by a Spark session."""

    lease, pause = plane.SPARK_FEEDER, 0.1

    def __init__(
        self, region: Handle, session: Callable[[], SparkSession], *, news: Tell, why_not: Callable[[], str] = str
    ) -> None:
        """`session` is called once, when a table is due; `why_not` tells what hinders jobs now; `news` takes messages on a long write."""
        self._region, self._session, self._news, self._why_not = region, session, news, why_not
        self._left = region.config.left_to_others
        self._joining = Joining(region, MEANS, news)
        self._spark: SparkSession | None = None
        self._cancelled = threading.Event()
        self._tag = f"crkafka-feeder-{uuid.uuid4().hex[:12]}"

    @property
    def warm(self) -> bool:
        """Whether there is a session."""
        return self._spark is not None

    def why_not(self) -> str:
        return self._why_not()

    def families(self, reader: Reader, row: Region) -> list[list[Table]]:
        return plane.fed_by_spark(reader, row, self._left)

    def open(self) -> None:
        if self._spark is None:
            self._spark = self._session()

    def over(self) -> str:
        return "" if self._spark is None else launch.over(self._spark)

    def fence(self, name: str) -> None:
        with self._writing(name) as spark:
            tables.fence(spark, self._region, name)

    def advance(self, name: str) -> None:
        with self._writing(name) as spark:
            done = tables.advance(spark, self._region, name, limit=AT_ONCE)
        if done is not None:
            self._joining.committed(name)

    def between(self) -> None:
        self._joining.begin()

    @contextmanager
    def _writing(self, name: str) -> Iterator[SparkSession]:
        """Mark the jobs of a write, and report one that takes long."""
        assert self._spark is not None
        location.tag_jobs(self._spark, self._tag)

        def still(seconds: float) -> str:
            why = ""
            with suppress(CrkafkaError):  # the control plane may be away
                why = self.why_not()
            return f"table {name}: Spark is still writing, for {seconds:.0f} s now" + (f": {why}" if why else "")

        def news(text: str) -> None:
            if not self._cancelled.is_set():
                self._news(text)

        with telling(news, still):
            yield self._spark

    def explained(self, error: BaseException) -> str:
        return str(launch.explained(error) or "") if isinstance(error, Exception) else ""

    def cancel(self) -> float:
        if self._spark is not None and not launch.gone():
            self._cancelled.set()
            location.cancel_jobs(self._spark, self._tag)
        return 10.0


def main() -> int:
    """The process: a pipe brings the region's configuration and the token of its lease; at the end of the pipe it ends."""
    from crkafka_core.region import Region
    from crkafka_core.spark.session import open_session

    config, token = RegionConfig.from_json(sys.stdin.readline()), sys.stdin.readline().strip()
    logs.about(config.region)
    logs.begin(logs.level("WARNING"), logs.form())
    logs.in_one_voice()
    logging.getLogger("crkafka_core.region.keeper").setLevel(logging.ERROR)  # its host reports the rest

    def tell(text: str, good: bool = False) -> None:
        print(json.dumps([text, good]), flush=True)

    def news(text: str) -> None:
        tell(text, True)

    with Region.open(config) as region:
        way = BySpark(region, lambda: starting(news, lambda: open_session(config, log=java_log.path())), news=news)
        keeper = Keeper(region, way, tell=tell, token=token)
        keeper.begin()
        hung_up = threading.Event()

        def leash() -> None:
            sys.stdin.read()
            hung_up.set()

        threading.Thread(target=leash, name="leash", daemon=True).start()
        while keeper.is_alive() and not hung_up.wait(0.2):
            launch.cap_log()
        if way.warm:
            keeper.end()
        else:  # the host ends during Spark's start, and does not wait for it; the next one writes the tables
            keeper.abandon()
            java_log.remove()
            os._exit(0)
    return 0 if hung_up.is_set() else 1


if __name__ == "__main__":
    sys.exit(main())
