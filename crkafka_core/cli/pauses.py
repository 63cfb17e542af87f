"""`pause` and `resume`: marks of the region, which follow a partition to whoever holds it (SPEC P1, P2)."""

from __future__ import annotations

import re
from typing import Any

import click

from crkafka_core.cli.call import caller, json_option, with_config
from crkafka_core.cli.output import print_json, print_table
from crkafka_core.cli.plane import control_plane
from crkafka_core.config import RegionConfig
from crkafka_core.model.rows import PauseMark
from crkafka_core.plane import pauses


def pause(config: RegionConfig, kind: str, what: str, *, by: str = "") -> list[PauseMark]:
    """Pause what the mark names, also what does not exist yet; all marks."""
    with control_plane(config) as plane:
        plane.do(lambda tx: pauses.pause(tx, kind, what, by=by or caller()))
        return plane.read(lambda reader, region: reader.select(PauseMark, ("region", "=", region.name)))


def resume(config: RegionConfig, kind: str, what: str, *, by: str = "") -> bool:
    """Take the mark away; whether it was there."""
    with control_plane(config) as plane:
        return plane.do(lambda tx: pauses.resume(tx, kind, what, by=by or caller()))


def marks(config: RegionConfig) -> list[PauseMark]:
    """All marks of the region."""
    with control_plane(config) as plane:
        return plane.read(lambda reader, region: reader.select(PauseMark, ("region", "=", region.name)))


def kind_of(what: str, region: str) -> str:
    """What a person means: `a[3]` is a partition, `^a` a pattern, `orders/0` a member of orders, all else a topic."""
    if re.fullmatch(r"[^\[\]]+\[\d+\]", what):
        return "partition"
    if what.startswith("^"):
        return "pattern"
    if re.fullmatch(re.escape(region) + r"/\d+", what):
        return "member"
    return "topic"


@click.command("pause")
@with_config
@click.argument("what", required=False)
@click.option("--kind", type=click.Choice(pauses.KINDS), help="What WHAT is, if its form does not say.")
@json_option
def _pause(config: RegionConfig, what: str | None, kind: str | None, as_json: bool) -> None:
    """Pause WHAT: a topic, a partition as `orders[3]`, a pattern as `^shop`, a member as `orders/0`.

    Without WHAT, list the marks.
    """
    found = marks(config) if what is None else pause(config, kind or kind_of(what, config.region), what)
    if as_json:
        print_json(found)
    else:
        print_table(("kind", "what", "by"), ((m.kind, m.what, m.by) for m in found), empty="nothing is paused")


@click.command("resume")
@with_config
@click.argument("what")
@click.option("--kind", type=click.Choice(pauses.KINDS), help="What WHAT is, if its form does not say.")
@json_option
def _resume(config: RegionConfig, what: str, kind: str | None, as_json: bool) -> int:
    """Take the mark on WHAT away; exit code 1 if there is none."""
    kind = kind or kind_of(what, config.region)
    gone = resume(config, kind, what)
    if as_json:
        print_json({"kind": kind, "what": what, "was_paused": gone})
    else:
        print(f"{kind} {what} {'flows again' if gone else 'was not paused by a mark of the region'}")
    return 0 if gone else 1


COMMANDS: dict[str, Any] = {"pause": _pause, "resume": _resume}
