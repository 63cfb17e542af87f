"""`reset`: back to the head, to an older checkpoint, or to initial state (SPEC X1-X4)."""

from __future__ import annotations

from typing import Any, Literal

import click

from crkafka_core.cli.call import MOST, Answer, verb
from crkafka_core.cli.life import TIMEOUT, WAIT, follow
from crkafka_core.cli.output import Say, silent
from crkafka_core.cli.resources import control_plane
from crkafka_core.config import RegionConfig
from crkafka_core.holder import whoami
from crkafka_core.plane import resets
from crkafka_core.region import Region

Target = int | Literal["head", "initial"]


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
        idle = wait and region.status().region.phase == "IDLE"
        epoch = region.reset(None if to == "head" else to, by=whoami(), cause=cause, give_up=give_up)
        if fence:
            follow(region, say)
        if wait and not idle:
            region.await_running(epoch, timeout=timeout, progress=say)
    text = f"region {config.region} goes on from {'the head' if to == 'head' else to} in epoch {epoch}"
    notes = ["the region is idle: it goes on from there when it is started"] if idle else []
    return Answer({"region": config.region, "epoch": epoch, "to": to}, text, notes)
