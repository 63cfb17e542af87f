"""`reset`: back to the head, to an older checkpoint, or to initial state (SPEC X1-X4)."""

from __future__ import annotations

from typing import Any, Literal

import click

from crkafka_core.cli.call import MOST, confirm, json_option, with_config, yes_option
from crkafka_core.cli.fencing import follow
from crkafka_core.cli.life import TIMEOUT, WAIT
from crkafka_core.cli.output import Say, note, print_json, progress, silent
from crkafka_core.cli.resources import control_plane
from crkafka_core.config import RegionConfig
from crkafka_core.holder import whoami
from crkafka_core.plane import resets
from crkafka_core.region import Region

Target = int | Literal["initial"] | None


def reset(
    config: RegionConfig,
    to: Target = None,
    *,
    cause: str = "",
    fence: bool = True,
    wait: bool = False,
    timeout: float | None = None,
    give_up: tuple[str, ...] = (),
    say: Say = silent,
) -> int:
    """Reset the region; with `fence`, make its declared tables follow at once. The new epoch."""
    with Region.open(config) as region:
        epoch = region.reset(to, by=whoami(), cause=cause, give_up=give_up)
        if fence:
            follow(region, say)
        if wait:
            region.await_running(epoch, timeout=timeout, progress=say)
        return epoch


def check(config: RegionConfig, target: int | Literal["initial"], give_up: tuple[str, ...] = ()) -> None:
    """Refuse a target that the region cannot go back to, before the question to the person."""
    with control_plane(config) as plane:
        to = 0 if target == "initial" else target
        plane.read(lambda reader, row: resets.check_target(reader, row, to, give_up))


def _target(text: Any) -> int | str:
    if text in ("head", "initial"):
        return str(text)
    if str(text).isdecimal() and int(text) <= MOST:
        return int(text) or "initial"
    raise click.BadParameter(f"{text!r} is neither head, initial nor the number of a checkpoint")


@click.command("reset")
@with_config
@click.option(
    "--to",
    type=_target,
    metavar="head|initial|NUMBER",
    required=True,
    help="Target; `head` reads again all after the last checkpoint.",
)
@click.option("--cause", default="", help="Reason, for the event log.")
@click.option(
    "--give-up",
    multiple=True,
    metavar="TOPIC",
    help="A forgotten topic whose rows may leave the tables, though they cannot be read again. Repeat for more topics.",
)
@click.option("--fence/--no-fence", default=True, show_default=True, help="Make the declared tables follow at once.")
@WAIT
@TIMEOUT
@yes_option
@json_option
def _reset(
    config: RegionConfig,
    to: int | str,
    cause: str,
    give_up: tuple[str, ...],
    fence: bool,
    wait: bool,
    timeout: float | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Go back to the last checkpoint, an older one, or the initial state; later rows leave the tables, and their records are read again."""
    target: Target = None if to == "head" else "initial" if to == "initial" else int(to)
    if target is not None:
        check(config, target, give_up)
        where = "initial state" if target == "initial" else f"checkpoint {target}"
        confirm(
            f"Region {config.region} goes back to {where}; later checkpoints are superseded and leave the tables.",
            yes=yes,
        )
    with progress("resetting", quiet=as_json) as say:
        idle = wait and _is_idle(config)
        waits = wait and not idle
        epoch = reset(config, target, cause=cause, fence=fence, wait=waits, timeout=timeout, give_up=give_up, say=say)
    if as_json:
        print_json({"region": config.region, "epoch": epoch, "to": to})
    else:
        print(f"region {config.region} goes on from {'the head' if target is None else to} in epoch {epoch}")
        if idle:
            note("the region is idle: it goes on from there when it is started")


def _is_idle(config: RegionConfig) -> bool:
    with Region.open(config) as region:
        return region.status().region.phase == "IDLE"


COMMANDS: dict[str, Any] = {"reset": _reset}
