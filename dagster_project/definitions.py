"""The code location `crkafka`: every region under `defs/`, and whatever a project adds there (docs/clients.md C-D7)."""

from __future__ import annotations

from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    """Regions and assets, found by folder."""
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
