"""A cut may be wanted only if there is something new: then an idle region keeps its history (SPEC V1, C6)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Every cut so far became a checkpoint."""
    op.add_column("checkpoint", sa.Column("if_new", sa.Boolean(), nullable=False, server_default=sa.false()))
