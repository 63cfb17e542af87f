"""`retire`, `forget`, `skip`, `erase`: let go of old checkpoints, of topics, of records that no client can read or no table may have
(SPEC T1-T3, S4, X9, K6)."""

from __future__ import annotations

import csv
from typing import IO

import click

from crkafka_core.cli.call import Answer, control_plane, means, verb
from crkafka_core.cli.output import Say, silent
from crkafka_core.config import RegionConfig
from crkafka_core.holder import whoami
from crkafka_core.model.errors import Refused
from crkafka_core.model.offsets import parse_offsets
from crkafka_core.model.plural import plural
from crkafka_core.plane import erasure, starts
from crkafka_core.plane.erasure import Records
from crkafka_core.region import Region


@verb("retire", doing="retiring")
def retire(config: RegionConfig, *, say: Say = silent) -> Answer:
    """Delete checkpoints older than the last `retain` that no table or reader holds; collect orphaned files."""
    with Region.open(config) as region:
        done = region.retire(progress=say)
    retired, segments = plural(len(done.checkpoints), "checkpoint"), plural(done.segments, "segment")
    text = f"{retired} retired, {segments} and {plural(done.orphans, 'orphan')} deleted"
    return Answer(done, text, [f"held back: {holder}" for holder in done.held])


def _refuse_unknown(config: RegionConfig, topic: str) -> None:
    with control_plane(config) as plane:
        topics = plane.read(lambda reader, row: {tp.topic for tp in starts.known(reader)})
    if topic not in topics:
        hint = f"It knows {', '.join(sorted(topics)) or 'none'}."
        raise Refused(f"Region {config.region} knows no topic {topic!r}, or has forgotten it already.", hint=hint)


def _forgets(config: RegionConfig, topic: str) -> str:
    _refuse_unknown(config, topic)
    return (
        f"Region {config.region} gives up what it has not read yet of topic {topic}; a topic of this name with another id is "
        "read as a new one."
    )


@verb("forget", asks=_forgets)
@click.argument("topic")
def forget(config: RegionConfig, topic: str) -> Answer:
    """Go on without TOPIC, which was deleted, recreated or unsubscribed; its offsets are carried forward."""
    with Region.open(config) as region:
        partitions = region.forget(topic, by=whoami())
    carried = f"{plural(partitions, 'partition')} of {topic} carried forward from now on"
    return Answer({"topic": topic, "partitions": partitions}, f"{carried}; `crkafka start` if the region is stopped")


def _skips(config: RegionConfig, offsets: str) -> str:
    tp, first, last = parse_offsets(offsets)
    _refuse_unknown(config, tp.topic)
    return f"Region {config.region} gives up offsets {first} to {last} of {tp} for good."


@verb("skip", asks=_skips)
@click.argument("offsets", metavar="TOPIC[P]@OFFSET[-LAST]")
def skip(config: RegionConfig, offsets: str) -> Answer:
    """Skip records that no client can read. The head must be at the first of them; the gap is recorded, and the region resets."""
    tp, first, last = parse_offsets(offsets)
    with Region.open(config) as region:
        goes_on = region.skip(tp, first, last, by=whoami())
    value = {"topic": tp.topic, "partition": tp.partition, "goes_on_at": goes_on}
    return Answer(value, f"{tp} goes on at offset {goes_on}")


def _named(_: click.Context, __: click.Parameter, given: IO[str]) -> Records:
    named: list[tuple[str, int, int]] = []
    try:
        for number, line in enumerate(csv.reader(given), 1):
            cells = [cell.strip() for cell in line]
            if not cells or (number == 1 and [cell.lower() for cell in cells] == ["topic", "partition", "offset"]):
                continue
            try:
                topic, partition, offset = cells
                named.append((topic, int(partition), int(offset)))
            except ValueError:
                where = f"line {number} of {given.name}"
                raise click.BadParameter(f"{where} is not TOPIC,PARTITION,OFFSET") from None
    except (UnicodeDecodeError, csv.Error):
        raise click.BadParameter(f"{given.name} is no CSV in UTF-8") from None
    if not named:
        raise click.BadParameter(f"{given.name} names no record")
    return erasure.by_partition(named)


def _erases(config: RegionConfig, records: Records) -> str:
    leave = plural(sum(map(len, records.values())), "record leaves", "records leave")
    return f"{leave} every table of region {config.region} for good."


@verb("erase", doing="erasing", asks=_erases)
@click.argument("records", type=click.File("r", encoding="utf-8-sig"), callback=_named)
def erase(config: RegionConfig, records: Records, *, say: Say = silent) -> Answer:
    """Remove the records that the file RECORDS names from every declared table, for good; `-` reads standard input.

    A line is TOPIC,PARTITION,OFFSET, as a query of a table returns them. The control plane keeps these three and nothing else of a
    record, and no replay, repair, reset or new table brings it back. Kafka, segments that are not retired yet, and old versions of a
    table that are not vacuumed yet still have it. Exit code 1 if a table could not be written.
    """
    from crkafka_core.lake import erasing

    with Region.open(config) as region:
        done = erasing.erase(region, records, means=means(config, say, then="writing the tables without them"))
    count = plural(sum(map(len, records.values())), "record")
    left = [f"table {t} {'' if why[0].islower() else 'may still have them: '}{why}" for t, why in done.left.items()]
    text = f"{count} of {plural(len(done.checkpoints), 'checkpoint')} erased"
    return Answer(done, text, left, int(bool(done.left)))
