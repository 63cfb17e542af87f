"""Spark's Python daemon for a session whose tasks run in this installation: a member starts a second or two sooner.

Spark puts the archives of its own Python code first on the path of the processes it starts, and what comes from an archive is
compiled at each start; here the same code is taken from beside them, where it lies compiled. And what members and readers
import is imported once, before Spark's own daemon forks the processes of its tasks. Spark knows this module by its setting
`spark.python.daemon.module` alone.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path


def without_archives(path: Sequence[str]) -> list[str]:
    """The path without the archives that lie inside a PySpark which is installed on the same path."""
    installed = {Path(entry, "pyspark", "python", "lib").resolve() for entry in path if entry}
    return [entry for entry in path if not (entry.endswith(".zip") and Path(entry).parent.resolve() in installed)]


def main() -> None:
    """Be Spark's daemon; in the end Spark's own code is what runs."""
    sys.path[:] = without_archives(sys.path)
    daemon = importlib.import_module("pyspark.daemon")
    for name in ("crkafka_core.spark.member_task", "crkafka_core.spark.work", "crkafka_core.decode.batch"):
        importlib.import_module(name)
    importlib.import_module("crkafka_core.plane.stores").preload()
    gc.freeze()  # Spark collects garbage after each task: not among what all of them share
    daemon.manager()


if __name__ == "__main__":
    main()
