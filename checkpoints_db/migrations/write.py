"""Writes the next migration from changed models: `python -m checkpoints_db.migrations.write WHAT CHANGED`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from alembic import command
from alembic.autogenerate.api import AutogenContext
from sqlalchemy import Text

from checkpoints_db.address import parse
from checkpoints_db.engines import make_engine
from checkpoints_db.migrations import VERSIONS
from checkpoints_db.schema import alembic_config, migrate


def write(message: str, *, number: str) -> None:
    """Write the difference between the models and a new database at the newest version as a new version."""
    with tempfile.TemporaryDirectory() as folder:
        engine = make_engine(parse(f"sqlite:///{Path(folder) / 'newest.db'}"), may_create=True)
        with engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            migrate(connection)
            config = alembic_config(connection)
            config.attributes["render_item"] = _render
            command.revision(config, message, autogenerate=True, rev_id=number)
        engine.dispose()


def _render(kind: str, item: Any, context: AutogenContext) -> Any:
    """Render all text types as the constant TEXT of the file."""
    return "TEXT" if kind == "type" and isinstance(item, Text) else False


if __name__ == "__main__":
    write(" ".join(sys.argv[1:]), number=f"{int(VERSIONS[-1]) + 1:04d}")
