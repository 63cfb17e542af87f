"""The first version. `checkpoints_db.schema` makes a new control plane from the models, so that nothing is left to do here."""

from __future__ import annotations

revision = "0001"
down_revision = None


def upgrade() -> None:
    """No version is older."""
