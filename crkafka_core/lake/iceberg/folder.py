"""The folder of an Iceberg table: paths as the table's metadata has them, and the files behind them."""

from __future__ import annotations

import re

from crkafka_core.lake.port import CannotCommit
from crkafka_core.segments.storage import Storage

_SCHEME = re.compile(r"^(file:(//)?(?=/)|s3[an]?://)")


class Folder:
    """`location`: as the metadata names it. Names within are relative to it, as the port has them."""

    def __init__(self, storage: Storage, location: str) -> None:
        self.storage, self.location = storage, location.rstrip("/")
        self._prefix = f"{_bare(self.location)}/"

    def uri(self, name: str) -> str:
        return f"{self.location}/{name}"

    def name(self, path: str) -> str:
        bare = _bare(path)
        if not bare.startswith(self._prefix):
            raise CannotCommit(
                f"The table at {self.location} has a file outside of its folder: {path}.",
                hint="Let its data be written where the table is (write.data.path), and let rewrite_data_files bring it there.",
            )
        return bare[len(self._prefix) :]

    def holds(self, path: str) -> bool:
        return _bare(path).startswith(self._prefix)

    def read(self, path: str) -> bytes:
        with self.storage.open_read(self.name(path)) as source:
            return bytes(source.read())


def _bare(path: str) -> str:
    """Without what programs write differently before one and the same path."""
    return _SCHEME.sub("", path)
