"""How far a simulated process is in its life."""

from __future__ import annotations

from enum import StrEnum


class Stage(StrEnum):
    LAUNCHING = "launching"
    REGISTERING = "registering"
    RUNNING = "running"
    ENDING = "ending"
    GONE = "gone"
