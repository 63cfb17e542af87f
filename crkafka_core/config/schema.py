"""Writes the JSON schema of a region's configuration: `python -m crkafka_core.config.schema docs/region.schema.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from crkafka_core.config.region_config import RegionConfig


def text() -> str:
    """The schema in docs/region.schema.json."""
    return json.dumps(RegionConfig.json_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(text(), encoding="utf-8")
