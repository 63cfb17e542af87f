"""A table's folder, as it is declared."""

from __future__ import annotations

from collections.abc import Mapping

from crkafka_core.segments.storage import Storage


def folder_of(path: str, options: Mapping[str, str]) -> Storage:
    """A table's folder. Its files are the segments' own, so who may read these may read it."""
    usable = {key: value for key, value in options.items() if key != "mode" or "://" not in path}
    local = path.removeprefix("file:") if path.startswith("file:/") and not path.startswith("file://") else path
    return Storage.open(local.replace("s3a://", "s3://", 1), usable)
