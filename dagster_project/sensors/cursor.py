"""A sensor's cursor: a dataclass kept as JSON. It only saves work, so one that cannot be read is as good as none (SPEC A2)."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Cursor:
    """Base of the sensors' cursors; every field has a default, which means *nothing is known*."""

    @classmethod
    def parse(cls, text: str | None) -> Self:
        """What `str` wrote; an empty one for anything else."""
        try:
            return cls(**json.loads(text or "{}"))
        except (ValueError, TypeError):
            return cls()

    def __str__(self) -> str:
        return json.dumps(dataclasses.asdict(self))
