"""`tables`: which tables are declared, how far each is, who writes it; and bringing one up to date by hand (SPEC K6)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from crkafka_core.cli.call import called, config_options, json_option, with_config
from crkafka_core.cli.life import silent
from crkafka_core.cli.output import print_json, print_table, span, tell_refused
from crkafka_core.cli.plane import control_plane
from crkafka_core.cli.progress import Say, progress
from crkafka_core.cli.spark_session import open_session
from crkafka_core.config import RegionConfig
from crkafka_core.control import Reader
from crkafka_core.lake.in_turn import Tried, each
from crkafka_core.model import rows
from crkafka_core.model.errors import Refused
from crkafka_core.model.plural import plural
from crkafka_core.plane import lateness, life
from crkafka_core.plane import tables as plane
from crkafka_core.plane.lateness import TableLag
from crkafka_core.region import Region

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from crkafka_core.lake.compact import Maintained
    from crkafka_core.lake.writing import Committed


def tables(config: RegionConfig) -> list[TableLag]:
    """Every declared table, with what waits for it."""
    with control_plane(config) as control:
        return control.read(lateness.lags)


def advance(config: RegionConfig, name: str = "", *, say: Say = silent) -> Tried[list[Committed]]:
    """Bring one table, or all, up to the head: what adopts segments without Spark, the others with it. Commits by table."""
    with Region.open(config) as region:
        names = region.plane.read(lambda reader, row: _named(reader, row, name))
        return each(names, lambda table: _advance(region, table, say))


def _named(reader: Reader, row: rows.Region, name: str) -> list[str]:
    if name:
        return [plane.of(reader, name).name]
    return [lag.table.name for lag in lateness.lags(reader, row) if lag.waiting]


def _advance(region: Region, name: str, say: Say) -> list[Committed]:
    from crkafka_core.lake import road

    table = region.plane.read(lambda reader, row: plane.of(reader, name))
    done: list[Committed] = []
    if not plane.needs_spark(table):
        while (commit := road.advance(region, name)) is not None:
            done.append(commit)
            say(f"table {name} is at checkpoint {commit.acknowledged}")
        return done
    if region.plane.read(lambda reader, _: plane.shaped(reader, table)):
        raise Refused(
            f"The rows of table {name} are shaped by the program that writes it; others would put raw ones among them.",
            hint="Advance it there, with the same shape.",
        )
    from crkafka_core.spark.tables import advance as with_spark

    spark = open_session(region.config, say=say)
    say(f"writing table {name}")
    commit = with_spark(spark, region, name)
    return done if commit is None else [*done, commit]


@click.group("tables", invoke_without_command=True)
@config_options
@json_option
@click.pass_context
def _tables(context: click.Context, config_file: Path | None, region_name: str | None, as_json: bool) -> int:
    """List the declared tables: how far each is, what waits for it, who writes it. Exit code 1 if one is late.

    `crkafka tables advance [NAME]` brings them up to date by hand; `crkafka tables maintain [NAME]` makes few files of many.
    """
    call = called(config_file, region_name)
    if context.invoked_subcommand is not None:
        context.obj = call
        return 0
    config = call.config()
    lags = tables(config)
    if as_json:
        print_json([{**lag.__dict__, "late": lag.late, "spoilt": lag.spoilt} for lag in lags])
    else:
        print_table(
            ("table", "format", "acknowledged", "waiting", "for", "written by", "version", "bad records", "late"),
            (
                (
                    lag.table.name,
                    lag.table.format + (" (adopts segments)" if lag.table.layout == plane.FILES else ""),
                    lag.table.acknowledged,
                    lag.waiting,
                    span(lag.seconds) if lag.waiting else "",
                    lag.writer or lag.feeder or "nobody now",
                    lag.table.version,
                    lag.bad or "",
                    "has to follow a rewind" if lag.owes_fence else "late" if lag.late else "",
                )
                for lag in lags
            ),
            empty=f"region {config.region} declares no table",
        )
    return int(any(lag.late for lag in lags))


@_tables.command("advance")
@with_config
@click.argument("name", required=False, default="")
@json_option
def _advance_command(config: RegionConfig, name: str, as_json: bool) -> None:
    """Bring table NAME, or every table that is behind, up to the last merged checkpoint."""
    with progress("advancing", quiet=as_json) as say:
        tried = advance(config, name, say=say)
    done = tried.done
    if as_json:
        print_json(done)
    elif not any(done.values()) and not tried.refused:
        print("every table has all checkpoints")
    for table, commits in () if as_json else done.items():
        for commit in commits:
            bad = f", {plural(commit.bad, 'record')} could not be decoded" if commit.bad else ""
            what = plural(commit.rows, "record" if _by_key(config, table) else "row")
            print(f"{table}: {what} of {plural(len(commit.checkpoints), 'checkpoint')}{bad}; at {commit.acknowledged}")
    tried.end(tell_refused)


def _by_key(config: RegionConfig, table: str) -> bool:
    """It has a row for each key, so fewer than it took records."""
    declared = config.table(table)
    return declared is not None and bool(declared.keys)


def maintain(config: RegionConfig, name: str = "", *, say: Say = silent) -> Tried[Maintained]:
    """Compact one table, or every one, and delete files that no version within the table's retention needs."""
    from crkafka_core.lake import compact
    from crkafka_core.lake.formats import on_the_road

    with Region.open(config) as region:
        names = region.plane.read(lambda reader, _: [t.name for t in life.tables_of(reader) if name in ("", t.name)])
        if name and not names:
            region.plane.read(lambda reader, _: plane.of(reader, name))
        spark: SparkSession | None = None

        def one(table: str) -> Maintained:
            nonlocal spark
            if on_the_road(region, table):
                say(f"the table {table}")
                return compact.maintain(region, table)
            from crkafka_core.spark import maintain as by_format

            if spark is None and by_format.needs_spark(region, table):
                spark = open_session(config, say)
            say(f"the table {table}")
            return by_format.maintain(spark, region, table)

        return each(names, one)


@_tables.command("maintain")
@with_config
@click.argument("name", required=False, default="")
@json_option
def _maintain_command(config: RegionConfig, name: str, as_json: bool) -> None:
    """Make few large files of the many small ones of table NAME, or of every table; no row changes.

    With Spark, by the format's own compaction, only where Spark writes the table, and for Iceberg.

    Old files that no version within the table's retention (a week, unless its properties say otherwise) needs are deleted.
    """
    with progress("maintaining", quiet=as_json) as say:
        tried = maintain(config, name, say=say)
    from crkafka_core.lake.compact import in_words

    if as_json:
        print_json(list(tried.done.values()))
    for table, done in () if as_json else tried.done.items():
        print(f"{table}: {in_words(done)}")
    tried.end(tell_refused)


COMMANDS: dict[str, Any] = {"tables": _tables}
