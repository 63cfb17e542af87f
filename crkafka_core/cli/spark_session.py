"""Spark for a verb: one line says that it starts; what Java writes goes to a log that is named only when something fails."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

from crkafka_core.cli.progress import Say
from crkafka_core.config import RegionConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_session(config: RegionConfig, say: Say, *, then: str = "") -> SparkSession:
    """The session that the configuration names; `then`: what is done with it, where nobody else says so."""
    from crkafka_core.spark import java_log, session

    jars = session.fetches(config)
    say("Spark starts" + (f"; it fetches the jars of {' and '.join(jars)} first" if jars else ""))
    interrupt = signal.getsignal(signal.SIGINT)
    opened = session.open_session(config, log=java_log.path())
    if threading.current_thread() is threading.main_thread():
        # PySpark's own handler asks Java over the connection whose answer it interrupts, and reads that one's answer as an error.
        signal.signal(signal.SIGINT, interrupt)
    if then:
        say(then)
    return opened
