"""`start`, `stop`, `scale`, `reset`, `delete`: whether a region is wanted, with how many members, and from where (SPEC G5, G9, X1-X4)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal

import click

from crkafka_core.cli.call import MOST, Answer, control_plane, means, number, verb
from crkafka_core.cli.output import Say, silent
from crkafka_core.config import RegionConfig
from crkafka_core.control import Reader
from crkafka_core.holder import whoami
from crkafka_core.model import rows
from crkafka_core.model.errors import LeaseHeld
from crkafka_core.model.phase import Phase
from crkafka_core.model.plural import plural
from crkafka_core.plane import epochs, hosts, resets
from crkafka_core.plane.roster import live
from crkafka_core.plane.status import waits_for
from crkafka_core.region import Region, waiting

_YEAR = 366 * 86_400
"""Longest --timeout; the bound also refuses NaN and infinity."""
_WAIT = click.option("--wait/--no-wait", default=True, help="Wait until it is done.")
_TIMEOUT = click.option(
    "--timeout", type=number(0, _YEAR, kind=float), metavar="SECONDS", help="Wait at most so long; then exit code 1."
)
_TO = "Target; `head` reads again all after the last checkpoint."
Target = int | Literal["head", "initial"]


@verb("start", doing="starting")
@click.option("--wait", is_flag=True, help="Wait until the region runs.")
@_TIMEOUT
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
        _follow(region, say)
        if wait or timeout is not None:
            row = region.await_running(row.epoch, timeout=timeout, progress=say)
        return _answer(region, row)


@verb("stop", doing="stopping")
@_WAIT
def stop(config: RegionConfig, *, wait: bool = True, say: Say = silent) -> Answer:
    """Cut a last time, if the region runs; then the members leave."""
    with Region.open(config) as region:
        return _answer(region, region.stop(by=whoami(), wait=wait, progress=say))


@verb("scale", doing="scaling")
@click.argument("members", type=number(0), metavar="MEMBERS")
@click.option("--wait", is_flag=True, help="Wait until the region runs with them.")
@_TIMEOUT
def scale(
    config: RegionConfig, members: int, *, wait: bool = False, timeout: float | None = None, say: Say = silent
) -> Answer:
    """Change the number of MEMBERS; costs at most one reset."""

    def scaled(reader: Reader, row: rows.Region) -> rows.Region | str:
        running = live(reader)
        waiting.refuse_stopped(row)
        if row.phase is Phase.RUNNING and len(running) == row.members_wanted and not waits_for(reader, row):
            return row
        return f"{row.phase.lower()} with {len(running)} of {plural(row.members_wanted, 'member')}"

    with Region.open(config) as region:
        row = region.scale(members, by=whoami())
        if wait or timeout is not None:
            row = waiting.until(region.plane, scaled, say, timeout=timeout)
        answer = _answer(region, row)
    if members == config.members:
        return answer
    text = f"the configuration still has members: {config.members}; only `crkafka init` of a new region reads it"
    return answer._replace(notes=[text])


def _target(text: Any) -> Target:
    if text in ("head", "initial"):
        return "head" if text == "head" else "initial"
    if str(text).isdecimal() and int(text) <= MOST:
        return int(text) or "initial"
    raise click.BadParameter(f"{text!r} is neither head, initial nor the number of a checkpoint")


def _goes_back(config: RegionConfig, to: Target, give_up: tuple[str, ...], **_: object) -> str:
    """Refuse a target that the region cannot go back to; else the question. A reset to the head destroys nothing."""
    if to == "head":
        return ""
    number = 0 if to == "initial" else to
    with control_plane(config) as plane:
        plane.read(lambda reader, row: resets.check_target(reader, row, number, give_up))
    where = f"checkpoint {to}" if number else "initial state"
    return f"Region {config.region} goes back to {where}; later checkpoints are superseded and leave the tables."


@verb("reset", doing="resetting", asks=_goes_back)
@click.option("--to", type=_target, metavar="head|initial|NUMBER", required=True, help=_TO)
@click.option("--cause", default="", show_default=False, help="Reason, for the event log.")
@click.option(
    "--give-up",
    multiple=True,
    metavar="TOPIC",
    help="A forgotten topic whose rows may leave the tables, though they cannot be read again. Repeat for more topics.",
)
@click.option("--fence/--no-fence", default=True, help="Make the declared tables follow at once.")
@_WAIT
@_TIMEOUT
def reset(
    config: RegionConfig,
    to: Target,
    *,
    cause: str = "",
    fence: bool = True,
    wait: bool = False,
    timeout: float | None = None,
    give_up: tuple[str, ...] = (),
    say: Say = silent,
) -> Answer:
    """Go back to the last checkpoint, an older one, or the initial state; later rows leave the tables, and their records are read again."""
    with Region.open(config) as region:
        idle = wait and region.status().region.phase is Phase.IDLE
        epoch = region.reset(None if to == "head" else to, by=whoami(), cause=cause, give_up=give_up)
        if fence:
            _follow(region, say)
        if wait and not idle:
            region.await_running(epoch, timeout=timeout, progress=say)
    text = f"region {config.region} goes on from {'the head' if to == 'head' else to} in epoch {epoch}"
    notes = ["the region is idle: it goes on from there when it is started"] if idle else []
    return Answer({"region": config.region, "epoch": epoch, "to": to}, text, notes)


def _follow(region: Region, say: Say) -> None:
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
