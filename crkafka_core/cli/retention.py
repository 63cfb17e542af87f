"""`retire`, `forget`, `skip`: let go of old checkpoints, of topics, of records that no client can read (SPEC T1-T3, S4, X9)."""

from __future__ import annotations

from typing import Any

import click

from crkafka_core.cli.call import confirm, json_option, with_config, yes_option
from crkafka_core.cli.output import Say, note, print_json, progress, silent
from crkafka_core.cli.resources import control_plane
from crkafka_core.config import RegionConfig
from crkafka_core.holder import whoami
from crkafka_core.model.errors import Refused
from crkafka_core.model.offsets import TP, parse_offsets
from crkafka_core.model.plural import plural
from crkafka_core.plane import starts
from crkafka_core.region import Region
from crkafka_core.region.retire import Retired


def retire(config: RegionConfig, *, say: Say = silent) -> Retired:
    """Delete checkpoints older than the last `retain` that no table or reader holds, and collect orphaned files."""
    with Region.open(config) as region:
        return region.retire(progress=say)


def forget(config: RegionConfig, topic: str) -> int:
    """Carry a deleted or unsubscribed topic's offsets forward from now on; returns the number of its partitions."""
    _refuse_unknown(config, topic)
    with Region.open(config) as region:
        return region.forget(topic, by=whoami())


def _refuse_unknown(config: RegionConfig, topic: str) -> None:
    """Refuse an unknown topic before the question to the person."""
    with control_plane(config) as plane:
        topics = plane.read(lambda reader, row: {tp.topic for tp in starts.known(reader)})
    if topic not in topics:
        raise Refused(
            f"Region {config.region} knows no topic {topic!r}, or has forgotten it already.",
            hint=f"It knows {', '.join(sorted(topics)) or 'none'}.",
        )


def skip(config: RegionConfig, tp: TP, first: int, last: int) -> int:
    """Skip offsets that no client can read, as a recorded gap; returns the next offset (SPEC X9)."""
    with Region.open(config) as region:
        return region.skip(tp, first, last, by=whoami())


@click.command("retire")
@with_config
@json_option
def _retire(config: RegionConfig, as_json: bool) -> None:
    """Delete checkpoints older than the last `retain` that no table or reader holds; collect orphaned files."""
    with progress("retiring", quiet=as_json) as say:
        done = retire(config, say=say)
    if as_json:
        print_json(done)
        return
    print(
        f"{plural(len(done.checkpoints), 'checkpoint')} retired, {plural(done.segments, 'segment')} "
        f"and {plural(done.orphans, 'orphan')} deleted"
    )
    for holder in done.held:
        note(f"held back: {holder}")


@click.command("forget")
@with_config
@click.argument("topic")
@yes_option
@json_option
def _forget(config: RegionConfig, topic: str, yes: bool, as_json: bool) -> None:
    """Go on without TOPIC, which was deleted, recreated or unsubscribed; its offsets are carried forward."""
    _refuse_unknown(config, topic)
    confirm(
        f"Region {config.region} gives up what it has not read yet of topic {topic}; a topic of this name with another id "
        "is read as a new one.",
        yes=yes,
    )
    partitions = forget(config, topic)
    if as_json:
        print_json({"topic": topic, "partitions": partitions})
    else:
        print(
            f"{plural(partitions, 'partition')} of {topic} carried forward from now on; `crkafka start` if the region is stopped"
        )


@click.command("skip")
@with_config
@click.argument("offsets", metavar="TOPIC[P]@OFFSET[-LAST]")
@yes_option
@json_option
def _skip(config: RegionConfig, offsets: str, yes: bool, as_json: bool) -> None:
    """Skip records that no client can read. The head must be at the first of them; the gap is recorded, and the region resets."""
    tp, first, last = parse_offsets(offsets)
    _refuse_unknown(config, tp.topic)
    confirm(f"Region {config.region} gives up offsets {first} to {last} of {tp} for good.", yes=yes)
    goes_on = skip(config, tp, first, last)
    if as_json:
        print_json({"topic": tp.topic, "partition": tp.partition, "goes_on_at": goes_on})
    else:
        print(f"{tp} goes on at offset {goes_on}")


COMMANDS: dict[str, Any] = {"retire": _retire, "forget": _forget, "skip": _skip}
