"""Storage of segments: one interface over local folders and object stores (SPEC K2, T3)."""

from __future__ import annotations

import os
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from crkafka_core.config.location import FOLDER, HDFS, check_store, store_of
from crkafka_core.config.region_config import RegionConfig
from crkafka_core.model.errors import ConfigError, CrkafkaError
from crkafka_core.segments.errors import refuse_credentials

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
R = TypeVar("R")
_CHUNK = 8 << 20


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

    at_once = 1
    """Concurrent calls of `each`: more where a call waits for the network."""

    @staticmethod
    def open(url: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Storage:
        """The storage of a path, a `file://` URL, or a URL of one of `STORES`.

        `options` of an object store: those of its line in `STORES`, and connect_timeout and request_timeout in seconds; credentials
        that are missing come from the environment. For a folder: mode, of the files in it (`0600`); users who may read the files may
        also enter the folders. Opens no connection.
        """
        from crkafka_core.segments.local import LocalStorage

        text = os.fspath(url)
        refuse_credentials(text)
        store, given = store_of(text), options or {}
        if store is FOLDER:
            return LocalStorage(urlsplit(text).path if text.lower().startswith("file:") else text, _mode(options))
        if store is HDFS:
            from crkafka_core.segments.hdfs import HdfsStorage

            return HdfsStorage(text, given)
        try:
            check_store(text)
        except ValueError as error:
            raise ConfigError(f"storage: {text} {error}") from None
        from crkafka_core.segments.objects import ObjectStorage

        return ObjectStorage(text, given)

    @staticmethod
    def of(config: RegionConfig) -> Storage:
        """The storage of a region."""
        resolved = config.resolve()
        return Storage.open(resolved.storage, resolved.storage_options)

    def uri(self, path: str) -> str:
        """The full URL of a file, for other programs."""
        return f"{self.url}/{path}"

    def check(self, *, tables: bool = False) -> None:
        """Write, read and delete a small file; raises StorageUnavailable or ConfigError.

        With `tables` a storage is refused that replaces a file where a new one is put, as some that only speak S3 do.
        """
        probe = f".check-{uuid.uuid4().hex}"
        try:
            output = self.open_write(probe)
            output.write(memoryview(b"crkafka"))
            output.close()
            with self.open_read(probe) as source:
                source.read()
            if tables and self.puts_new and self.put_new(probe, b"crkafka"):
                raise ConfigError(
                    f"{self.url} replaces a file where only a new one may be put: of two commits to a table one would be lost.",
                    hint="Use a store that keeps such conditions (S3: If-None-Match), or put the tables elsewhere.",
                )
        except BaseException:
            with suppress(CrkafkaError):  # a full disk keeps an empty file
                self.delete(probe)
            raise
        self.delete(probe)

    @abstractmethod
    def exists(self, path: str) -> bool: ...

    @abstractmethod
    def open_read(self, path: str) -> pa.NativeFile:
        """A file opened for random access; SegmentMissing if it does not exist."""

    @abstractmethod
    def open_write(self, path: str) -> Output:
        """A new file; SegmentExists if the name is taken (not detected in object stores)."""

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Write or replace a small file atomically. If not `durable`, a crash of the machine may restore the old one."""
        output = self.open_write(path)
        output.write(memoryview(data))
        output.close()

    def put_together(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Write small files under new names, durably."""
        self.each(lambda file: self.put(*file), files)

    def put_new(self, path: str, data: bytes) -> bool:
        """Write a small file atomically unless the name is taken; False if it is. Only for a storage that `puts_new`."""
        raise NotImplementedError(self.url)

    def own(self, source: Storage, path: str, name: str) -> int:
        """Link or copy a file of another storage to a name in this one, complete and durable; its size.

        A hard link if the file system has them, else a copy, inside the object store if it has both. Independent of the source from
        then on. May be repeated; SegmentMissing if the source does not exist.
        """
        size, output = 0, self.open_write(name)
        try:
            with source.open_read(path) as reading:
                while chunk := reading.read(_CHUNK):
                    output.write(memoryview(chunk))
                    size += len(chunk)
            output.close()
        except BaseException:
            output.discard()  # else an unfinished upload stays for ever
            raise
        return size

    @abstractmethod
    def delete(self, path: str) -> bool:
        """Remove a file; False if it did not exist, which is no error: a deletion may be repeated."""

    def each(self, work: Callable[[T], R], items: Iterable[T]) -> Sequence[R]:
        """Results of `work` for each of many files, in their order, or its first error; `at_once` of them at the same time."""
        files = [*items]
        if min(self.at_once, len(files)) < 2:
            return [work(one) for one in files]
        with ThreadPool(
            min(self.at_once, len(files))
        ) as pool:  # its threads are daemons: a hanging call does not block the exit
            return pool.map(work, files, chunksize=1)

    @abstractmethod
    def list(self, prefix: str) -> Iterator[Stored]:
        """All files below a folder (an empty prefix: the root); none if the folder does not exist."""

    def end_uploads(self, prefix: str, only: Callable[[str], bool] = lambda _: True) -> int:
        """End unfinished uploads of killed processes below a folder, if `only(path)`; their number (SPEC T3)."""
        return 0

    @abstractmethod
    def delete_folder(self, prefix: str) -> None:
        """Remove a folder with all its files, such as a deleted region's (SPEC G9), if it exists."""


def below(path: str) -> str:
    """The path, if it lies below the storage's root."""
    if not path or path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"{path!r} does not lie below the storage root.")
    return path


def _mode(options: Mapping[str, str] | None) -> int:
    """Mode of files: for their owner only, unless the configuration sets another (SPEC U2)."""
    text = (options or {}).get("mode", "0600")
    if re.fullmatch(r"0?6[0-7][0-7]", text) is None:
        raise ConfigError(f"storage: mode {text!r} is not a file mode.", hint='Write it as chmod does: "0640", "0660".')
    return int(text, 8)
