"""A region says which protocol its members have to speak."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """All members so far spoke the first one."""
    op.add_column("region", sa.Column("protocol", sa.BigInteger(), nullable=False, server_default="1"))
