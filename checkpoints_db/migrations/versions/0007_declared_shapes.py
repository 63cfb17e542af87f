"""A declared table knows the shape of its rows: who writes it uses that, or is refused (SPEC K6)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Tables that are there have no declared shape."""
    with op.batch_alter_table("declared_table") as table:
        for name in ("shape", "output"):
            table.add_column(sa.Column(name, TEXT, nullable=False, server_default=""))
