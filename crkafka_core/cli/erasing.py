"""`erase`: removes records, usually those of a person, from every table for good (SPEC K6)."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import IO

import click

from crkafka_core.cli.call import Answer, verb
from crkafka_core.cli.output import Say, silent
from crkafka_core.cli.resources import means
from crkafka_core.config import RegionConfig
from crkafka_core.model.plural import plural
from crkafka_core.plane import erasure
from crkafka_core.plane.erasure import Records
from crkafka_core.region import Region


def _named(_: click.Context, __: click.Parameter, given: IO[str]) -> Records:
    """The records that the file names."""
    records = erasure.by_partition(_read(given))
    if not records:
        raise click.BadParameter(f"{given.name} names no record")
    return records


def _read(given: IO[str]) -> Iterator[tuple[str, int, int]]:
    try:
        for number, line in enumerate(csv.reader(given), 1):
            heading = [cell.strip().lower() for cell in line] == ["topic", "partition", "offset"]
            if line and not (number == 1 and heading):
                yield _record(line, f"line {number} of {given.name}")
    except (UnicodeDecodeError, csv.Error):
        raise click.BadParameter(f"{given.name} is no CSV in UTF-8") from None


def _record(parts: list[str], where: str) -> tuple[str, int, int]:
    try:
        topic, partition, offset = (part.strip() for part in parts)
        return topic, int(partition), int(offset)
    except ValueError:
        raise click.BadParameter(f"{where} is not TOPIC,PARTITION,OFFSET") from None


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
    left = [
        f"table {table} {why}" if why[0].islower() else f"table {table} may still have them: {why}"
        for table, why in done.left.items()
    ]
    text = f"{count} of {plural(len(done.checkpoints), 'checkpoint')} erased"
    return Answer(done, text, left, int(bool(done.left)))
