"""A table of decoded records has not as many rows of a checkpoint as were merged: its commits tell how many (SPEC K6)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Of older commits it is not known, but for those of a single checkpoint."""
    op.add_column("table_commit", sa.Column("counts_json", TEXT, nullable=False, server_default=""))
