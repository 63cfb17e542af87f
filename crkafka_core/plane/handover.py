"""The handover that is under way: a rebalance or a loss while records flow merges first what was submitted (SPEC X10).

Its cut takes what those who fill the current number have submitted, and its merge resets the region to the new head. An ordinary cut
that is open merges first, under the same deadline; the handover of the next number opens in that transaction (`plane/merging.py`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from crkafka_core.control import Reader, Tx
from crkafka_core.model import limits
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import ANY_GENERATION, Checkpoint, ContributedOffset, Filler, Region, ResetCause
from crkafka_core.plane import events, roster


@dataclass(frozen=True)
class Handover:
    """The reset that follows the merge."""

    cause: ResetCause
    text: str
    member: str = ""
    by: str = ""
    cut: int = 0
    """The handover's own cut; 0 while an ordinary one is open."""
    lacking: int = 0
    """The ordinary cut, if it merged without a member."""
    failed: Sequence[str] = ()
    """Members that cannot contribute any more in this epoch."""


def current(region: Region) -> Handover | None:
    if not region.handover_json:
        return None
    stored = json.loads(region.handover_json)
    return Handover(ResetCause(stored.pop("cause")), **stored)


def begin(tx: Tx, handover: Handover) -> None:
    """Note that one is under way: an open cut has its deadline from now on. Of several causes a loss counts, else the first."""
    region = tx.region()
    before = current(region)
    if before is None:
        handover = replace(handover, text=events.kept(handover.text))
        events.log(tx, "handover", handover.text, checkpoint=region.filling, member=handover.member, by=handover.by)
        if region.open_cut:
            row = tx.get(Checkpoint, region.open_cut)
            assert row is not None
            deadline = (
                tx.now() + limits.of(region).handover_timeout
            )  # then it merges without the members that are silent
            tx.put(replace(row, deadline=min(row.deadline, deadline), generation=ANY_GENERATION))
    elif handover.cause is ResetCause.LOST and before.cause is not ResetCause.LOST:
        text = events.kept(handover.text)
        handover = replace(before, cause=handover.cause, text=text, member=handover.member, by=handover.by)
    else:
        return
    note(tx, handover)


def fails(tx: Tx, handover: Handover, member: str, why: str) -> None:
    """A member cannot contribute any more in this epoch; what it has contributed counts."""
    if member not in handover.failed:
        events.log(tx, "left out", why, checkpoint=tx.region().open_cut, member=member)
        note(tx, replace(handover, failed=[*handover.failed, member]))


def note(tx: Tx, handover: Handover) -> None:
    tx.set_region(handover_json=json.dumps(asdict(handover), ensure_ascii=False))


def live(reader: Reader, fillers: Iterable[Filler]) -> set[str]:
    """Names of the members that can still contribute: neither lost, nor gone, nor superseded, nor failed."""
    under_way = current(reader.region())
    failed = under_way.failed if under_way is not None else ()
    names = {f.member for f in fillers if roster.if_live(reader, f.member, f.incarnation) is not None}
    return names.difference(failed)


def carried(fillers: Iterable[Filler], checkpoint: int, known: Collection[TP]) -> list[ContributedOffset]:
    """The partitions of members that are left out: each stays where its filler was to begin."""
    return [
        ContributedOffset(f.region, checkpoint, "", *tp, due, due, 0)
        for f in fillers
        for tp, due in f.offsets.items()
        if tp in known
    ]
