"""What a member reads: its desired state, as one snapshot (level, not edge)."""

from __future__ import annotations

from collections.abc import Collection

from crkafka_core.control import Reader
from crkafka_core.model.desired import Aim, Desired, OpenCut
from crkafka_core.model.offsets import TP, partitions_in, unpack_offsets
from crkafka_core.model.phase import FLOWING, Phase
from crkafka_core.model.rows import Checkpoint, Filler, Member, MemberStatus, Region
from crkafka_core.plane import contents, goals, handover, pauses, roster
from crkafka_core.protocol.settle import live


def desired(
    reader: Reader, region: Region, rows: Collection[Member], name: str, incarnation: str, launch: int = 0
) -> Desired:
    """The desired state for this incarnation of this name, of this launch; `rows` are all members of the region."""
    row = next((row for row in rows if row.name == name), None)
    mine = row is not None and row.incarnation == incarnation
    at = (region.epoch, region.head)
    return Desired(
        uid=region.uid,
        version=region.version,
        epoch=region.epoch,
        phase=region.phase,
        head=region.head,
        registered=row is not None and mine and row.status is MemberStatus.LIVE,
        superseded=row is not None and not mine and row.launch > launch,
        wanted=region.phase is not Phase.IDLE and roster.index(name) < region.members_wanted,
        reported=row is not None and mine and bool(row.assignment_json) and (row.epoch, row.base) == at,
        asked=(region.asked_epoch, region.asked_head) == at,
        filling=region.filling,
        fills=_fills(reader, region.filling, name, incarnation) if region.phase in FLOWING else None,
        opened=region.opened,
        assembled=len(live(rows)) >= region.members_wanted,
        cut=_cut(reader, region, name, incarnation) if region.open_cut else None,
        marks=pauses.marks(reader),
        aims=tuple(
            Aim(
                goal.token,
                goal.at,
                tuple(sorted(unpack_offsets(goal.ends_json).items())),
                goals.reached_by(goal, name, incarnation, region.epoch),
            )
            for goal in goals.current(reader)
        ),
    )


def _cut(reader: Reader, region: Region, name: str, incarnation: str) -> OpenCut | None:
    row = reader.get(Checkpoint, region.open_cut)
    if row is None:
        return None
    mine = _fills(reader, row.id, name, incarnation)
    landed = contents.landed(reader, region, mine or frozenset())
    members = reader.column(Filler, "member", ("checkpoint", "=", row.id))
    in_tables = None if landed is None else tuple(sorted(landed.items()))
    why = handover.current(region)
    its_own = why is not None and why.cut == row.id
    return OpenCut(row.id, row.parent, row.generation, tuple(sorted(members)), mine, in_tables, its_own)


def _fills(reader: Reader, number: int, name: str, incarnation: str) -> frozenset[TP] | None:
    """Partitions of which this incarnation fills a number (SPEC C8)."""
    row = reader.get(Filler, number, name)
    return partitions_in(row.offsets_json) if row is not None and row.incarnation == incarnation else None
