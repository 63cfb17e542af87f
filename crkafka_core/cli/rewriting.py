"""`tables replay`, `tables mend`, `tables maintain`: write rows again, undo the commits of others, compact files (SPEC K6, T2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from crkafka_core.cli.call import json_option, number, with_config
from crkafka_core.cli.output import Say, note, print_json, progress, silent
from crkafka_core.cli.resources import means
from crkafka_core.config import RegionConfig
from crkafka_core.control import Reader
from crkafka_core.lake.in_turn import Tried, each
from crkafka_core.model.plural import plural
from crkafka_core.model.visible import visible
from crkafka_core.plane import life, reading, tables
from crkafka_core.region import Region

if TYPE_CHECKING:
    from crkafka_core.lake.audit import TableAudit
    from crkafka_core.lake.compact import Maintained
    from crkafka_core.lake.writing import Committed


def replay(config: RegionConfig, table: str, *, after: int, upto: int, say: Say = silent) -> Committed | None:
    """Write the rows of checkpoints (after, upto] again, from segments or, once retired, from Kafka. None: they have no rows."""
    with Region.open(config) as region:
        into = " and ".join(_family(region, table))
        plan = region.plane.read(lambda reader, row: reading.plan(reader, row, after=after, upto=upto))
        if not plan.filled:
            return None
        from crkafka_core.lake import road

        records = plural(sum(plan.rows_for_tables.values()), "record")
        say(f"writing {records} of {plural(len(plan.filled), 'checkpoint')} into {into}")
        return road.rewrite(region, table, plan.filled, means=means(config, say))


def _family(region: Region, table: str) -> list[str]:
    """The tables written together with this one. Refuses unknown tables and tables by key, before Spark starts."""
    family = region.plane.read(lambda reader, row: tables.siblings(reader, tables.of(reader, table)))
    names = [each.name for each in family]
    for one in family:
        if (named := region.config.table(one.name)) is not None and named.keys:
            from crkafka_core.lake.keyed import refuse_rewrite

            refuse_rewrite(region, one)
    return names


def mend(config: RegionConfig, table: str = "", *, look: bool = False, say: Say = silent) -> Tried[TableAudit]:
    """Compare one declared table, or each, with the merged checkpoints; unless only to `look`, repair the differences."""
    with Region.open(config) as region:
        names = region.plane.read(lambda reader, _: _named(reader, table))
        if not names:
            return Tried({}, [])
        from crkafka_core.lake import audit, road

        makes = means(config, say)

        def one(name: str) -> TableAudit:
            say(f"the table {name}")
            audited = audit.look(region, name)
            if not look and not audited.clean:
                road.mend(region, name, audited, means=makes)
            return audited

        return each(names, one)


def maintain(config: RegionConfig, table: str = "", *, say: Say = silent) -> Tried[Maintained]:
    """Compact one table, or each, and delete files that no version within the table's retention needs."""
    from crkafka_core.lake import compact

    with Region.open(config) as region:

        def one(name: str) -> Maintained:
            say(f"the table {name}")
            return compact.maintain(region, name)

        return each(region.plane.read(lambda reader, _: _named(reader, table)), one)


def _named(reader: Reader, table: str) -> list[str]:
    return [tables.of(reader, table).name] if table else [t.name for t in life.tables_of(reader)]


@click.command("replay")
@with_config
@click.argument("table")
@click.option(
    "--after", type=number(0), metavar="N", required=True, help="The checkpoint before the range; 0: from the first on."
)
@click.option("--upto", type=number(1), metavar="N", required=True, help="The last checkpoint of the range.")
@json_option
def replay_command(config: RegionConfig, table: str, after: int, upto: int, as_json: bool) -> None:
    """Write the rows of a range of checkpoints into TABLE again.

    Each row is in the table once afterwards. The rows come from segments or, where these are retired, from Kafka.
    """
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
        if early := [each for each in done.checkpoints if each > done.acknowledged]:
            came = plural(len(early), "of them came before its turn", "of them came before their turn")
            note(f"{came}: {table} is at checkpoint {done.acknowledged}; its next advance writes them again, in place")


@click.command("mend")
@with_config
@click.argument("table", required=False, default="")
@click.option("--look", is_flag=True, help="Only report; exit code 1 if a table differs.")
@json_option
def mend_command(config: RegionConfig, table: str, look: bool, as_json: bool) -> int:
    """Repair rows of TABLE, or of each declared table, that other programs changed.

    The table is compared with the merged checkpoints: rows that were added, changed or removed are repaired. A table that cannot be
    repaired is reported, and the others are repaired all the same.
    """
    from crkafka_core.lake.audit import in_words

    with progress("looking" if look else "mending", quiet=as_json) as say:
        tried = mend(config, table, look=look, say=say)
    if as_json:
        print_json(tried.done)
    for name, audited in () if as_json else tried.done.items():
        text = ", ".join(in_words(audited)) or "as it should be"
        # It names files that other programs wrote.
        print(visible(f"{name}: {text}{'' if look or audited.clean else '; mended'}"))
    tried.end(lambda text: note(text, "ERROR"))
    return int(look and any(not audited.clean for audited in tried.done.values()))


@click.command("maintain")
@with_config
@click.argument("table", required=False, default="")
@json_option
def maintain_command(config: RegionConfig, table: str, as_json: bool) -> None:
    """Merge the small files of TABLE, or of each declared table, into few large ones.

    No row changes. Files that no version within the table's retention (a week, unless its properties say otherwise) needs are
    deleted.
    """
    with progress("maintaining", quiet=as_json) as say:
        tried = maintain(config, table, say=say)
    from crkafka_core.lake.compact import in_words

    if as_json:
        print_json(list(tried.done.values()))
    for name, done in () if as_json else tried.done.items():
        print(f"{name}: {in_words(done)}")
    tried.end(lambda text: note(text, "ERROR"))
