"""A table's folder, as it is declared."""

from __future__ import annotations

from collections.abc import Mapping

from crkafka_core.config.location import arrow_url, store_of
from crkafka_core.segments.storage import Storage


def folder_of(path: str, options: Mapping[str, str]) -> Storage:
    """A table's folder. Its files are the segments' own, so who may read these may read it."""
    usable = {key: value for key, value in options.items() if key != "mode" or store_of(path).local}
    return Storage.open(arrow_url(path), usable)
