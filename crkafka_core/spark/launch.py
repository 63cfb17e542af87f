"""Starts a classic Spark session whose settings no other user can read, and whose Java writes to our own log; reports why Java failed.

PySpark itself puts every setting on the command line of spark-submit, where `ps` shows it (docs/clients.md C-P9). Here they are in a
file that only this user can read, until Java has read it. Spark's own pages and logs hide secrets.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from crkafka_core import logs
from crkafka_core.config import secret
from crkafka_core.dev.errors import ServiceFailed
from crkafka_core.dev.find_java import find_java
from crkafka_core.spark import java_log

REDACTION = "spark.redaction.regex"
CLOSED = {"spark.ui.enabled": "false"}
"""Spark's pages ask for no login, and end jobs, which are members and tables: only a configuration turns them on."""
_log: Path | None = None


def start(settings: Mapping[str, str], *, hidden: Collection[str] = (), log: Path | None = None) -> SparkSession:
    """The session of this process. `hidden`: settings that Spark never shows. `log`: Java's output.

    A Java that runs already is handed the settings. A local master opens its ports for this machine only.
    """
    global _log
    logging.getLogger().addFilter(_is_not_py4js)
    settings = {REDACTION: redaction(hidden), **CLOSED, **settings}
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        builder = SparkSession.builder
        for key, value in settings.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()
    # spark-submit looks there and on the path only.
    os.environ.setdefault("JAVA_HOME", str(find_java().resolve().parents[1]))
    if settings.get("spark.master", "").startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # the only setting that Spark's pages go by
    _log = log
    # In a session of its own: a signal to our process group leaves Java running for the last cut (fault 81). It ends with its input.
    how: dict[str, Any] = {"start_new_session": True}
    with ExitStack() as until:
        until.enter_context(_submit_arguments(until.enter_context(_properties(settings))))
        if log is not None:
            log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            how["stdout"] = how["stderr"] = until.enter_context(os.fdopen(descriptor, "ab"))
        try:
            SparkContext(gateway=launch_gateway(popen_kwargs=how))  # type: ignore[no-untyped-call]
        except (PySparkRuntimeError, Py4JError) as error:
            raise failed(error, "did not start") from error
    return SparkSession.builder.getOrCreate()


def _is_not_py4js(record: logging.LogRecord) -> bool:
    """False for py4j's traceback of a connection that ended with Java; `failed` is the error for that."""
    return record.msg != "Exception while sending command."


def failed(error: BaseException, what: str = "failed") -> ServiceFailed:
    """Java's error as one sentence, with the name of its log."""
    java_log.keep()
    if isinstance(error, Py4JNetworkError) or gone():
        return ServiceFailed("Spark", "its Java process has ended", log=_log, hint="Was it killed, or out of memory?")
    java = getattr(error, "java_exception", None)
    lines = str(java.toString() if java is not None else error).splitlines()
    reason = re.sub(r"^([\w$]+\.)+[\w$]+(Exception|Error): ", "", lines[0]) if lines else type(error).__name__
    return ServiceFailed("Spark", f"{what}: {reason.rstrip('.')}", log=_log)


def over(spark: SparkSession) -> str:
    """Why the session has ended, or "": a cluster that removes the application stops the session, and Java lives on."""
    if gone():
        return "Spark's Java process has ended; was it killed, or out of memory?"
    session: Any = spark
    context = getattr(session, "_sc", None)  # none through Connect
    try:
        stopped = session.is_stopped if context is None else context._jsc is None or context._jsc.sc().isStopped()
    except Py4JError:
        stopped = True
    return "Spark's session was stopped; did its cluster or its server end it?" if stopped else ""


def explained(error: BaseException) -> ServiceFailed | None:
    """The error as a sentence if it is one of Spark's Java, or Java has ended; None for another."""
    from pyspark.errors import PySparkException

    return failed(error) if isinstance(error, Py4JError | PySparkException) or gone() else None


def gone() -> bool:
    """Whether the session's Java process has ended."""
    process: Any = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def cap_log() -> None:
    """Truncate the log of Java once it is too long."""
    if _log is not None:
        logs.cap(_log)


def redaction(hidden: Collection[str] = ()) -> str:
    """The value of `spark.redaction.regex`: our names of secrets, and these settings."""
    return "(?i)" + "|".join([secret.WORDS, "access[.]?key", *(f"^{re.escape(key)}$" for key in sorted(hidden))])


@contextmanager
def _properties(settings: Mapping[str, str]) -> Iterator[Path]:
    """A file of Java properties that no other user can read."""
    folder = java_log.folder()
    with tempfile.NamedTemporaryFile("w", encoding="ascii", dir=folder, suffix=java_log.SETTINGS) as file:
        file.writelines(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())
        file.flush()
        yield Path(file.name)


def _escaped(text: str) -> str:
    """The text as `java.util.Properties` reads it."""

    def units(odd: re.Match[str]) -> str:
        digits = odd[0].encode("utf-16-be").hex()
        return "".join(f"\\u{digits[i : i + 4]}" for i in range(0, len(digits), 4))

    return re.sub(r"[^\w./-]+", units, text, flags=re.ASCII)


@contextmanager
def _submit_arguments(properties: Path) -> Iterator[None]:
    """Have spark-submit read these properties beside the user's own `spark-defaults.conf` and $PYSPARK_SUBMIT_ARGS."""
    name = "PYSPARK_SUBMIT_ARGS"
    given = os.environ.pop(name, None)
    os.environ[name] = f"--properties-file {properties} --load-spark-defaults {given or 'pyspark-shell'}"
    try:
        yield
    finally:
        del os.environ[name]
        os.environ |= {} if given is None else {name: given}
