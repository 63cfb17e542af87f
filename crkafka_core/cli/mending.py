"""`mend`: finds in tables what their format could not refuse, and undoes it; sweeps what does not count (SPEC K6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from crkafka_core.cli.call import json_option, with_config
from crkafka_core.cli.life import silent
from crkafka_core.cli.output import print_json, tell_refused
from crkafka_core.cli.progress import Say, progress
from crkafka_core.cli.spark_session import open_session
from crkafka_core.config import RegionConfig
from crkafka_core.control import Reader
from crkafka_core.lake.in_turn import Tried, each
from crkafka_core.model.visible import visible
from crkafka_core.plane import life, tables
from crkafka_core.region import Region

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from crkafka_core.lake.audit import TableAudit


def mend(config: RegionConfig, table: str = "", *, look: bool = False, say: Say = silent) -> Tried[TableAudit]:
    """What is in each declared table, or in one, and should not be, or not so; unless only to `look`, it is undone."""
    with Region.open(config) as region:
        names = region.plane.read(lambda reader, _: _named(reader, table))
        if not names:
            return Tried({}, [])
        from crkafka_core.lake import audit, road
        from crkafka_core.lake.formats import on_the_road

        spark: SparkSession | None = None

        def one(name: str) -> TableAudit:
            nonlocal spark
            if on_the_road(region, name):
                say(f"the table {name}")
                audited = audit.look(region, name)
                if not look and not audited.clean:
                    road.mend(region, name, audited)
                return audited
            from crkafka_core.spark import tables as spark_tables

            if spark is None and _needs_spark(region, name):
                spark = open_session(config, say)
            say(f"the table {name}")
            result = spark_tables.look(spark, region, name)
            if not look and not result.clean:
                spark_tables.mend(spark, region, name)
            if not look:
                spark_tables.sweep(region, name)
            return result

        return each(names, one)


def _needs_spark(region: Region, name: str) -> bool:
    return region.plane.read(lambda reader, row: tables.needs_spark(tables.of(reader, name)))


def _named(reader: Reader, table: str) -> list[str]:
    return [tables.of(reader, table).name] if table else [t.name for t in life.tables_of(reader)]


@click.command("mend")
@with_config
@click.argument("table", required=False, default="")
@click.option("--look", is_flag=True, help="Only tell; exit code 1 if something is wrong.")
@json_option
def _mend(config: RegionConfig, table: str, look: bool, as_json: bool) -> int:
    """Find in TABLE, or in every declared table, rows that no merged checkpoint has, or has with other values, and undo them.

    One that cannot be mended is told, and the others are mended all the same.

    Of a Parquet table it also removes files of attempts that do not count any more.
    """
    from crkafka_core.lake.audit import in_words

    with progress("looking" if look else "mending", quiet=as_json) as say:
        tried = mend(config, table, look=look, say=say)
    results = tried.done
    if as_json:
        print_json(results)
    else:
        for name, seen in results.items():
            text = ", ".join(in_words(seen)) or "as it should be"  # names of files that others wrote
            print(visible(f"{name}: {text}{'' if look or seen.clean else '; mended'}"))
    tried.end(tell_refused)
    return int(look and any(not seen.clean for seen in results.values()))


COMMANDS: dict[str, Any] = {"mend": _mend}
