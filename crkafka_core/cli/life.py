"""`start`, `stop`, `scale`, `delete`: whether a region is wanted, and with how many members (SPEC G5, G9)."""

from __future__ import annotations

from typing import Any, Literal

import click

from crkafka_core.cli.call import confirm, json_option, number, with_config, yes_option
from crkafka_core.cli.fencing import follow
from crkafka_core.cli.output import Say, note, print_json, progress, silent
from crkafka_core.cli.resources import control_plane
from crkafka_core.config import RegionConfig
from crkafka_core.control import Reader
from crkafka_core.holder import whoami
from crkafka_core.model import rows
from crkafka_core.model.errors import NotSettled, RegionStopped
from crkafka_core.model.phase import Phase
from crkafka_core.model.plural import plural
from crkafka_core.plane import hosts
from crkafka_core.plane.roster import live
from crkafka_core.plane.status import waits_for
from crkafka_core.region import Region, waiting

_YEAR = 366 * 86_400
"""Longest --timeout; the bound also refuses NaN and infinity."""


def start(
    config: RegionConfig,
    *,
    restored: Literal["", "rewind", "initial"] = "",
    moved: bool = False,
    wait: bool = False,
    timeout: float | None = None,
    say: Say = silent,
) -> rows.Region:
    """Mark the region as wanted; also leaves STOPPED. A host runs the members.

    `restored`: how to go on after the control plane went back in time, such as by a restored backup (SPEC G10). `moved`: this control
    plane is the one that the storage belongs to, at another place, and no copy of it (SPEC T3).
    """
    with Region.open(config) as region:
        row = region.start(by=whoami(), restored=restored, moved=moved)
        follow(region, say)
        return region.await_running(row.epoch, timeout=timeout, progress=say) if wait else row


def stop(config: RegionConfig, *, wait: bool = True, say: Say = silent) -> rows.Region:
    """Cut a last time if the region runs; then the members leave."""
    with Region.open(config) as region:
        return region.stop(by=whoami(), wait=wait, progress=say)


def scale(
    config: RegionConfig, members: int, *, wait: bool = False, timeout: float | None = None, say: Say = silent
) -> rows.Region:
    """Change the number of wanted members; costs at most one reset."""
    with Region.open(config) as region:
        row = region.scale(members, by=whoami())
        if not wait:
            return row
        settled = waiting.until(region.plane, lambda reader, now: _scaled(reader, now, say), timeout=timeout)
        if settled is None:
            raise NotSettled(
                f"Region {row.name} does not run with {plural(members, 'member')} yet.",
                hint="`crkafka show` names what it waits for.",
            )
        return settled


def _scaled(reader: Reader, row: rows.Region, say: Say) -> rows.Region | None:
    """The row of a region that runs with exactly the wanted members; else None."""
    running = live(reader)
    if row.phase is Phase.STOPPED:
        raise RegionStopped(f"Region {row.name} is stopped: {row.stop_reason}", hint="Mend it, then `crkafka start`.")
    if row.phase is Phase.RUNNING and len(running) == row.members_wanted and not waits_for(reader, row):
        return row
    say(f"{row.phase.lower()} with {len(running)} of {plural(row.members_wanted, 'member')}")
    return None


def delete(config: RegionConfig) -> int:
    """Delete an idle region: its rows and its segments; the number of files. Tables stay."""
    with Region.open(config) as region:
        return region.delete()


WAIT = click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until it is done.")
TIMEOUT = click.option(
    "--timeout", type=number(0, _YEAR, of=float), metavar="SECONDS", help="Wait at most so long; then exit code 1."
)


@click.command("start")
@with_config
@click.option("--wait", is_flag=True, help="Wait until the region runs.")
@TIMEOUT
@click.option(
    "--restored",
    type=click.Choice(["rewind", "initial"]),
    help="After a restored backup: go on from the control plane's head, or from initial state.",
)
@click.option("--moved", is_flag=True, help="The control plane was moved: take over the segments of the old place.")
@json_option
def _start(
    config: RegionConfig,
    wait: bool,
    timeout: float | None,
    restored: Literal["rewind", "initial"] | None,
    moved: bool,
    as_json: bool,
) -> None:
    """Start the region; it also leaves STOPPED. Its members are run by a host: `crkafka host`, or Dagster."""
    with progress("starting", quiet=as_json) as say:
        row = start(
            config, restored=restored or "", moved=moved, wait=wait or timeout is not None, timeout=timeout, say=say
        )
    _answer(config, row, as_json)


@click.command("stop")
@with_config
@WAIT
@json_option
def _stop(config: RegionConfig, wait: bool, as_json: bool) -> None:
    """Cut a last time, if the region runs; then the members leave."""
    with progress("stopping", quiet=as_json) as say:
        row = stop(config, wait=wait, say=say)
    _answer(config, row, as_json)


@click.command("scale")
@with_config
@click.argument("members", type=number(0), metavar="MEMBERS")
@click.option("--wait", is_flag=True, help="Wait until the region runs with them.")
@TIMEOUT
@json_option
def _scale(config: RegionConfig, members: int, wait: bool, timeout: float | None, as_json: bool) -> None:
    """Change the number of MEMBERS; costs at most one reset."""
    with progress("scaling", quiet=as_json) as say:
        row = scale(config, members, wait=wait or timeout is not None, timeout=timeout, say=say)
    if members != config.members:
        note(f"the configuration still has members: {config.members}; only `crkafka init` of a new region reads it")
    _answer(config, row, as_json)


@click.command("delete")
@with_config
@yes_option
@json_option
def _delete(config: RegionConfig, yes: bool, as_json: bool) -> None:
    """Delete an idle region with its checkpoints and segments. Tables and topics stay."""
    confirm(f"Region {config.region}, its checkpoints and its segments in {config.storage} will be deleted.", yes=yes)
    files = delete(config)
    if as_json:
        print_json({"region": config.region, "segments": files})
    else:
        print(f"region {config.region} is deleted, with {plural(files, 'segment')}")


def _answer(config: RegionConfig, row: rows.Region, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "region": row.name,
                "phase": row.phase,
                "wanted": row.wanted,
                "epoch": row.epoch,
                "head": row.head,
                "members_wanted": row.members_wanted,
            }
        )
        return
    print(
        f"region {row.name} is {row.phase}, wanted: {row.wanted}; {plural(row.members_wanted, 'member')} wanted; head {row.head}"
    )
    if missing := _no_host(config):
        print(missing)
    elif row.phase not in (Phase.RUNNING, Phase.CUTTING, Phase.IDLE):
        print("`crkafka show` names what it waits for")


def _no_host(config: RegionConfig) -> str:
    """A sentence if members are wanted and no host runs them; else empty."""
    with control_plane(config) as plane:
        return plane.read(hosts.missing)


COMMANDS: dict[str, Any] = {"start": _start, "stop": _stop, "scale": _scale, "delete": _delete}
