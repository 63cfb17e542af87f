"""Segments in HDFS, through Arrow; not tried on a real one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyarrow import fs

from crkafka_core.model.errors import ConfigError
from crkafka_core.segments.errors import storage_error, storage_errors
from crkafka_core.segments.storage import Output, Storage, Stored, below


class HdfsStorage(Storage):
    """A folder of HDFS. A table cannot be there: no file can be put only if its name is new."""

    at_once = 16

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        if options:
            raise ConfigError(f"storage: {url} takes no options.", hint="Use the environment.")
        self.url = url.rstrip("/")
        try:
            self._files, root = fs.FileSystem.from_uri(self.url)
        except (pa.ArrowInvalid, NotImplementedError, ImportError) as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(
                f"storage: {self.url} cannot be opened: {reason}.", hint="Is the address right?"
            ) from error
        except OSError as error:
            raise storage_error(error, "Opening", self.url) from error
        self._root = root.rstrip("/")

    def __reduce__(self) -> tuple[type[HdfsStorage], tuple[str, Mapping[str, str]]]:
        return type(self), (self.url, {})

    def exists(self, path: str) -> bool:
        with storage_errors("Looking at", self.uri(path)):
            return bool(self._files.get_file_info(self._full(path)).type == fs.FileType.File)

    def open_read(self, path: str) -> pa.NativeFile:
        with storage_errors("Reading", self.uri(path)):
            return self._files.open_input_file(self._full(path))

    def open_write(self, path: str) -> Output:
        full = self._full(path)
        with storage_errors("Creating", self.uri(path)):
            self._files.create_dir(full.rpartition("/")[0], recursive=True)
            return _HdfsOutput(self._files, full, self.uri(path))

    def delete(self, path: str) -> bool:
        if not self.exists(path):
            return False
        with storage_errors("Deleting", self.uri(path)), contextlib.suppress(FileNotFoundError):
            self._files.delete_file(self._full(path))
        return True

    def list(self, prefix: str) -> Iterator[Stored]:
        top = self._full(prefix) if prefix else self._root
        with storage_errors("Listing", self.uri(prefix)):
            infos = self._files.get_file_info(fs.FileSelector(top, recursive=True, allow_not_found=True))
        for info in infos:
            if info.type == fs.FileType.File:
                yield Stored(info.path[len(self._root) + 1 :], info.size, (info.mtime_ns or 0) / 1e9)

    def delete_folder(self, prefix: str) -> None:
        with storage_errors("Deleting", self.uri(prefix)), contextlib.suppress(FileNotFoundError):
            self._files.delete_dir(self._full(prefix))

    def _full(self, path: str) -> str:
        return f"{self._root}/{below(path)}"


class _HdfsOutput(Output):
    def __init__(self, files: fs.FileSystem, full: str, uri: str) -> None:
        self._files, self._full, self._uri = files, full, uri
        self._stream = files.open_output_stream(full, compression=None)

    def write(self, data: memoryview) -> None:
        with storage_errors("Writing", self._uri):
            self._stream.write(pa.py_buffer(data))

    def close(self) -> None:
        with storage_errors("Writing", self._uri):
            self._stream.close()

    def discard(self) -> None:
        with contextlib.suppress(Exception):
            self._stream.close()
        with contextlib.suppress(Exception):
            self._files.delete_file(self._full)
