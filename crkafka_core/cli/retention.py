"""`retire`, `forget`, `skip`: let go of old checkpoints, of topics, of records that no client can read (SPEC T1-T3, S4, X9)."""

from __future__ import annotations

import click

from crkafka_core.cli.call import Answer, verb
from crkafka_core.cli.output import Say, silent
from crkafka_core.cli.resources import control_plane
from crkafka_core.config import RegionConfig
from crkafka_core.holder import whoami
from crkafka_core.model.errors import Refused
from crkafka_core.model.offsets import parse_offsets
from crkafka_core.model.plural import plural
from crkafka_core.plane import starts
from crkafka_core.region import Region


@verb("retire", doing="retiring")
def retire(config: RegionConfig, *, say: Say = silent) -> Answer:
    """Delete checkpoints older than the last `retain` that no table or reader holds; collect orphaned files."""
    with Region.open(config) as region:
        done = region.retire(progress=say)
    retired, segments = plural(len(done.checkpoints), "checkpoint"), plural(done.segments, "segment")
    text = f"{retired} retired, {segments} and {plural(done.orphans, 'orphan')} deleted"
    return Answer(done, text, [f"held back: {holder}" for holder in done.held])


def _refuse_unknown(config: RegionConfig, topic: str) -> None:
    with control_plane(config) as plane:
        topics = plane.read(lambda reader, row: {tp.topic for tp in starts.known(reader)})
    if topic not in topics:
        raise Refused(
            f"Region {config.region} knows no topic {topic!r}, or has forgotten it already.",
            hint=f"It knows {', '.join(sorted(topics)) or 'none'}.",
        )


def _forgets(config: RegionConfig, topic: str) -> str:
    _refuse_unknown(config, topic)
    return (
        f"Region {config.region} gives up what it has not read yet of topic {topic}; a topic of this name with another id is "
        "read as a new one."
    )


@verb("forget", asks=_forgets)
@click.argument("topic")
def forget(config: RegionConfig, topic: str) -> Answer:
    """Go on without TOPIC, which was deleted, recreated or unsubscribed; its offsets are carried forward."""
    with Region.open(config) as region:
        partitions = region.forget(topic, by=whoami())
    carried = f"{plural(partitions, 'partition')} of {topic} carried forward from now on"
    return Answer({"topic": topic, "partitions": partitions}, f"{carried}; `crkafka start` if the region is stopped")


def _skips(config: RegionConfig, offsets: str) -> str:
    tp, first, last = parse_offsets(offsets)
    _refuse_unknown(config, tp.topic)
    return f"Region {config.region} gives up offsets {first} to {last} of {tp} for good."


@verb("skip", asks=_skips)
@click.argument("offsets", metavar="TOPIC[P]@OFFSET[-LAST]")
def skip(config: RegionConfig, offsets: str) -> Answer:
    """Skip records that no client can read. The head must be at the first of them; the gap is recorded, and the region resets."""
    tp, first, last = parse_offsets(offsets)
    with Region.open(config) as region:
        goes_on = region.skip(tp, first, last, by=whoami())
    value = {"topic": tp.topic, "partition": tp.partition, "goes_on_at": goes_on}
    return Answer(value, f"{tp} goes on at offset {goes_on}")
