"""Offsets name the leader epoch of the record before them: a log that was cut and has grown again shows by it (SPEC S4)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Of what was merged before it is unknown: nothing is compared until a partition gives records again."""
    for table in ("contributed_offset", "merged_offset"):
        op.add_column(table, sa.Column("leader_epoch", sa.BigInteger(), nullable=False, server_default="-1"))
