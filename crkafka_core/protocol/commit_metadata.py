"""What is written beside a committed offset in Kafka: region, checkpoint, last merged offset (SPEC D2, S2, G10)."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class CommitMetadata:
    """A commit made by this system says how far it can be believed."""

    uid: str
    """Of the region (SPEC G6)."""
    checkpoint: int
    """The cut for which it was made."""
    merged: int
    """The last merged offset: the commit of an aborted cut must not become a gap (SPEC S2)."""

    def text(self) -> str:
        return json.dumps({"crkafka": 1, "region": self.uid, "checkpoint": self.checkpoint, "merged": self.merged})

    @classmethod
    def parse(cls, text: str) -> CommitMetadata | None:
        """None for a commit that somebody else made."""
        try:
            value = json.loads(text)
            if value["crkafka"] != 1:
                return None
            return cls(str(value["region"]), int(value["checkpoint"]), int(value["merged"]))
        except (ValueError, KeyError, TypeError):
            return None
