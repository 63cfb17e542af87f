"""What is written beside a committed offset in Kafka: region, checkpoint, last merged offset, what tables have (SPEC D2, S2, G10)."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class CommitMetadata:
    """Metadata of a commit of this system: how far it can be trusted."""

    uid: str
    """Of the region (SPEC G6)."""
    checkpoint: int
    """The cut for which it was made."""
    merged: int
    """The last merged offset: the commit of an aborted cut must not become a gap (SPEC S2)."""

    tables: int | None = None
    """Every declared table has acknowledged what is below this, as far as SQL knew at the commit; None: all that was merged."""

    @property
    def safe(self) -> int:
        """Where another region can take over without losing what was merged and is in no table yet (SPEC S2)."""
        return self.merged if self.tables is None else min(self.merged, self.tables)

    def text(self) -> str:
        behind = {} if self.tables is None else {"tables": self.tables}
        return json.dumps(
            {"crkafka": 1, "region": self.uid, "checkpoint": self.checkpoint, "merged": self.merged, **behind}
        )

    @classmethod
    def parse(cls, text: str) -> CommitMetadata | None:
        """None for a commit of another program."""
        try:
            value = json.loads(text)
            if value["crkafka"] != 1:
                return None
            tables = None if value.get("tables") is None else int(value["tables"])
            return cls(str(value["region"]), int(value["checkpoint"]), int(value["merged"]), tables)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
