"""Alembic's environment: runs on the connection and in the transaction of `checkpoints_db.schema`."""

from __future__ import annotations

from alembic import context

from checkpoints_db.migrations import VERSION_TABLE
from checkpoints_db.tables import METADATA

connection = context.config.attributes["connection"]
context.configure(connection, target_metadata=METADATA, version_table=VERSION_TABLE, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
