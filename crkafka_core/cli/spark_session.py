"""Spark for a verb: one line says that it starts; what Java writes goes to a log that is named only when something fails."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from crkafka_core.cli.progress import Say
from crkafka_core.config import RegionConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_folder: list[Path] = []


def open_session(config: RegionConfig, say: Say) -> SparkSession:
    """The session that the configuration names."""
    from crkafka_core.spark import session

    jars = sorted({t.format for t in config.tables} & {"delta", "iceberg"})
    say("Spark starts" + (f"; the first time it fetches the jars of {' and '.join(jars)} as well" if jars else ""))
    return session.open_session(config, log=logs() / "spark.log")


def logs() -> Path:
    """A folder of this process, gone at its end unless it was named."""
    if not _folder:
        _folder.append(Path(tempfile.mkdtemp(prefix="crkafka-spark-")))
        atexit.register(_remove)
    return _folder[0]


def named() -> str:
    """The log, if there is one; it then stays."""
    if not _folder or not any(_folder[0].iterdir()):
        return ""
    log = _folder.pop() / "spark.log"
    return str(log)


def _remove() -> None:
    for folder in _folder:
        shutil.rmtree(folder, ignore_errors=True)
