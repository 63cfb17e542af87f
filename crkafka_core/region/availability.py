"""Whether Kafka still holds what a reset would go back to, looked at before anything is destroyed (SPEC X4, S4)."""

from __future__ import annotations

from crkafka_core.control import Reader
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.model.errors import DataLoss
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Region
from crkafka_core.plane import starts
from crkafka_core.plane.transact import ControlPlane


def _targets(reader: Reader, region: Region, target: int) -> dict[TP, int]:
    """Where each known partition would be sought."""
    known = starts.known(reader, region.name)
    head = starts.merged(reader, region.name, target) if target else {}
    return {tp: head[tp].to_offset if tp in head else initial.offset for tp, initial in known.items()}


def check_available(plane: ControlPlane, admin: KafkaAdmin, target: int) -> None:
    """Refuse a reset that could not be completed, with the nearest checkpoint that can be."""
    wanted = plane.read(lambda reader, region: _targets(reader, region, target))
    earliest = {tp: ends[0] for tp, ends in admin.watermarks(wanted, "read_uncommitted").items()}
    gone = sorted(tp for tp, offset in wanted.items() if offset < earliest[tp])
    if not gone:
        return
    later = plane.read(
        lambda reader, region: [
            c.id
            for c in reader.select(
                Checkpoint,
                ("region", "=", region.name),
                ("status", "=", CheckpointStatus.MERGED),
                ("id", ">", target),
                order=("id",),
            )
            if all(offset >= earliest.get(tp, 0) for tp, offset in _targets(reader, region, c.id).items())
        ]
    )
    tp = gone[0]
    raise DataLoss(
        f"Kafka no longer holds what follows {f'checkpoint {target}' if target else 'initial state'}: {tp} would start at {wanted[tp]}, "
        f"but begins at {earliest[tp]}.",
        hint=f"The nearest that can be restored is checkpoint {later[0]}."
        if later
        else "No older checkpoint can be restored.",
    )
