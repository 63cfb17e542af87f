"""The merge of an open cut when a test asks for it; in production the last contribution, or the deadline, merges it."""

from __future__ import annotations

from crkafka_core.control import Tx
from crkafka_core.model.errors import Mismatch, NotOpen, NotSettled, Refused
from crkafka_core.model.rows import Checkpoint, CheckpointStatus
from crkafka_core.plane import merging


def merge_cut(tx: Tx, checkpoint: int) -> Checkpoint | Refused:
    """Merge it, if no contribution is awaited any more; one that is merged already is given again."""
    row = tx.get(Checkpoint, checkpoint)
    if row is not None and (row.status is CheckpointStatus.EMPTY or row.merged_at):
        return row
    if row is None or tx.region().open_cut != checkpoint:
        raise NotOpen(f"Checkpoint {checkpoint} is {'unknown' if row is None else row.status.lower()}.")
    cut = merging._gather(tx)
    if cut.waits and (cut.why is None or tx.now() <= row.deadline):
        raise NotSettled(f"Checkpoint {row.id} still waits for {', '.join(cut.waits)}.")
    merging._merge(tx, cut)
    row = tx.get(Checkpoint, checkpoint)
    assert row is not None
    return Mismatch(row.note) if row.status is CheckpointStatus.ABORTED else row
