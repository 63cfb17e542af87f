"""Spark for a verb: starts at the first use, with one line of progress; what Java writes goes to a log, named only if the verb fails."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from crkafka_core.cli.progress import Say
from crkafka_core.config import RegionConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def lazy_session(config: RegionConfig, say: Say, *, then: str = "") -> Callable[[], SparkSession]:
    """Opens the configured session at the first call, and returns it at later ones; `then` is the next step, if the caller names none."""

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
