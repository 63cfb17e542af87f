"""`mend`: finds in tables what their format could not refuse, and undoes it; sweeps what does not count (SPEC K6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from crkafka_core.cli.call import json_option, with_config
from crkafka_core.cli.life import silent
from crkafka_core.cli.output import print_json
from crkafka_core.cli.progress import Say, progress
from crkafka_core.config import RegionConfig
from crkafka_core.control import Reader
from crkafka_core.plane import regions, tables
from crkafka_core.region import Region

if TYPE_CHECKING:
    from crkafka_core.spark.tables import Looked


def mend(config: RegionConfig, table: str = "", *, look: bool = False, say: Say = silent) -> Mapping[str, Looked]:
    """What is in each declared table, or in one, and should not be, or not so; unless only to `look`, it is undone."""
    with Region.open(config) as region:
        names = region.plane.read(lambda reader, row: _named(reader, row.name, table))
        if not names:
            return {}
        from crkafka_core.spark import tables as spark_tables
        from crkafka_core.spark.session import open_session

        say("a Spark session")
        spark = open_session(config)
        found = {}
        for name in names:
            say(f"the table {name}")
            found[name] = spark_tables.look(spark, region, name)
            if not look and not found[name].clean:
                spark_tables.mend(spark, region, name)
            if not look:
                spark_tables.sweep(region, name)
        return found


def _named(reader: Reader, region: str, table: str) -> list[str]:
    return [tables.of(reader, region, table).name] if table else [t.name for t in regions.tables_of(reader, region)]


@click.command("mend")
@with_config
@click.argument("table", required=False, default="")
@click.option("--look", is_flag=True, help="Only tell; exit code 1 if something is wrong.")
@json_option
def _mend(config: RegionConfig, table: str, look: bool, as_json: bool) -> int:
    """Find in TABLE, or in every declared table, rows that no merged checkpoint gave it, or gave otherwise, and undo them.

    Of a Parquet table it also removes files of attempts that do not count any more.
    """
    with progress("looking" if look else "mending", quiet=as_json) as say:
        found = mend(config, table, look=look, say=say)
    if as_json:
        print_json(found)
    else:
        for name, seen in found.items():
            print(f"{name}: {_said(seen)}{'' if look or seen.clean else '; mended'}")
    return int(look and any(not seen.clean for seen in found.values()))


def _said(seen: Looked) -> str:
    parts = [
        f"rows of checkpoints that it should not hold ({_list(seen.strangers)})" if seen.strangers else "",
        f"other rows than were merged of checkpoints {_list(seen.miscounted)}" if seen.miscounted else "",
        f"{seen.foreign} commits of somebody else" if seen.foreign else "",
    ]
    return ", ".join(p for p in parts if p) or "as it should be"


def _list(ids: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ids[:10]))
    return f"{shown} and {len(ids) - 10} more" if len(ids) > 10 else shown


COMMANDS: dict[str, Any] = {"mend": _mend}
