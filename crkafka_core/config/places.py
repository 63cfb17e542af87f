"""Places of a region: its storage and its tables lie apart, and are where its members can reach them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from crkafka_core.config import location

if TYPE_CHECKING:
    from crkafka_core.config.region_config import RegionConfig


def check(config: RegionConfig) -> None:
    """ValueError for places that lie in one another, or that members on other machines do not see."""
    places = [("storage", config.storage)]
    places += [(f"table {t.name}", t.path) for t in config.tables if not location.in_catalog(t.path)]
    for (one, path), (other, another) in itertools.combinations(places, 2):
        if location.overlap(path, another):
            raise ValueError(
                f"{one} ({path}) and {other} ({another}) lie in one another: cleaning up one would delete the other; "
                "give each a folder of its own"
            )
    if not config.host.remote:
        return
    master = config.host.spark
    if location.is_sqlite(config.control_plane):
        raise ValueError(
            f"members on {master} run on other machines, which cannot share a SQLite file; use control_plane: postgresql+psycopg://…"
        )
    for what, path in places:
        if location.is_local(path) and not config.host.shared_disk:
            raise ValueError(
                f"members on {master} run on other machines, which do not see the folder of {what} ({path}); "
                "use s3://…, abfss://…, gs://… or hdfs://…, or host.shared_disk: true if each machine mounts it there"
            )
