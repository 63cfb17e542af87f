"""Where segments lie: one interface over local folders and object stores (SPEC K2, T3)."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from crkafka_core.config.region_config import RegionConfig
from crkafka_core.model.errors import ConfigError
from crkafka_core.segments.errors import refuse_credentials

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Stored:
    """A file that a listing found."""

    path: str
    """Relative to the root, with `/`."""
    bytes: int
    modified: float = 0.0
    """When it was last written, in seconds since 1970, by the storage's clock."""


class Output(ABC):
    """A file being written. It counts only once `close` has returned."""

    @abstractmethod
    def write(self, data: memoryview) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Everything written is durable when this returns."""

    @abstractmethod
    def discard(self) -> None:
        """End it and remove what there is; never raises."""


class Storage(ABC):
    """The root of a region's segments. All paths are relative to it. Safe to use from several threads."""

    url: str
    """As configured, made absolute: what SQL keeps and other processes open."""
    is_local = False
    """Only processes of this machine can open it."""
    puts_new = False
    """It has `put_new`."""

    @staticmethod
    def open(url: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Storage:
        """The storage of a path, a `file://` URL, or an object store (`s3://bucket/prefix`, `hdfs://…`, `gs://…`).

        `options` for S3: endpoint, region, scheme, access_key, secret_key, session_token; what is not given comes from
        the environment. For a folder: mode, of the files in it (`0600`); those that may read also enter the folders.
        Nothing is contacted yet.
        """
        from crkafka_core.segments.local import LocalStorage
        from crkafka_core.segments.objects import ObjectStorage

        text = os.fspath(url)
        refuse_credentials(text)
        scheme = urlsplit(text).scheme
        if len(scheme) <= 1:  # none, or a drive letter
            return LocalStorage(text, _mode(options))
        if scheme == "file":
            return LocalStorage(urlsplit(text).path, _mode(options))
        return ObjectStorage(text, options or {})

    @staticmethod
    def of(config: RegionConfig) -> Storage:
        """A region's."""
        resolved = config.resolve()
        return Storage.open(resolved.storage, resolved.storage_options)

    @abstractmethod
    def uri(self, path: str) -> str:
        """The full address of a file, as other programs take it."""

    @abstractmethod
    def check(self) -> None:
        """Write, read and delete a small file: raises StorageUnavailable, or ConfigError, naming what is wrong."""

    @abstractmethod
    def exists(self, path: str) -> bool: ...

    @abstractmethod
    def open_read(self, path: str) -> pa.NativeFile:
        """A file opened for random access; SegmentMissing if it is not there."""

    @abstractmethod
    def open_write(self, path: str) -> Output:
        """A new file; SegmentExists if there is one (object stores cannot tell)."""

    @abstractmethod
    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Write a small file whole, in place of one that may be there; a reader sees the old or the new one.

        Not `durable`: a crash of the machine may leave the old one.
        """

    def put_together(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Write small files under new names; all are durable when this returns."""
        self.each(lambda file: self.put(*file), files)

    def put_new(self, path: str, data: bytes) -> bool:
        """Write a small file whole, if there is none of this name; False: there is one. Asked only where it `puts_new`."""
        raise NotImplementedError(self.url)

    @abstractmethod
    def own(self, source: Storage, path: str, name: str) -> int:
        """Have a file of another storage under a name of this one as well, whole and durable; its size.

        A link where the file system can, a copy inside the object store where both are in it, else a copy. What becomes of the
        other one afterwards does not matter. May be repeated; SegmentMissing if it is not there.
        """

    @abstractmethod
    def delete(self, path: str) -> bool:
        """Remove a file; False if it was not there, which is not an error: deleting may be repeated."""

    def each(self, work: Callable[[T], R], of: Iterable[T]) -> Sequence[R]:
        """Do something with each of many files; the answers in their order, or the first error of them.

        One after the other here; an object store, where each call waits for the network, does many at once.
        """
        return [work(one) for one in of]

    @abstractmethod
    def list(self, prefix: str) -> Iterator[Stored]:
        """All files below a folder (an empty prefix: the root); a folder that is not there has none."""

    def end_uploads(self, prefix: str, only: Callable[[str], bool] = lambda _: True) -> int:
        """End unfinished uploads below a folder, left by killed processes, of those paths that pass; how many (SPEC T3)."""
        return 0

    @abstractmethod
    def delete_folder(self, prefix: str) -> None:
        """Remove a folder with all its files, such as a deleted region's (SPEC G9); it need not be there."""


def _mode(options: Mapping[str, str] | None) -> int:
    """Records are nobody else's business, unless the configuration says whose (SPEC U2)."""
    text = (options or {}).get("mode", "0600")
    if re.fullmatch(r"0?6[0-7][0-7]", text) is None:
        raise ConfigError(f"storage: mode {text!r} is not a file mode.", hint='Write it as chmod does: "0640", "0660".')
    return int(text, 8)
