"""Storage in a local folder; files are durable once closed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from crkafka_core.segments.errors import SegmentExists, StorageUnavailable, storage_error, storage_errors
from crkafka_core.segments.storage import Output, Storage, Stored, below


class LocalStorage(Storage):
    """A folder of this machine, or one that all machines mount."""

    is_local = True
    puts_new = True

    def __init__(self, root: str, mode: int = 0o600) -> None:
        self.root = Path(root).expanduser().absolute()
        self._mode = mode
        self.url = str(self.root)

    def uri(self, path: str) -> str:
        return self._full(path).as_uri()

    def exists(self, path: str) -> bool:
        return self._full(path).is_file()

    def open_read(self, path: str) -> pa.NativeFile:
        full = f"{self.root}/{below(path)}"  # a `Path` would take a tenth of a small file's time
        try:
            descriptor = os.open(full, os.O_RDONLY)
            try:
                size = os.fstat(descriptor).st_size
                if size <= _AT_ONCE:
                    return pa.BufferReader(os.read(descriptor, size))
            finally:
                os.close(descriptor)
            return pa.memory_map(full)
        except OSError as error:
            raise storage_error(error, "Reading", full) from error

    def open_write(self, path: str) -> Output:
        full, output = self._full(path), self._create(path)
        try:
            # The name is made durable now, so that `close`, which a cut waits for, flushes only the data.
            _sync_folder(full.parent)
        except OSError as error:
            output.discard()
            raise storage_error(error, "Creating", str(full)) from error
        return output

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        with self._beside(path, data, durable) as (new, full):
            new.replace(full)

    def put_together(self, files: Sequence[tuple[str, bytes]]) -> None:
        """As the base class; each folder is flushed once."""
        outputs = [(self._create(path), data) for path, data in files]
        try:
            for output, data in outputs:
                output.write(memoryview(data))
                output.close()
            with storage_errors("Writing", self.url):
                for folder in {self._full(path).parent for path, _ in files}:
                    _sync_folder(folder)
        except StorageUnavailable:
            for output, _ in outputs:
                output.discard()
            raise

    def put_new(self, path: str, data: bytes) -> bool:
        with self._beside(path, data) as (new, full):
            try:
                try:
                    os.link(new, full)
                except FileExistsError:
                    raise
                except OSError:  # a file system without links
                    _rename_new(new, full)
            except FileExistsError:
                return False
            finally:
                new.unlink(missing_ok=True)
        return True

    def _create(self, path: str) -> _LocalOutput:
        """A new file, whose name is not durable yet."""
        full = self._full(path)
        try:
            _make_folder(full.parent, self._mode)
            output = _LocalOutput(full, os.open(full, os.O_WRONLY | os.O_CREAT | os.O_EXCL, self._mode))
            if self._mode & 0o077:
                os.chmod(full, self._mode)  # noqa: PTH101  the configured mode, whatever this process's umask
        except FileExistsError as error:
            raise SegmentExists(f"{full} exists already.", hint="Do two members share an identity?") from error
        except OSError as error:
            raise storage_error(error, "Creating", str(full)) from error
        return output

    @contextlib.contextmanager
    def _beside(self, path: str, data: bytes, durable: bool = True) -> Iterator[tuple[Path, Path]]:
        """A temporary file with the data, and the path that the caller gives it; the rename is durable afterwards."""
        full = self._full(path)
        folder, _, name = path.rpartition("/")
        new = f"{folder}/.{name}" if folder else f".{name}"
        new += f".{uuid.uuid4().hex[:16]}"
        output = self._create(new)
        try:
            output.write(memoryview(data))
            output.close(durable)
            yield self._full(new), full
            if durable:
                _sync_folder(full.parent)
        except OSError as error:
            output.discard()
            raise storage_error(error, "Writing", str(full)) from error
        except StorageUnavailable:
            output.discard()
            raise

    def own(self, source: Storage, path: str, name: str) -> int:
        full = self._full(name)
        with storage_errors("Taking over", source.uri(path)):
            _make_folder(full.parent, self._mode)
            if not full.exists() and not _link(source, path, full):
                _copy(source, path, full)
            os.chmod(full, self._mode)  # noqa: PTH101  a link shares its mode with the source
            os.utime(full)  # else a VACUUM, which deletes old unknown files, could delete it before its commit
            _sync_folder(full.parent)
            return full.stat().st_size

    def delete(self, path: str) -> bool:
        full = self._full(path)
        with storage_errors("Deleting", str(full)):
            try:
                full.unlink()
            except FileNotFoundError:
                return False
        with contextlib.suppress(OSError):  # removes the folder of an old epoch once it is empty
            full.parent.rmdir()
        return True

    def list(self, prefix: str) -> Iterator[Stored]:
        top = self._full(prefix) if prefix else self.root
        with storage_errors("Listing", str(top)):
            for folder, _, names in os.walk(top, onerror=_raise_unless_missing):
                for name in sorted(names):
                    full = Path(folder, name)
                    with contextlib.suppress(FileNotFoundError):  # deleted during the listing
                        status = full.stat()
                        yield Stored(full.relative_to(self.root).as_posix(), status.st_size, status.st_mtime)

    def delete_folder(self, prefix: str) -> None:
        full = self._full(prefix)
        with storage_errors("Deleting", str(full)), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(full)

    def _full(self, path: str) -> Path:
        return self.root / below(path)


class _LocalOutput(Output):
    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._written = 0

    def write(self, data: memoryview) -> None:
        with storage_errors("Writing", str(self._path)):
            while data:
                data = data[self._count(os.write(self._descriptor, data)) :]

    def close(self, durable: bool = True) -> None:
        with storage_errors("Flushing", str(self._path)):
            if durable:
                os.fsync(self._descriptor)
            self._end()

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self._end()
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _count(self, written: int) -> int:
        before, self._written = self._written, self._written + written
        if _sync_file_range is not None and before // _FLUSH_EVERY != self._written // _FLUSH_EVERY:
            _sync_file_range(self._descriptor, ctypes.c_int64(0), ctypes.c_int64(0), _SYNC_FILE_RANGE_WRITE)
        return written

    def _end(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _link(source: Storage, path: str, full: Path) -> bool:
    """Link a file; False if the file system cannot."""
    if not isinstance(source, LocalStorage):
        return False
    try:
        os.link(source._full(path), full)
    except FileNotFoundError:
        raise
    except FileExistsError:
        pass  # complete: the name is given to complete files only
    except OSError:
        return False  # another file system, or one without links
    return True


def _copy(source: Storage, path: str, full: Path) -> None:
    """Copy a file under a temporary name and rename it, so that `full` is always complete."""
    part = full.with_name(f"{full.name}.{uuid.uuid4().hex}.part")
    try:
        with source.open_read(path) as reading, part.open("xb") as writing:
            while chunk := reading.read(_FLUSH_EVERY):
                writing.write(chunk)
            writing.flush()
            os.fsync(writing.fileno())
        part.rename(full)
    finally:
        part.unlink(missing_ok=True)


_AT_ONCE = 1 << 20
"""Bytes up to which a file is read in one call: with a mapping, page faults double the time."""
_FLUSH_EVERY = 8 << 20
"""Bytes after which the kernel is asked to start writing to disk, so that `close` waits for little."""
_SYNC_FILE_RANGE_WRITE = 2
_libc = ctypes.CDLL(None, use_errno=True)
_sync_file_range = getattr(_libc, "sync_file_range", None)
"""Only Linux has it; elsewhere `close` flushes everything."""


def _make_folder(folder: Path, mode: int) -> None:
    """Make a folder and its parents durably; users who may read its files may enter it."""
    mode |= (mode & 0o444) >> 2
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        with contextlib.suppress(FileExistsError):
            new.mkdir(mode=mode)
            if mode & 0o077:
                new.chmod(mode)
        _sync_folder(new.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _rename_new(old: Path, new: Path) -> None:
    """Rename a file atomically; FileExistsError if the new name is taken."""
    if _libc.renameat2(_HERE, os.fsencode(old), _HERE, os.fsencode(new), _NO_REPLACE):
        raise OSError(error := ctypes.get_errno(), os.strerror(error), str(new))


_NO_REPLACE = 1
"""Linux's RENAME_NOREPLACE."""
_HERE = -100
"""Linux's AT_FDCWD."""
