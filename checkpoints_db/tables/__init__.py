"""The tables of the control plane: one typed model per row type, found by it in `MODELS`."""

from __future__ import annotations

from checkpoints_db.tables.base import Base
from checkpoints_db.tables.checkpoints import (
    Checkpoint,
    ContributedOffset,
    Contribution,
    Expected,
    MergedOffset,
    Segment,
)
from checkpoints_db.tables.declared import Table, TableCommit
from checkpoints_db.tables.events import Event
from checkpoints_db.tables.leases import Goal, Lease
from checkpoints_db.tables.members import Launch, Member
from checkpoints_db.tables.region import Group, Region
from checkpoints_db.tables.starts import Initial, PauseMark, Start
from crkafka_core.model.rows import Row

_ALL: tuple[type[Base], ...] = (
    Region, Group, Member, Launch, Checkpoint, Expected, Contribution, ContributedOffset, MergedOffset, Segment,
    Initial, Start, PauseMark, Lease, Table, TableCommit, Goal, Event,
)  # fmt: skip

MODELS: dict[type[Row], type[Base]] = {model.ROW: model for model in _ALL}

__all__ = ["MODELS", "Base"]
