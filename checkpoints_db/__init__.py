"""The control plane on SQLAlchemy: SQLite and PostgreSQL, one store of typed rows."""

from __future__ import annotations

from checkpoints_db.schema import initialise, open_store, roles
from checkpoints_db.store import SqlStore

__all__ = ["SqlStore", "initialise", "open_store", "roles"]
