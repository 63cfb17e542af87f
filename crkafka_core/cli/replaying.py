"""`replay`: writes the rows of a range of checkpoints into a table again (SPEC K6, T2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from crkafka_core.cli.call import MOST, json_option, with_config
from crkafka_core.cli.life import silent
from crkafka_core.cli.output import note, print_json
from crkafka_core.cli.progress import Say, progress
from crkafka_core.cli.spark_session import open_session
from crkafka_core.config import RegionConfig
from crkafka_core.model.plural import plural
from crkafka_core.plane import reading, tables
from crkafka_core.region import Region

if TYPE_CHECKING:
    from crkafka_core.lake.writing import Committed


def replay(config: RegionConfig, table: str, *, after: int, upto: int, say: Say = silent) -> Committed | None:
    """Rewrite the rows of the checkpoints in (after, upto], from segments or, once retired, from Kafka. None: no rows."""
    with Region.open(config) as region:
        into = " and ".join(_family(region, table))
        plan = region.plane.read(lambda reader, row: reading.plan(reader, row, after=after, upto=upto))
        if not plan.filled:
            return None
        from crkafka_core.lake import road
        from crkafka_core.lake.formats import on_the_road

        records = plural(sum(plan.rows_for_tables.values()), "record")
        step = f"writing {records} of {plural(len(plan.filled), 'checkpoint')} into {into}"
        if on_the_road(region, table):
            say(step)
            return road.rewrite(region, table, plan.filled)
        from crkafka_core.spark import tables as spark_tables

        spark = open_session(config, say)
        say(step)
        return spark_tables.rewrite(spark, region, table, plan.filled)


def _family(region: Region, table: str) -> list[str]:
    """The tables that are written together with this one. An unknown table, and one that keeps one row for each key, is refused
    before anything is announced or Spark starts."""
    family = region.plane.read(lambda reader, row: tables.siblings(reader, tables.of(reader, table)))
    names = [each.name for each in family]
    if any(named.keys for named in map(region.config.table, names) if named is not None):
        from crkafka_core.spark.keys import refuse_rewrite

        for name in names:
            refuse_rewrite(region, name)
    return names


@click.command("replay")
@with_config
@click.argument("table")
@click.option(
    "--after", type=click.IntRange(0, MOST), required=True, help="The checkpoint before the range; 0 is birth."
)
@click.option("--upto", type=click.IntRange(1, MOST), required=True, help="The last checkpoint of the range.")
@json_option
def _replay(config: RegionConfig, table: str, after: int, upto: int, as_json: bool) -> None:
    """Write the rows of the checkpoints after one and up to another into TABLE again; each is there once afterwards."""
    if after >= upto:
        raise click.BadParameter(f"the range ({after}, {upto}] is empty", param_hint="--after")
    with progress("replaying", quiet=as_json) as say:
        done = replay(config, table, after=after, upto=upto, say=say)
    if as_json:
        print_json(done)
    elif done is None:
        print(f"the checkpoints after {after} up to {upto} have no rows; nothing was written")
    else:
        rows, of = plural(done.rows, "row"), plural(len(done.checkpoints), "checkpoint")
        print(f"{rows} of {of} written into {table}{done.did_not_fit}")
        if early := [number for number in done.checkpoints if number > done.acknowledged]:
            came = plural(len(early), "of them came before its turn", "of them came before their turn")
            note(
                f"{came}: {table} stands at checkpoint {done.acknowledged}, and its next advance writes them once more in their place"
            )


COMMANDS: dict[str, Any] = {"replay": _replay}
