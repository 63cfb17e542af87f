"""A table's folder, as it is declared."""

from __future__ import annotations

from collections.abc import Mapping

from crkafka_core.config.location import store_of
from crkafka_core.lake.port import Unknown
from crkafka_core.segments.errors import SegmentMissing, StorageUnavailable
from crkafka_core.segments.storage import Storage


def folder_of(path: str, options: Mapping[str, str]) -> Storage:
    """A table's folder. Its files may be links to segments, and have the same readers."""
    usable = {key: value for key, value in options.items() if key != "mode" or store_of(path).local}
    return Storage.open(path, usable)


def put_version(folder: Storage, path: str, content: bytes) -> bool:
    """Put a version of a table's log if there is none of its name; False: it is another writer's. Raises `Unknown` without an answer.

    A storage's client tries again by itself after an answer that got lost, and is refused for its own first try: a version with this
    very content is ours, so each writer's content has to be its own.
    """
    try:
        if folder.put_new(path, content):
            return True
        with folder.open_read(path) as source:
            return bytes(source.read()) == content
    except (SegmentMissing, StorageUnavailable) as error:
        raise Unknown(f"{folder.uri(path)} may be written or not: {error}") from error
