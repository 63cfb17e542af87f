"""`erase`: removes records, usually those of a person, from every table for good (SPEC K6)."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

import click

from crkafka_core.cli.call import confirm, json_option, with_config, yes_option
from crkafka_core.cli.output import Say, note, print_json, progress, silent
from crkafka_core.cli.resources import means
from crkafka_core.config import RegionConfig
from crkafka_core.model.plural import plural
from crkafka_core.plane import erasure
from crkafka_core.plane.erasure import Records
from crkafka_core.region import Region

if TYPE_CHECKING:
    from crkafka_core.lake.erasing import Erased


def erase(config: RegionConfig, records: Records, *, say: Say = silent) -> Erased:
    """Remove these records from every declared table; no later write brings them back."""
    from crkafka_core.lake import erasing

    with Region.open(config) as region:
        return erasing.erase(region, records, means=means(config, say, then="writing the tables without them"))


def _read(given: IO[str]) -> Iterator[tuple[str, int, int]]:
    try:
        for number, line in enumerate(csv.reader(given), 1):
            if not line or (
                number == 1 and [cell.strip().lower() for cell in line] == ["topic", "partition", "offset"]
            ):
                continue
            yield _record(line, f"line {number} of {given.name}")
    except (UnicodeDecodeError, csv.Error):
        raise click.BadParameter(f"{given.name} is no CSV in UTF-8", param_hint="RECORDS") from None


def _record(parts: list[str], where: str) -> tuple[str, int, int]:
    try:
        topic, partition, offset = (part.strip() for part in parts)
        return topic, int(partition), int(offset)
    except ValueError:
        raise click.BadParameter(f"{where} is not TOPIC,PARTITION,OFFSET", param_hint="RECORDS") from None


@click.command("erase")
@with_config
@click.argument("records", type=click.File("r", encoding="utf-8-sig"))
@yes_option
@json_option
def _erase(config: RegionConfig, records: IO[str], yes: bool, as_json: bool) -> int:
    """Remove the records that the file RECORDS names from every declared table, for good; `-` reads standard input.

    A line is TOPIC,PARTITION,OFFSET, as a query of a table returns them. The control plane keeps these three and nothing else of a
    record, and no replay, repair, reset or new table brings it back. Kafka, segments that are not retired yet, and old versions of a
    table that are not vacuumed yet still have it. Exit code 1 if a table could not be written.
    """
    given = erasure.by_partition(_read(records))
    count = sum(map(len, given.values()))
    if not count:
        raise click.BadParameter(f"{records.name} names no record", param_hint="RECORDS")
    confirm(
        f"{plural(count, 'record leaves', 'records leave')} every table of region {config.region} for good.", yes=yes
    )
    with progress("erasing", quiet=as_json) as say:
        done = erase(config, given, say=say)
    if as_json:
        print_json(done)
    else:
        print(f"{plural(count, 'record')} of {plural(len(done.checkpoints), 'checkpoint')} erased")
        for table, why in done.left.items():
            note(f"table {table} {why}" if why[0].islower() else f"table {table} may still have them: {why}")
    return int(bool(done.left))


COMMANDS: dict[str, Any] = {"erase": _erase}
