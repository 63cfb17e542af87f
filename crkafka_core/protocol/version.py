"""The protocol's version: which rules a program knows, by one number that the region's row has too."""

from __future__ import annotations

SPOKEN = 1
"""What this program speaks. Raised when a rule changes such that an older member, host or driver would break it."""
