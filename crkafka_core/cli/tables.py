"""`tables`: how far each declared table is; bring it up to date, write, repair or compact it, or let go of it (SPEC K6, T2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from crkafka_core.cli.call import (
    COMMANDS,
    Answer,
    called,
    config_options,
    control_plane,
    json_option,
    means,
    number,
    verb,
)
from crkafka_core.cli.output import LAG, Say, lag_cells, note, print_table, silent
from crkafka_core.config import RegionConfig
from crkafka_core.config.shapes import by_value, topic_of
from crkafka_core.control import Reader
from crkafka_core.holder import whoami
from crkafka_core.model import rows
from crkafka_core.model.plural import plural
from crkafka_core.plane import lateness, life, reading
from crkafka_core.plane import tables as plane
from crkafka_core.region import Region
from crkafka_core.region.redeclared import declare_new

T = TypeVar("T")
_ONE = click.argument("table", required=False, default="")


@click.group("tables", invoke_without_command=True)
@config_options
@json_option
@click.pass_context
def tables(context: click.Context, config_file: Path | None, region_name: str | None, as_json: bool) -> int:
    """List the declared tables: how far each is, how many checkpoints wait, which process writes it. Exit code 1 if one is late."""
    call = called(config_file, region_name)
    if context.invoked_subcommand is not None:
        context.obj = call
        return 0
    config = call.config()
    with control_plane(config) as control:
        lags = control.read(lateness.lags)
    value = [{**lag.__dict__, "late": lag.late, "spoilt": lag.spoilt} for lag in lags]
    columns = (*LAG, "written by", "version", "bad records", "late")
    cells = []
    for lag in lags:
        late = "has to follow a rewind" if lag.owes_fence else "late" if lag.late else ""
        by = lag.writer or lag.feeder or "no process now"
        cells.append((*lag_cells(lag), by, lag.table.version, lag.bad or "", late))
    text = partial(print_table, columns, cells, empty=f"region {config.region} declares no table")
    return Answer(value, text, code=int(any(lag.late for lag in lags))).give(as_json)


COMMANDS["tables"] = tables
_UP_TO_DATE = "every table has all checkpoints"


def _each(names: Iterable[str], work: Callable[[str], T], text: Callable[[str, T], str], value: Any = None) -> Answer:
    """The work on several tables: one that is refused keeps no other from its turn. `value`: of the results, for JSON."""
    from crkafka_core.lake.writing import each

    tried = each(names, work)
    lines = (text(name, done) for name, done in tried.done.items())
    end = partial(tried.end, lambda text: note(text, "ERROR"))
    return Answer((value or dict)(tried.done), "\n".join(filter(None, lines)), end=end)


def _named(reader: Reader, table: str) -> list[str]:
    return [plane.of(reader, table).name] if table else [t.name for t in life.tables_of(reader)]


@verb("advance", doing="advancing", group=tables)
@_ONE
def advance(config: RegionConfig, table: str = "", *, say: Say = silent) -> Answer:
    """Bring TABLE, or each table that is behind, up to the last merged checkpoint."""
    from crkafka_core.lake import road
    from crkafka_core.lake.pool import Pool
    from crkafka_core.lake.writing import Committed

    with Region.open(config) as region, Pool() as pool:
        declare_new(region.plane, config, by=whoami())
        makes = means(config, say, pool=pool)

        def one(name: str) -> list[Committed]:
            done: list[Committed] = []
            while (commit := road.advance(region, name, means=makes)) is not None:
                done.append(commit)
                say(f"table {name} is at checkpoint {commit.acknowledged}")
            return done

        def line(name: str, commit: Committed) -> str:
            bad = f", {plural(commit.bad, 'record')} could not be decoded" if commit.bad else ""
            what = plural(commit.rows, "record" if _by_key(config, name) else "row")
            return f"{name}: {what} of {plural(len(commit.checkpoints), 'checkpoint')}{bad}; at {commit.acknowledged}"

        def text(name: str, commits: list[Committed]) -> str:
            return "\n".join(line(name, commit) for commit in commits)

        def waiting(reader: Reader, row: rows.Region) -> list[str]:
            return [lag.table.name for lag in lateness.lags(reader, row) if lag.waiting]

        names = region.plane.read(lambda reader, row: _named(reader, table) if table else waiting(reader, row))
        answer = _each(names, one, text)
    return answer if answer.text or len(answer.value) < len(names) else answer._replace(text=_UP_TO_DATE)


def _by_key(config: RegionConfig, table: str) -> bool:
    """Whether it keeps one row for each key, so that a commit counts records rather than rows."""
    declared = config.table(table)
    return declared is not None and bool(declared.keys)


@verb("replay", doing="replaying", group=tables)
@click.argument("table")
@click.option(
    "--after", type=number(0), metavar="N", required=True, help="The checkpoint before the range; 0: from the first on."
)
@click.option("--upto", type=number(1), metavar="N", required=True, help="The last checkpoint of the range.")
def replay(config: RegionConfig, table: str, *, after: int, upto: int, say: Say = silent) -> Answer:
    """Write the rows of a range of checkpoints into TABLE again.

    Each row is in the table once afterwards. The rows come from segments or, where these are retired, from Kafka.
    """
    if after >= upto:
        raise click.BadParameter(f"the range ({after}, {upto}] is empty", param_hint="--after")
    with Region.open(config) as region:
        family = region.plane.read(lambda reader, _: plane.siblings(reader, plane.of(reader, table)))
        for each in family:
            if _by_key(config, each.name):  # refused before Spark starts
                from crkafka_core.lake.keyed import refuse_rewrite

                refuse_rewrite(region, each)
        plan = region.plane.read(lambda reader, row: reading.plan(reader, row, after=after, upto=upto))
        nothing = Answer(None, f"the checkpoints after {after} up to {upto} have no rows; nothing was written")
        if not plan.filled:
            return nothing
        from crkafka_core.lake import road

        records = plural(sum(plan.rows_for_tables.values()), "record")
        into = " and ".join(each.name for each in family)
        say(f"writing {records} of {plural(len(plan.filled), 'checkpoint')} into {into}")
        done = road.rewrite(region, table, plan.filled, means=means(config, say))
    if done is None:
        return nothing
    notes = []
    if early := [number for number in done.checkpoints if number > done.acknowledged]:
        came = plural(len(early), "of them came before its turn", "of them came before their turn")
        notes = [f"{came}: {table} is at checkpoint {done.acknowledged}; its next advance writes them again, in place"]
    written, filled = plural(done.rows, "row"), plural(len(done.checkpoints), "checkpoint")
    return Answer(done, f"{written} of {filled} written into {table}{done.did_not_fit}", notes)


@verb("mend", doing="comparing", group=tables)
@_ONE
@click.option("--look", is_flag=True, help="Only report; exit code 1 if a table differs.")
def mend(config: RegionConfig, table: str = "", *, look: bool = False, say: Say = silent) -> Answer:
    """Repair rows of TABLE, or of each declared table, that other programs changed.

    The table is compared with the merged checkpoints: rows that were added, changed or removed are repaired. A table that cannot be
    repaired is reported, and the others are repaired all the same.
    """
    from crkafka_core.lake import audit, road

    with Region.open(config) as region:
        makes = means(config, say)

        def one(name: str) -> audit.TableAudit:
            say(f"the table {name}")
            audited = audit.look(region, name)
            if not look and not audited.clean:
                road.mend(region, name, audited, means=makes)
            return audited

        def text(name: str, audited: audit.TableAudit) -> str:
            differs = ", ".join(audit.in_words(audited)) or "as it should be"
            return f"{name}: {differs}{'' if look or audited.clean else '; mended'}"

        answer = _each(region.plane.read(lambda reader, _: _named(reader, table)), one, text)
    return answer._replace(code=int(look and any(not audited.clean for audited in answer.value.values())))


@verb("maintain", doing="maintaining", group=tables)
@_ONE
def maintain(config: RegionConfig, table: str = "", *, say: Say = silent) -> Answer:
    """Merge the small files of TABLE, or of each declared table, into few large ones.

    No row changes. Files that no version within the table's retention (a week, unless its properties say otherwise) needs are
    deleted.
    """
    from crkafka_core.lake import compact

    with Region.open(config) as region:

        def one(name: str) -> compact.Maintained:
            say(f"the table {name}")
            return compact.maintain(region, name)

        names = region.plane.read(lambda reader, _: _named(reader, table))
        return _each(
            names, one, lambda name, done: f"{name}: {compact.in_words(done)}", lambda done: list(done.values())
        )


def _undeclares(config: RegionConfig, table: str) -> str:
    with control_plane(config) as control:
        control.read(lambda reader, _: plane.of(reader, table))
    return (
        f"Region {config.region} writes no more to table {table} and does not wait for it: checkpoints that it lacks may be deleted, "
        "and rows that a rewind supersedes stay in it. Its files stay too."
    )


@verb("undeclare", asks=_undeclares, group=tables)
@click.argument("table")
def undeclare(config: RegionConfig, table: str) -> Answer:
    """Stop writing to TABLE and waiting for it, such as after it was deleted.

    It no longer holds back retirement or a reset; its files and rows stay as they are.
    """
    with control_plane(config) as control:
        was, others = control.read(lambda reader, _: (plane.of(reader, table), life.tables_of(reader)))
        control.do(lambda tx: plane.undeclare(tx, table, by=whoami()))
    # Tables of the same shape, such as its dead letters.
    stay = [other.name for other in others if was.shape and other.shape == was.shape and other.name != table]
    notes = [f"table {name}, of the same shape, is still declared: `crkafka tables undeclare {name}`" for name in stay]
    if by_value(was.shape) and was.output:
        notes = [
            "its records come into the template's dead letters from now on; the next `crkafka init` declares it again"
        ]
    elif topic := topic_of(was.shape):
        notes.append(f"write `except: [{topic}]` beside its template: the next `crkafka init` declares it again")
    elif config.table(table) is not None:
        notes.append(
            "remove it from the configuration too, and reload Dagster's code location if one drives the region: otherwise the next "
            "`crkafka init`, `host` or `consume`, or Dagster, declares it again, and fills it from the first checkpoint"
        )
    else:
        notes.append(
            "if a Dagster drives the region, reload its code location: it may hold the old configuration, and declare the table again"
        )
    return Answer({"table": table}, f"table {table} is no longer declared", notes)
