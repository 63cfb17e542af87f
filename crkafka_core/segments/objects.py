"""Segments in an object store or HDFS, through Arrow's file systems."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from multiprocessing.pool import ThreadPool
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from crkafka_core.config.location import S3, store_of
from crkafka_core.model.errors import ConfigError
from crkafka_core.segments.errors import SegmentMissing, storage_error, storage_errors
from crkafka_core.segments.storage import Output, R, Storage, Stored, T
from crkafka_core.segments.uploads import end_uploads, put_new, s3_endpoint

_OPTIONS = (
    "endpoint",
    "region",
    "scheme",
    "access_key",
    "secret_key",
    "session_token",
    "connect_timeout",
    "request_timeout",
)

_AT_ONCE = 16
"""Concurrent calls."""


class ObjectStorage(Storage):
    """A prefix of a bucket, or a folder of HDFS. A file appears complete, when it is closed."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        unknown = sorted(set(options) - set(_OPTIONS))
        if unknown:
            raise ConfigError(f"storage: unknown option {unknown[0]!r}.", hint=f"There are: {', '.join(_OPTIONS)}.")
        self.url = url.rstrip("/")
        self._options = dict(options)
        self._store = store_of(url)
        self.puts_new = self._store.puts_new
        self._files, self._root = self._connect()

    def __reduce__(self) -> tuple[type[ObjectStorage], tuple[str, Mapping[str, str]]]:
        return type(self), (self.url, self._options)

    def uri(self, path: str) -> str:
        return f"{self.url.split('?')[0]}/{path}"

    def check(self) -> None:
        probe = f".check-{uuid.uuid4().hex}"
        try:
            output = self.open_write(probe)
            output.write(memoryview(b"crkafka"))
            output.close()
            with self.open_read(probe) as source:
                source.read()
        except SegmentMissing as error:
            raise ConfigError(
                f"storage: {self.url} does not exist.", hint="Create the bucket, or mend its name."
            ) from error
        self.delete(probe)

    def exists(self, path: str) -> bool:
        with storage_errors("Looking at", self.uri(path)):
            return bool(self._files.get_file_info(self._full(path)).type == fs.FileType.File)

    def open_read(self, path: str) -> pa.NativeFile:
        with storage_errors("Reading", self.uri(path)):
            return self._files.open_input_file(self._full(path))

    def open_write(self, path: str) -> Output:
        full = self._full(path)
        with storage_errors("Creating", self.uri(path)):
            if self._store.folders:
                self._files.create_dir(full.rsplit("/", 1)[0], recursive=True)
            return _ObjectOutput(self._files, full, self.uri(path))

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        output = self.open_write(path)
        output.write(memoryview(data))
        output.close()

    def put_new(self, path: str, data: bytes) -> bool:
        bucket, _, key = self._full(path).partition("/")
        return put_new(bucket, key, data, self._options | self._from_query())

    def own(self, source: Storage, path: str, name: str) -> int:
        full = self._full(name)
        with storage_errors("Taking over", source.uri(path)):
            if isinstance(source, ObjectStorage) and (source._store, source._options) == (self._store, self._options):
                self._files.copy_file(source._full(path), full)
            else:
                self._copied(source, path, name)
            return int(self._files.get_file_info(full).size)

    def _copied(self, source: Storage, path: str, name: str) -> None:
        output = self.open_write(name)
        try:
            with source.open_read(path) as reading:
                while chunk := reading.read(_CHUNK):
                    output.write(memoryview(chunk))
            output.close()
        except BaseException:
            output.discard()  # else an unfinished upload stays for ever
            raise

    def delete(self, path: str) -> bool:
        with storage_errors("Deleting", self.uri(path)), contextlib.suppress(FileNotFoundError):
            if self._files.get_file_info(self._full(path)).type != fs.FileType.NotFound:
                self._files.delete_file(self._full(path))
                return True
        return False

    def each(self, work: Callable[[T], R], of: Iterable[T]) -> Sequence[R]:
        files = [*of]
        if len(files) < 2:
            return super().each(work, files)
        with ThreadPool(
            min(_AT_ONCE, len(files))
        ) as pool:  # its threads are daemons: a hanging call does not block the exit
            return pool.map(work, files, chunksize=1)

    def list(self, prefix: str) -> Iterator[Stored]:
        top = self._full(prefix) if prefix else self._root
        selector = fs.FileSelector(top, recursive=True, allow_not_found=True)
        with storage_errors("Listing", self.uri(prefix)):
            infos = self._files.get_file_info(selector)
        for info in infos:
            if info.type == fs.FileType.File:
                modified = (info.mtime_ns or 0) / 1e9
                yield Stored(info.path[len(self._root) :].lstrip("/"), info.size, modified)

    def end_uploads(self, prefix: str, only: Callable[[str], bool] = lambda _: True) -> int:
        if self._store is not S3:
            return 0
        bucket, _, root = self._root.partition("/")
        below = "/".join(part for part in (root, prefix) if part) + "/"
        start = len(root) + 1 if root else 0
        return end_uploads(bucket, below, self._options | self._from_query(), lambda key: only(key[start:]))

    def delete_folder(self, prefix: str) -> None:
        with storage_errors("Deleting", self.uri(prefix)), contextlib.suppress(FileNotFoundError):
            self._files.delete_dir(self._full(prefix))

    def _full(self, path: str) -> str:
        if not path or path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"{path!r} does not lie below the storage root.")
        return f"{self._root}/{path}"

    def _connect(self) -> tuple[fs.FileSystem, str]:
        try:
            if self._store is S3:
                parts = urlsplit(self.url)
                return fs.S3FileSystem(**_s3_arguments(self._options | self._from_query())), parts.netloc + parts.path
            if self._options:
                raise ConfigError(
                    f"storage: {urlsplit(self.url).scheme}:// takes no options.", hint="Use the environment."
                )
            files, root = fs.FileSystem.from_uri(self.url)
            return files, root.rstrip("/")
        except (pa.ArrowInvalid, NotImplementedError, ImportError) as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(
                f"storage: {self.url} cannot be opened: {reason}.", hint="Is the scheme right?"
            ) from error
        except OSError as error:
            raise storage_error(error, "Opening", self.url) from error

    def _from_query(self) -> dict[str, str]:
        """Options in the URL, with Arrow's names: `?endpoint_override=…&scheme=http&region=…`."""
        pairs = [pair.partition("=") for pair in urlsplit(self.url).query.split("&") if pair]
        named = {("endpoint" if name == "endpoint_override" else name): value for name, _, value in pairs}
        unknown = sorted(set(named) - set(_OPTIONS))
        if unknown:
            raise ConfigError(
                f"storage: unknown option {unknown[0]!r} in the URL.", hint=f"There are: {', '.join(_OPTIONS)}."
            )
        return named


_CHUNK = 8 << 20


class _ObjectOutput(Output):
    def __init__(self, files: fs.FileSystem, full: str, uri: str) -> None:
        self._files, self._full, self._uri = files, full, uri
        self._stream = files.open_output_stream(full, compression=None)

    def write(self, data: memoryview) -> None:
        with storage_errors("Writing", self._uri):
            self._stream.write(pa.py_buffer(data))

    def close(self) -> None:
        with storage_errors("Finishing", self._uri):
            self._stream.close()

    def discard(self) -> None:
        # Arrow has no abort: closing completes the upload, so that a whole file is removed and no part of it stays.
        with contextlib.suppress(Exception):
            self._stream.close()
        with contextlib.suppress(Exception):
            self._files.delete_file(self._full)


def _s3_arguments(options: Mapping[str, str]) -> dict[str, object]:
    scheme, place = s3_endpoint(options)
    wanted = {
        "endpoint_override": place or None,
        "scheme": scheme or None,
        "region": options.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
        "access_key": options.get("access_key"),
        "secret_key": options.get("secret_key"),
        "session_token": options.get("session_token"),
        "connect_timeout": float(options.get("connect_timeout", 5)),
        "request_timeout": float(options.get("request_timeout", 30)),
        # Parts are uploaded in the background; `close` waits for the last one only.
        "background_writes": True,
    }
    return {name: value for name, value in wanted.items() if value is not None}
