"""How a declared table is laid out: adopted segment files, or partitions by checkpoint that Spark writes (SPEC K6)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Tables that are there stay as they are: Spark goes on writing them, partitioned by checkpoint."""
    op.add_column("declared_table", sa.Column("layout", TEXT, nullable=False, server_default=""))
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("declared_table", "layout", server_default=None)
