"""Spark's Python daemon (`spark.python.daemon.module`) for a session whose tasks run in this installation: tasks start a second sooner.

Spark puts archives of its own Python code first on the path, whose modules are compiled at each start; here the same modules come
compiled from the installation. Imports of members and readers are done once, before Spark's daemon forks the processes of tasks.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path


def without_archives(path: Sequence[str]) -> list[str]:
    """The path without the archives of a PySpark that is installed on it."""
    installed = {Path(entry, "pyspark", "python", "lib").resolve() for entry in path if entry}
    return [entry for entry in path if not (entry.endswith(".zip") and Path(entry).parent.resolve() in installed)]


def main() -> None:
    """Prepare, then run Spark's own daemon."""
    sys.path[:] = without_archives(sys.path)
    daemon = importlib.import_module("pyspark.daemon")
    for name in ("crkafka_core.spark.member_task", "crkafka_core.spark.work", "crkafka_core.decode.batch"):
        importlib.import_module(name)
    importlib.import_module("crkafka_core.plane.transact").preload()
    gc.freeze()  # Spark collects garbage after each task: not of what all of them share
    daemon.manager()


if __name__ == "__main__":
    main()
