"""`retire`, `forget`, `skip`: let go of old checkpoints, of topics, of records that no client can read (SPEC T1-T3, S4, X9)."""

from __future__ import annotations

from typing import Any

import click

from crkafka_core.cli.call import json_option, with_config
from crkafka_core.cli.confirming import confirm, yes_option
from crkafka_core.cli.life import silent
from crkafka_core.cli.output import note, print_json
from crkafka_core.cli.plane import control_plane
from crkafka_core.cli.progress import Say, progress
from crkafka_core.config import RegionConfig
from crkafka_core.holder import whoami
from crkafka_core.model.errors import Refused
from crkafka_core.model.offsets import TP, parse_offsets
from crkafka_core.model.plural import plural
from crkafka_core.plane import starts
from crkafka_core.region import Region
from crkafka_core.region.retire import Retired


def retire(config: RegionConfig, *, say: Say = silent) -> Retired:
    """Delete what is older than the last `retain` checkpoints and held by nobody, and collect orphans."""
    with Region.open(config) as region:
        return region.retire(progress=say)


def forget(config: RegionConfig, topic: str) -> int:
    """Carry a deleted or unsubscribed topic's offsets forward from now on; the number of its partitions."""
    _refuse_unknown(config, topic)
    with Region.open(config) as region:
        return region.forget(topic, by=whoami())


def _refuse_unknown(config: RegionConfig, topic: str) -> None:
    """Before anybody is asked whether they mean it."""
    with control_plane(config) as plane:
        topics = plane.read(lambda reader, row: {tp.topic for tp in starts.known(reader)})
    if topic not in topics:
        raise Refused(
            f"Region {config.region} knows no topic {topic!r}, or has forgotten it already.",
            hint=f"It knows {', '.join(sorted(topics)) or 'none'}.",
        )


def skip(config: RegionConfig, tp: TP, first: int, last: int) -> int:
    """Pass over offsets that no client can read, as a recorded gap; where the partition goes on (SPEC X9)."""
    with Region.open(config) as region:
        return region.skip(tp, first, last, by=whoami())


@click.command("retire")
@with_config
@json_option
def _retire(config: RegionConfig, as_json: bool) -> None:
    """Delete what is older than the last `retain` checkpoints and held by nobody; collect orphaned files."""
    with progress("retiring", quiet=as_json) as say:
        done = retire(config, say=say)
    if as_json:
        print_json(done)
        return
    print(
        f"{plural(len(done.checkpoints), 'checkpoint')} retired, {plural(done.segments, 'segment')} "
        f"and {plural(done.orphans, 'orphan')} deleted"
    )
    for who in done.held:
        note(f"held back: {who}")


@click.command("forget")
@with_config
@click.argument("topic")
@yes_option
@json_option
def _forget(config: RegionConfig, topic: str, yes: bool, as_json: bool) -> None:
    """Carry on without TOPIC, which was deleted, made anew or unsubscribed; its offsets are carried forward."""
    _refuse_unknown(config, topic)
    confirm(
        f"Region {config.region} gives up what it has not read yet of topic {topic}; what is there now under this name with another id "
        "is read as a new topic.",
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
    """Pass over records that no client can read. The head must stand at the first of them; the gap is recorded, and the region resets."""
    tp, first, last = parse_offsets(offsets)
    _refuse_unknown(config, tp.topic)
    confirm(f"Region {config.region} gives up offsets {first} to {last} of {tp} for good.", yes=yes)
    goes_on = skip(config, tp, first, last)
    if as_json:
        print_json({"topic": tp.topic, "partition": tp.partition, "goes_on_at": goes_on})
    else:
        print(f"{tp} goes on at offset {goes_on}")


COMMANDS: dict[str, Any] = {"retire": _retire, "forget": _forget, "skip": _skip}
