"""Start positions of partitions that are new to the region: beginning, end, timestamp, default (SPEC S2, S3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from crkafka_core.config import RegionConfig
from crkafka_core.kafka.edge import Admin, Committed
from crkafka_core.kafka.errors import KafkaUnavailable
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.offsets import TP
from crkafka_core.protocol.commit_metadata import CommitMetadata


def propose(
    config: RegionConfig, admin: Admin, uid: str, tps: Iterable[TP], *, born: bool
) -> dict[TP, tuple[int, str]]:
    """Per partition (offset, name of the position). A partition found after the birth goes by `new_partitions`. One without a leader is
    left out, since its end is unknown, until it has one. At a birth only where the later start is the same, and another partition has a
    leader."""
    known, silent = admin.known_watermarks(tps)
    later = born or (bool(known) and config.start.position == config.start.new_partitions)
    for error in silent.values():
        if not (later and isinstance(error, KafkaUnavailable)):
            raise error
    tps = sorted(known)
    position = config.start.new_partitions if born else config.start.position
    if position in ("beginning", "end"):
        return {tp: (ends[position == "end"], position) for tp, ends in known.items()}
    if position == "timestamp":
        assert config.start.timestamp is not None
        return {tp: (offset, "timestamp") for tp, offset in admin.offsets_for_time(tps, config.start.timestamp).items()}
    return _default(config, admin, uid, known)


def _default(
    config: RegionConfig, admin: Admin, uid: str, ends: Mapping[TP, tuple[int, int]]
) -> dict[TP, tuple[int, str]]:
    """The group's committed offset, as far as it can be believed; else `auto.offset.reset`, resolved by us (SPEC S2)."""
    committed = admin.committed(config.group_id, ends)
    proposed: dict[TP, tuple[int, str]] = {}
    for tp in sorted(ends):
        commit, fallback = committed.get(tp), config.start_fallback
        if commit is None:
            if fallback == "error":
                raise ConfigError(
                    f"Group {config.group_id} has no committed offset for {tp}, and `auto_offset_reset: error` allows nothing else.",
                    hint="Choose another start position.",
                )
            proposed[tp] = ends[tp][fallback == "latest"], fallback
            continue
        parsed = CommitMetadata.parse(commit.metadata)
        if parsed is None:
            proposed[tp] = (commit.offset, "committed")
        elif parsed.uid == uid:
            proposed[tp] = (min(commit.offset, parsed.merged), "adopted")
        elif parsed.uid == config.start.adopt:
            proposed[tp] = (min(commit.offset, parsed.safe), "adopted")
        else:
            raise ConfigError(
                f"The committed offset of {tp} in group {config.group_id} was made by another region, uid {parsed.uid}.",
                hint=f"If this region takes over from it, say `start: {{position: default, adopt: {parsed.uid}}}`; else use another "
                "group.id.",
            )
    return _uncut(config, admin, committed, proposed)


def _uncut(
    config: RegionConfig, admin: Admin, committed: Mapping[TP, Committed], proposed: dict[TP, tuple[int, str]]
) -> dict[TP, tuple[int, str]]:
    """A commit may be of a log that was cut since and has grown again: known by the leader epoch beside it (SPEC S4)."""
    asked = {tp: (c.offset, c.leader_epoch) for tp, c in committed.items() if c.leader_epoch >= 0}
    cut = admin.cut_below(asked) if asked else {}
    for tp, end in cut.items():
        offset, position = proposed[tp]
        if offset <= end:
            continue
        if config.data_loss != "gap":
            raise ConfigError(
                f"Group {config.group_id} has committed offset {offset} of {tp}, whose log was cut at {end} since by the election of a "
                "leader that lacked records, and has grown again.",
                hint="Choose another start position, or `data_loss: gap` to go on from there.",
            )
        proposed[tp] = end, position
    return proposed
