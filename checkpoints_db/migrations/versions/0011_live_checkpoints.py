"""Which checkpoints are live, and have rows, is read without their archives (SPEC A2, A3)."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """In the order of their ids."""
    with op.batch_alter_table("checkpoint", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_checkpoint_region_id_status_rows"), ["region", "id", "status", "rows"], unique=False
        )
