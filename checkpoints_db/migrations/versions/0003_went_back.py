"""A region remembers that its control plane was seen to be older than what it had written (SPEC G10)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Whether a region that is stopped now had gone back is not known: its next look back tells."""
    op.add_column("region", sa.Column("went_back", sa.Boolean(), nullable=False, server_default=sa.false()))
