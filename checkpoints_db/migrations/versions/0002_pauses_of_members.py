"""A pause mark may count for one member only (SPEC P1): its name is part of the key."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """A new table, since the key changes; what was marked stays marked, for whoever holds it."""
    op.create_table(
        "pause_mark_0002",
        sa.Column("region", TEXT, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("what", TEXT, nullable=False),
        sa.Column("member", TEXT, nullable=False),
        sa.Column("by", TEXT, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("region", "kind", "what", "member", name="pk_pause_mark_0002"),
        sqlite_with_rowid=False,
    )
    op.execute(
        'INSERT INTO pause_mark_0002 (region, kind, what, member, "by", "at") '
        'SELECT region, kind, what, \'\', "by", "at" FROM pause_mark'
    )
    op.drop_table("pause_mark")
    op.rename_table("pause_mark_0002", "pause_mark")
