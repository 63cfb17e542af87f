"""`tables`: the declared tables, how far each is and which process writes it; bring them up to date, or let go of one (SPEC K6)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from crkafka_core.cli.call import called, config_options, confirm, json_option, with_config, yes_option
from crkafka_core.cli.output import Say, note, print_json, print_table, progress, silent, span
from crkafka_core.cli.resources import control_plane, means
from crkafka_core.cli.rewriting import maintain_command, mend_command, replay_command
from crkafka_core.config import RegionConfig
from crkafka_core.config.typed import topic_of
from crkafka_core.control import Reader
from crkafka_core.holder import whoami
from crkafka_core.lake.in_turn import Tried, each
from crkafka_core.model import rows
from crkafka_core.model.plural import plural
from crkafka_core.plane import lateness, life, templates
from crkafka_core.plane import tables as plane
from crkafka_core.plane.lateness import TableLag
from crkafka_core.region import Region

if TYPE_CHECKING:
    from crkafka_core.lake.writing import Committed


def tables(config: RegionConfig) -> list[TableLag]:
    """Each declared table, with the checkpoints that wait for it."""
    with control_plane(config) as control:
        return control.read(lateness.lags)


def advance(config: RegionConfig, name: str = "", *, say: Say = silent) -> Tried[list[Committed]]:
    """Bring one table, or each, up to the head; Spark starts only for tables that need it. Commits by table."""
    from crkafka_core.lake import road
    from crkafka_core.lake.pool import Pool

    with Region.open(config) as region, Pool() as pool:
        templates.declare_new(region.plane, config, by=whoami())
        makes = means(config, say, pool=pool)

        def one(table: str) -> list[Committed]:
            done: list[Committed] = []
            while (commit := road.advance(region, table, means=makes)) is not None:
                done.append(commit)
                say(f"table {table} is at checkpoint {commit.acknowledged}")
            return done

        return each(region.plane.read(lambda reader, row: _named(reader, row, name)), one)


def _named(reader: Reader, row: rows.Region, name: str) -> list[str]:
    if name:
        return [plane.of(reader, name).name]
    return [lag.table.name for lag in lateness.lags(reader, row) if lag.waiting]


def undeclare(
    config: RegionConfig, table: str, *, confirmed: Callable[[], None] = lambda: None
) -> tuple[rows.Table, list[str]]:
    """Stop waiting for a table. `confirmed` asks the person, once the table is known to be declared.

    What was declared, and names of the tables of the same shape that stay declared, such as its dead letters.
    """
    with control_plane(config) as control:
        row, others = control.read(lambda reader, _: (plane.of(reader, table), life.tables_of(reader)))
        confirmed()
        control.do(lambda tx: plane.undeclare(tx, table, by=whoami()))
        return row, [other.name for other in others if row.shape and other.shape == row.shape and other.name != table]


@click.group("tables", invoke_without_command=True)
@config_options
@json_option
@click.pass_context
def _tables(context: click.Context, config_file: Path | None, region_name: str | None, as_json: bool) -> int:
    """List the declared tables: how far each is, how many checkpoints wait, which process writes it. Exit code 1 if one is late."""
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
                    lag.table.format + (" (adopts segments)" if plane.adopts(lag.table) else ""),
                    lag.table.acknowledged,
                    lag.waiting,
                    span(lag.seconds) if lag.waiting else "",
                    lag.writer or lag.feeder or "no process now",
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
@click.argument("table", required=False, default="")
@json_option
def _advance_command(config: RegionConfig, table: str, as_json: bool) -> None:
    """Bring TABLE, or each table that is behind, up to the last merged checkpoint."""
    with progress("advancing", quiet=as_json) as say:
        tried = advance(config, table, say=say)
    done = tried.done
    if as_json:
        print_json(done)
    elif not any(done.values()) and not tried.refused:
        print("every table has all checkpoints")
    for name, commits in () if as_json else done.items():
        for commit in commits:
            bad = f", {plural(commit.bad, 'record')} could not be decoded" if commit.bad else ""
            what = plural(commit.rows, "record" if _by_key(config, name) else "row")
            print(f"{name}: {what} of {plural(len(commit.checkpoints), 'checkpoint')}{bad}; at {commit.acknowledged}")
    tried.end(lambda text: note(text, "ERROR"))


def _by_key(config: RegionConfig, table: str) -> bool:
    """Whether it keeps one row for each key, so that a commit counts records rather than rows."""
    declared = config.table(table)
    return declared is not None and bool(declared.keys)


_tables.add_command(replay_command)
_tables.add_command(mend_command)
_tables.add_command(maintain_command)


@_tables.command("undeclare")
@with_config
@click.argument("table")
@yes_option
@json_option
def _undeclare_command(config: RegionConfig, table: str, yes: bool, as_json: bool) -> None:
    """Stop writing to TABLE and waiting for it, such as after it was deleted.

    It no longer holds back retirement or a reset; its files and rows stay as they are.
    """
    question = (
        f"Region {config.region} writes no more to table {table} and does not wait for it: checkpoints that it lacks may be deleted, "
        "and rows that a rewind supersedes stay in it. Its files stay too."
    )
    was, stay = undeclare(config, table, confirmed=lambda: confirm(question, yes=yes))
    if as_json:
        print_json({"table": table})
    else:
        print(f"table {table} is no longer declared")
    for other in stay:
        note(f"table {other}, of the same shape, is still declared: `crkafka tables undeclare {other}`")
    if topic := topic_of(was.shape):
        note(f"write `except: [{topic}]` beside its template: the next `crkafka init` declares it again")
    elif config.table(table) is not None:
        note(
            "remove it from the configuration too, and reload Dagster's code location if one drives the region: otherwise the next "
            "`crkafka init`, `host` or `consume`, or Dagster, declares it again, and fills it from the first checkpoint"
        )
    else:
        note(
            "if a Dagster drives the region, reload its code location: it may hold the old configuration, and declare the table again"
        )


COMMANDS: dict[str, Any] = {"tables": _tables}
