"""Records that were erased for good are known by their offsets, so that no table gets them again (SPEC K6)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """None was so far."""
    op.add_column("checkpoint", sa.Column("erased_json", TEXT, nullable=False, server_default="{}"))
