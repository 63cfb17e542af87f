"""`start`, `stop`, `scale`, `delete`: whether a region is wanted, and with how many members (SPEC G5, G9)."""

from __future__ import annotations

from contextlib import suppress
from typing import Literal

import click

from crkafka_core.cli.call import Answer, number, verb
from crkafka_core.cli.output import Say, silent
from crkafka_core.cli.resources import means
from crkafka_core.config import RegionConfig
from crkafka_core.control import Reader
from crkafka_core.holder import whoami
from crkafka_core.model import rows
from crkafka_core.model.errors import LeaseHeld
from crkafka_core.model.phase import Phase
from crkafka_core.model.plural import plural
from crkafka_core.plane import epochs, hosts
from crkafka_core.plane.roster import live
from crkafka_core.plane.status import waits_for
from crkafka_core.region import Region, waiting

_YEAR = 366 * 86_400
"""Longest --timeout; the bound also refuses NaN and infinity."""


WAIT = click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until it is done.")
TIMEOUT = click.option(
    "--timeout", type=number(0, _YEAR, kind=float), metavar="SECONDS", help="Wait at most so long; then exit code 1."
)


@verb("start", doing="starting")
@click.option("--wait", is_flag=True, help="Wait until the region runs.")
@TIMEOUT
@click.option(
    "--restored",
    type=click.Choice(["rewind", "initial"]),
    help="After a restored backup: go on from the control plane's head, or from initial state.",
)
@click.option("--moved", is_flag=True, help="The control plane was moved: take over the segments of the old place.")
def start(
    config: RegionConfig,
    *,
    restored: Literal["rewind", "initial"] | None = None,
    moved: bool = False,
    wait: bool = False,
    timeout: float | None = None,
    say: Say = silent,
) -> Answer:
    """Start the region; it also leaves STOPPED. Its members are run by a host: `crkafka host`, or Dagster."""
    with Region.open(config) as region:
        row = region.start(by=whoami(), restored=restored or "", moved=moved)
        follow(region, say)
        if wait or timeout is not None:
            row = region.await_running(row.epoch, timeout=timeout, progress=say)
        return _answer(region, row)


@verb("stop", doing="stopping")
@WAIT
def stop(config: RegionConfig, *, wait: bool = True, say: Say = silent) -> Answer:
    """Cut a last time, if the region runs; then the members leave."""
    with Region.open(config) as region:
        return _answer(region, region.stop(by=whoami(), wait=wait, progress=say))


@verb("scale", doing="scaling")
@click.argument("members", type=number(0), metavar="MEMBERS")
@click.option("--wait", is_flag=True, help="Wait until the region runs with them.")
@TIMEOUT
def scale(
    config: RegionConfig, members: int, *, wait: bool = False, timeout: float | None = None, say: Say = silent
) -> Answer:
    """Change the number of MEMBERS; costs at most one reset."""
    with Region.open(config) as region:
        row = region.scale(members, by=whoami())
        if wait or timeout is not None:
            row = _settled(region, timeout, say)
        answer = _answer(region, row)
    if members == config.members:
        return answer
    text = f"the configuration still has members: {config.members}; only `crkafka init` of a new region reads it"
    return answer._replace(notes=[text])


def _settled(region: Region, timeout: float | None, say: Say) -> rows.Region:
    """Wait until the region runs with exactly the wanted members."""

    def scaled(reader: Reader, row: rows.Region) -> rows.Region | str:
        running = live(reader)
        waiting.refuse_stopped(row)
        if row.phase is Phase.RUNNING and len(running) == row.members_wanted and not waits_for(reader, row):
            return row
        return f"{row.phase.lower()} with {len(running)} of {plural(row.members_wanted, 'member')}"

    return waiting.until(region.plane, scaled, say, timeout=timeout)


def follow(region: Region, say: Say) -> None:
    """Fence each table that has to follow a rewind: in REWINDING the region waits for a process that can write them (SPEC G7, X4)."""
    from crkafka_core.lake import road

    for table in region.plane.read(lambda reader, _: epochs.unfenced(reader)):
        say(f"the table {table.name} follows the rewind")
        with suppress(LeaseHeld):  # the process that writes it makes it follow
            road.fence(region, table.name, means=means(region.config, say))


def _deletes(config: RegionConfig) -> str:
    return f"Region {config.region}, its checkpoints and its segments in {config.storage} will be deleted."


@verb("delete", asks=_deletes)
def delete(config: RegionConfig) -> Answer:
    """Delete an idle region with its checkpoints and segments. Tables and topics stay."""
    with Region.open(config) as region:
        files = region.delete()
    text = f"region {config.region} is deleted, with {plural(files, 'segment')}"
    return Answer({"region": config.region, "segments": files}, text)


def _answer(region: Region, row: rows.Region) -> Answer:
    """The region's row, and a sentence if members are wanted and no host runs them."""
    keys = ("phase", "wanted", "epoch", "head", "members_wanted")
    text = f"region {row.name} is {row.phase}, wanted: {row.wanted}; {plural(row.members_wanted, 'member')} wanted; head {row.head}"
    if missing := region.plane.read(hosts.missing):
        text += f"\n{missing}"
    elif row.phase not in (Phase.RUNNING, Phase.CUTTING, Phase.IDLE):
        text += "\n`crkafka show` names what it waits for"
    return Answer({"region": row.name, **{key: getattr(row, key) for key in keys}}, text)
