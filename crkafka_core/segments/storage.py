"""Storage of segments: one interface over local folders and object stores (SPEC K2, T3)."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from crkafka_core.config.location import store_of
from crkafka_core.config.region_config import RegionConfig
from crkafka_core.model.errors import ConfigError
from crkafka_core.segments.errors import refuse_credentials

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Stored:
    """A file in a listing."""

    path: str
    """Relative to the root, with `/`."""
    bytes: int
    modified: float = 0.0
    """Time of the last write in seconds since 1970, by the storage's clock."""


class Output(ABC):
    """A file being written; complete once `close` has returned."""

    @abstractmethod
    def write(self, data: memoryview) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Make everything written durable."""

    @abstractmethod
    def discard(self) -> None:
        """End the write and remove the file; never raises."""


class Storage(ABC):
    """The root of a region's segments. All paths are relative to it. Safe to use from several threads."""

    url: str
    """The configured URL or path, absolute: stored in SQL, and opened by other processes."""
    is_local = False
    """Only processes of this machine can open it."""
    puts_new = False
    """Whether it has `put_new`."""

    @staticmethod
    def open(url: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Storage:
        """The storage of a path, a `file://` URL, or an object store (`s3://bucket/prefix`, `hdfs://…`, `gs://…`).

        `options` for S3: endpoint, region, scheme, access_key, secret_key, session_token; missing ones come from the environment.
        For a folder: mode, of the files in it (`0600`); users who may read the files may also enter the folders.
        Opens no connection.
        """
        from crkafka_core.segments.local import LocalStorage
        from crkafka_core.segments.objects import ObjectStorage

        text = os.fspath(url)
        refuse_credentials(text)
        if store_of(text).local:
            return LocalStorage(urlsplit(text).path if text.lower().startswith("file:") else text, _mode(options))
        return ObjectStorage(text, options or {})

    @staticmethod
    def of(config: RegionConfig) -> Storage:
        """The storage of a region."""
        resolved = config.resolve()
        return Storage.open(resolved.storage, resolved.storage_options)

    @abstractmethod
    def uri(self, path: str) -> str:
        """The full URL of a file, for other programs."""

    @abstractmethod
    def check(self) -> None:
        """Write, read and delete a small file; raises StorageUnavailable or ConfigError."""

    @abstractmethod
    def exists(self, path: str) -> bool: ...

    @abstractmethod
    def open_read(self, path: str) -> pa.NativeFile:
        """A file opened for random access; SegmentMissing if it does not exist."""

    @abstractmethod
    def open_write(self, path: str) -> Output:
        """A new file; SegmentExists if the name is taken (not detected in object stores)."""

    @abstractmethod
    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Write or replace a small file atomically. If not `durable`, a crash of the machine may restore the old one."""

    def put_together(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Write small files under new names, durably."""
        self.each(lambda file: self.put(*file), files)

    def put_new(self, path: str, data: bytes) -> bool:
        """Write a small file atomically unless the name is taken; False if it is. Only for a storage that `puts_new`."""
        raise NotImplementedError(self.url)

    @abstractmethod
    def own(self, source: Storage, path: str, name: str) -> int:
        """Link or copy a file of another storage to a name in this one, complete and durable; its size.

        A hard link if the file system has them, else a copy, inside the object store if it has both. Independent of the source from
        then on. May be repeated; SegmentMissing if the source does not exist.
        """

    @abstractmethod
    def delete(self, path: str) -> bool:
        """Remove a file; False if it did not exist, which is no error: a deletion may be repeated."""

    def each(self, work: Callable[[T], R], of: Iterable[T]) -> Sequence[R]:
        """Results of `work` for each of many files, in their order, or its first error.

        Sequential here; concurrent in an object store, where each call waits for the network.
        """
        return [work(one) for one in of]

    @abstractmethod
    def list(self, prefix: str) -> Iterator[Stored]:
        """All files below a folder (an empty prefix: the root); none if the folder does not exist."""

    def end_uploads(self, prefix: str, only: Callable[[str], bool] = lambda _: True) -> int:
        """End unfinished uploads of killed processes below a folder, if `only(path)`; their number (SPEC T3)."""
        return 0

    @abstractmethod
    def delete_folder(self, prefix: str) -> None:
        """Remove a folder with all its files, such as a deleted region's (SPEC G9), if it exists."""


def _mode(options: Mapping[str, str] | None) -> int:
    """Mode of files: for their owner only, unless the configuration sets another (SPEC U2)."""
    text = (options or {}).get("mode", "0600")
    if re.fullmatch(r"0?6[0-7][0-7]", text) is None:
        raise ConfigError(f"storage: mode {text!r} is not a file mode.", hint='Write it as chmod does: "0640", "0660".')
    return int(text, 8)
