"""`pause` and `resume`: pause marks of the region, which follow a partition from member to member (SPEC P1, P2)."""

from __future__ import annotations

import re
from typing import Any

import click

from crkafka_core.cli.call import json_option, with_config
from crkafka_core.cli.output import note, print_json, print_table
from crkafka_core.cli.resources import control_plane
from crkafka_core.config import RegionConfig
from crkafka_core.config.problem import nearest
from crkafka_core.holder import whoami
from crkafka_core.model.errors import Refused
from crkafka_core.model.rows import PauseMark
from crkafka_core.plane import pauses, starts


def pause(config: RegionConfig, kind: str, what: str, *, member: str = "", by: str = "") -> list[PauseMark]:
    """Set a mark, also on what does not exist yet; `member`: only while this member holds it. Returns all marks."""
    _check_of_this_region(config, kind, what, member)
    with control_plane(config) as plane:
        plane.do(lambda tx: pauses.pause(tx, kind, what, member=member, by=by or whoami()))
        return plane.read(lambda reader, _: pauses.all_of(reader))


def _check_of_this_region(config: RegionConfig, kind: str, what: str, member: str) -> None:
    """Refuse a mark on what this region never reads; what does not exist yet is allowed (SPEC P2)."""
    pauses.check(kind, what, member)
    for name in (member, what if kind == "member" else ""):
        if name and not re.fullmatch(re.escape(config.region) + r"/\d+", name):
            raise Refused(
                f"{name!r} is not a member of region {config.region}.", hint=f"Write it as {config.region}/0."
            )
    topic = what.rpartition("[")[0] if kind == "partition" else what
    if config.topics is not None:
        if kind in ("topic", "partition") and topic not in config.topics:
            hint = nearest(topic, config.topics) or f" It reads {', '.join(config.topics)}."
            raise Refused(f"Region {config.region} does not read a topic {topic!r}.{hint}")
        if kind == "pattern" and not any(re.search(what, t) for t in config.topics):
            raise Refused(f"The pattern {what!r} matches no topic of region {config.region}.")
    elif kind in ("topic", "partition") and re.search(config.pattern or "", topic) is None:
        raise Refused(f"The topic {topic!r} does not match the pattern {config.pattern!r} of region {config.region}.")


def resume(config: RegionConfig, kind: str, what: str, *, member: str = "", by: str = "") -> bool:
    """Remove a mark; whether it existed."""
    with control_plane(config) as plane:
        return plane.do(lambda tx: pauses.resume(tx, kind, what, member=member, by=by or whoami()))


def marks(config: RegionConfig) -> list[PauseMark]:
    """All marks of the region."""
    with control_plane(config) as plane:
        return plane.read(lambda reader, _: pauses.all_of(reader))


def in_words(mark: PauseMark) -> str:
    """A mark in words."""
    return f"{mark.kind} {mark.what}{f' of {mark.member}' if mark.member else ''}"


def kind_of(what: str) -> str:
    """The kind by its form: `a[3]` is a partition, `^a` a pattern, `orders/0` a member (no topic has a slash), all else a topic."""
    if re.fullmatch(r"[^\[\]]+\[\d+\]", what):
        return "partition"
    if what.startswith("^"):
        return "pattern"
    if "/" in what:
        return "member"
    return "topic"


KIND = click.option("--kind", type=click.Choice(pauses.KINDS), help="Kind of WHAT, if its form does not show it.")
MEMBER = click.option(
    "--member", default="", metavar="NAME", help="Only while this member holds it, such as `orders/0`."
)


@click.command("pause")
@with_config
@click.argument("what", required=False)
@KIND
@MEMBER
@json_option
def _pause(config: RegionConfig, what: str | None, kind: str | None, member: str, as_json: bool) -> None:
    """Pause WHAT: a topic, a partition as `orders[3]`, a pattern as `^shop`, a member as `orders/0`.

    A mark follows a partition from member to member. With --member it applies only while that member holds it; on a partition it is
    removed once a rebalance gives the partition to another member. Without WHAT, list the marks.
    """
    kind = kind or kind_of(what or "")
    marked = marks(config) if what is None else pause(config, kind, what, member=member)
    if as_json:
        print_json(marked)
        return
    print_table(
        ("kind", "what", "of member", "by"),
        ((m.kind, m.what, m.member, m.by) for m in marked),
        empty="nothing is paused",
    )
    if what is not None and kind == "partition" and (others := _partitions_beside(config, what)):
        note(f"{what} does not exist yet, and is paused once it does; known of its topic {others}")


def _partitions_beside(config: RegionConfig, what: str) -> str:
    """The known partitions of the topic, if this one is not among them; else empty."""
    topic = what.rpartition("[")[0]
    with control_plane(config) as plane:
        known = plane.read(lambda reader, _: sorted(tp for tp in starts.known(reader) if tp.topic == topic))
    if not known or what in map(str, known):
        return ""
    return f"is {known[0]}" if len(known) == 1 else f"are {known[0]} to {known[-1]}"


@click.command("resume")
@with_config
@click.argument("what")
@KIND
@MEMBER
@json_option
def _resume(config: RegionConfig, what: str, kind: str | None, member: str, as_json: bool) -> int:
    """Remove the mark on WHAT; exit code 1 if it has none."""
    kind = kind or kind_of(what)
    gone = resume(config, kind, what, member=member)
    if as_json:
        print_json({"kind": kind, "what": what, "member": member, "was_paused": gone})
    else:
        print(f"{kind} {what} {'flows again' if gone else 'was not paused by such a mark'}")
    return 0 if gone else 1


COMMANDS: dict[str, Any] = {"pause": _pause, "resume": _resume}
