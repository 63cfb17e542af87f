"""What a process connects with: the configuration with its references resolved; never written, logged or sent."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Resolved:
    """Holds secrets; its repr shows none."""

    control_plane: str = field(repr=False)
    storage: str
    storage_options: dict[str, str] = field(repr=False)
    kafka: dict[str, str] = field(repr=False)
    spark: str | None = field(repr=False)
    spark_conf: dict[str, str] = field(repr=False)
