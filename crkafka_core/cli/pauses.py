"""`pause` and `resume`: pause marks of the region, which follow a partition from member to member (SPEC P1, P2)."""

from __future__ import annotations

import re
from functools import partial

import click

from crkafka_core.cli.call import Answer, control_plane, verb
from crkafka_core.cli.output import print_table
from crkafka_core.config import RegionConfig
from crkafka_core.config.problem import nearest
from crkafka_core.holder import whoami
from crkafka_core.model.errors import Refused
from crkafka_core.model.offsets import TP
from crkafka_core.plane import pauses, starts


def _check_of_this_region(config: RegionConfig, kind: str, what: str, member: str) -> None:
    """Refuse a mark on what this region never reads; what does not exist yet is allowed (SPEC P2)."""
    pauses.check(kind, what, member)
    for name in (member, what if kind == "member" else ""):
        if name and not re.fullmatch(re.escape(config.region) + r"/\d+", name):
            text = f"{name!r} is not a member of region {config.region}."
            raise Refused(text, hint=f"Write it as {config.region}/0.")
    topic = what.rpartition("[")[0] if kind == "partition" else what
    if config.topics is not None:
        if kind in ("topic", "partition") and topic not in config.topics:
            hint = nearest(topic, config.topics) or f" It reads {', '.join(config.topics)}."
            raise Refused(f"Region {config.region} does not read a topic {topic!r}.{hint}")
        if kind == "pattern" and not any(re.search(what, t) for t in config.topics):
            raise Refused(f"The pattern {what!r} matches no topic of region {config.region}.")
    elif kind in ("topic", "partition") and re.search(config.pattern or "", topic) is None:
        raise Refused(f"The topic {topic!r} does not match the pattern {config.pattern!r} of region {config.region}.")


def kind_of(what: str) -> str:
    """The kind by its form: `a[3]` is a partition, `^a` a pattern, `orders/0` a member (no topic has a slash), all else a topic."""
    if re.fullmatch(r"[^\[\]]+\[\d+\]", what):
        return "partition"
    return "pattern" if what.startswith("^") else "member" if "/" in what else "topic"


KIND = click.option("--kind", type=click.Choice(pauses.KINDS), help="Kind of WHAT, if its form does not show it.")
_HOLDS = "Only while this member holds it, such as `orders/0`."
MEMBER = click.option("--member", default="", show_default=False, metavar="NAME", help=_HOLDS)


@verb("pause")
@click.argument("what", required=False)
@KIND
@MEMBER
def pause(config: RegionConfig, what: str | None = None, *, kind: str | None = None, member: str = "") -> Answer:
    """Pause WHAT: a topic, a partition as `orders[3]`, a pattern as `^shop`, a member as `orders/0`.

    A mark follows a partition from member to member. With --member it applies only while that member holds it; on a partition it is
    removed once a rebalance gives the partition to another member. Without WHAT, list the marks.
    """
    kind = kind or kind_of(what or "")
    if what is not None:
        _check_of_this_region(config, kind, what, member)
    with control_plane(config) as plane:
        known: list[TP] = []
        if what is not None:
            plane.do(lambda tx: pauses.pause(tx, kind, what, member=member, by=whoami()))
            topic = what.rpartition("[")[0] if kind == "partition" else ""
            known = plane.read(lambda reader, _: sorted(tp for tp in starts.known(reader) if tp.topic == topic))
        marks = plane.read(lambda reader, _: pauses.all_of(reader))
    notes = []
    if what and known and what not in map(str, known):
        others = f"is {known[0]}" if len(known) == 1 else f"are {known[0]} to {known[-1]}"
        notes = [f"{what} does not exist yet, and is paused once it does; known of its topic {others}"]
    rows = [(m.kind, m.what, m.member, m.by) for m in marks]
    table = partial(print_table, ("kind", "what", "of member", "by"), rows, empty="nothing is paused")
    return Answer(marks, table, notes)


@verb("resume")
@click.argument("what")
@KIND
@MEMBER
def resume(config: RegionConfig, what: str, *, kind: str | None = None, member: str = "") -> Answer:
    """Remove the mark on WHAT; exit code 1 if it has none."""
    kind = kind or kind_of(what)
    with control_plane(config) as plane:
        gone = plane.do(lambda tx: pauses.resume(tx, kind, what, member=member, by=whoami()))
    value = {"kind": kind, "what": what, "member": member, "was_paused": gone}
    text = f"{kind} {what} {'flows again' if gone else 'was not paused by such a mark'}"
    return Answer(value, text, code=int(not gone))
