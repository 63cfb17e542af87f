"""`jars`: brings what Spark needs for tables into a folder, each file compared with the hash that this version was made with."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click

from crkafka_core.cli.call import json_option
from crkafka_core.cli.output import print_json
from crkafka_core.cli.progress import progress
from crkafka_core.dev import jars as sets

_SETS = {"delta": sets.DELTA, "iceberg": sets.ICEBERG, "s3": sets.S3A}


def jars(folder: Path, names: Collection[str] = tuple(_SETS)) -> list[Path]:
    """The jars of these table formats, and of tables in S3, in this folder. A file that is another than it was is refused."""
    brought = []
    folder.mkdir(parents=True, exist_ok=True)
    for name in sorted(set(names)):
        files = _SETS[name].jars()
        _SETS[name].verify()  # the cache may be older than its reader's trust
        brought += [Path(shutil.copy(jar, folder)).resolve() for jar in files]
    return brought


@click.command("jars")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.argument("names", nargs=-1, metavar="[delta] [iceberg] [s3]", type=click.Choice(list(_SETS)))
@json_option
def _jars(folder: Path, names: tuple[str, ...], as_json: bool) -> None:
    """Bring the jars that Spark needs for tables into FOLDER, with their hashes compared. Needs no configuration, but Java."""
    with progress("fetching jars", quiet=as_json):
        brought = jars(folder, names or tuple(_SETS))
    if as_json:
        print_json([str(jar) for jar in brought])
    else:
        print(f"host: {{conf: {{spark.jars: '{','.join(map(str, brought))}'}}}}")


COMMANDS: dict[str, Any] = {"jars": _jars}
