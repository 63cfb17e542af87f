"""Resources of a verb: the control plane alone, without Kafka and Spark; a Spark session, at its first use."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from crkafka_core.cli.output import Say
from crkafka_core.plane import transact
from crkafka_core.plane.transact import ControlPlane

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from crkafka_core.config import RegionConfig
    from crkafka_core.config.address import Address
    from crkafka_core.lake.means import Maker
    from crkafka_core.lake.pool import Pool
    from crkafka_core.lake.road import Means


@contextmanager
def control_plane(config: RegionConfig | Address) -> Iterator[ControlPlane]:
    """The region's control plane, closed at the end of the block."""
    store = transact.open_store(config.resolved_control_plane())
    try:
        yield ControlPlane(store, config.region)
    finally:
        store.close()


def means(config: RegionConfig, say: Say, *, then: str = "", pool: Pool | None = None) -> Means:
    """The means to write tables; Spark starts when it has rows to make. `then` is the step that follows its start."""
    from crkafka_core.lake.road import Means

    session = lazy_session(config, say, then=then)

    def frames(*given: Any) -> Maker:
        from crkafka_core.spark.frame_shape import FrameShape

        return FrameShape(session(), *given)

    return Means(pool=pool, frames=frames)


def lazy_session(config: RegionConfig, say: Say, *, then: str = "") -> Callable[[], SparkSession]:
    """Opens the configured session at the first call, and returns it at later ones.

    `then` is the step that follows, for callers that name none. What Java writes goes to a log, which is named only if the verb fails.
    """

    @cache
    def opened_session() -> SparkSession:
        from crkafka_core.spark import java_log, session

        jars = session.fetches(config)
        say("Spark starts" + (f"; it fetches the jars of {' and '.join(jars)} first" if jars else ""))
        interrupt = signal.getsignal(signal.SIGINT)
        opened = session.open_session(config, log=java_log.path())
        if threading.current_thread() is threading.main_thread():
            # PySpark's handler asks Java over the connection whose answer it interrupts, and reads that answer as an error.
            signal.signal(signal.SIGINT, interrupt)
        if then:
            say(then)
        return opened

    return opened_session
