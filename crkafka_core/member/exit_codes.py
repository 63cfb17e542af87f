"""Exit codes of a member's process: its host decides by them whether to start it again (SPEC G3)."""

from __future__ import annotations

from crkafka_core.protocol.signals import ExitKind

CODES = {ExitKind.CLEAN: 0, ExitKind.SUPERSEDED: 10, ExitKind.LOST: 11, ExitKind.FAILED: 12}
"""Exit codes of a member's process; a host restarts it on every code but the first two."""
REFUSED = 14
"""Exit code of a process that must not be a member at all: another region's group, a copy of the control plane (SPEC G1, T3)."""
NO_RESTART = frozenset({CODES[ExitKind.SUPERSEDED], REFUSED})
"""Not started again as long as the region wants this name; who was superseded is once the other process is gone. A clean end is, if
the region wants it (again) after all."""


def why_not_again(code: int) -> str:
    """An end for good, in words."""
    return (
        "was refused: the group is another region's, the region has another group, the control plane is a copy, this program or its "
        "configuration is too old, or its group.protocol is not the other members'; its log says which"
        if code == REFUSED
        else "has been taken over by another process of its name"
    )
