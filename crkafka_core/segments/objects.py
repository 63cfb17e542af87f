"""Segments in an object store, S3, Azure or Google's, through obstore; docs/clients.md has what that library does and lacks."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa

from crkafka_core.config.location import AZURE, GOOGLE, S3, library_options, store_of
from crkafka_core.model.errors import ConfigError
from crkafka_core.segments.errors import SegmentMissing, storage_errors, without_secrets
from crkafka_core.segments.storage import Output, Storage, Stored, below

try:
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError
    from obstore.store import AzureStore, GCSStore, S3Store
except ImportError as missing:
    raise ConfigError(
        "Object stores need obstore, which is not installed.",
        hint="pip install 'crkafka[s3]', 'crkafka[azure]' or 'crkafka[gcs]'",
    ) from missing

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_TIMES = ("connect_timeout", "request_timeout")
_AT_ONCE = 1 << 20
"""Bytes up to which a file is read by one request."""
_PART = 8 << 20
"""Bytes of a request that is one of several for the same file: also of a part of an upload."""
_errors = partial(storage_errors, kinds=(OSError, BaseError))


class ObjectStorage(Storage):
    """A prefix of a bucket or container. A file appears complete, when it is closed."""

    puts_new = True
    at_once = 16

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self._kind = store_of(url)
        known = [*self._kind.options, "scheme", *_TIMES]
        if unknown := sorted(set(options) - set(known)):
            raise ConfigError(f"storage: unknown option {unknown[0]!r}.", hint=f"There are: {', '.join(known)}.")
        parts = urlsplit(url)
        self.url = url.rstrip("/")
        self._options = dict(options)
        self._bucket, self._root = parts.netloc, parts.path.strip("/")
        try:
            self._store = _opened(f"{parts.scheme.lower()}://{parts.netloc}", tuple(sorted(options.items())))
        except (ValueError, BaseError) as error:
            raise ConfigError(
                f"storage: {self.url} cannot be opened: {without_secrets(str(error).splitlines()[0])}.",
                hint="Look at storage_options.",
            ) from None

    def __reduce__(self) -> tuple[type[ObjectStorage], tuple[str, Mapping[str, str]]]:
        return type(self), (self.url, self._options)

    def exists(self, path: str) -> bool:
        try:
            with _errors("Looking at", self.uri(path)):
                obstore.head(self._store, self._key(path))
        except SegmentMissing:
            return False
        return True

    def open_read(self, path: str) -> pa.NativeFile:
        with _errors("Reading", self.uri(path)):
            answer = obstore.get(self._store, self._key(path))
            size = answer.meta["size"]
            if size <= _AT_ONCE:
                return pa.BufferReader(pa.py_buffer(answer.bytes()))
        return pa.PythonFile(_Ranges(self._store, self._key(path), size, self.uri(path)), mode="r")

    def open_write(self, path: str) -> Output:
        return _ObjectOutput(self._store, self._key(path), self.uri(path))

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        with _errors("Writing", self.uri(path)):
            obstore.put(self._store, self._key(path), data, use_multipart=False)

    def put_new(self, path: str, data: bytes) -> bool:
        with _errors("Writing", self.uri(path)):
            try:
                obstore.put(self._store, self._key(path), data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
        return True

    def own(self, source: Storage, path: str, name: str) -> int:
        if not (self._kind.copies and isinstance(source, ObjectStorage) and source._store is self._store):
            return super().own(source, path, name)
        with _errors("Taking over", source.uri(path)):
            obstore.copy(self._store, source._key(path), self._key(name))
            return int(obstore.head(self._store, self._key(name))["size"])

    def delete(self, path: str) -> bool:
        if not self.exists(path):
            return False
        with _errors("Deleting", self.uri(path)), contextlib.suppress(FileNotFoundError):
            obstore.delete(self._store, self._key(path))
        return True

    def list(self, prefix: str) -> Iterator[Stored]:
        top = "/".join(part for part in (self._root, prefix and below(prefix)) if part)
        with _errors("Listing", self.uri(prefix)):
            for page in obstore.list(self._store, top or None):
                for each in page:
                    path = each["path"][len(self._root) :].lstrip("/")
                    yield Stored(path, each["size"], each["last_modified"].timestamp())

    def end_uploads(self, prefix: str, only: Callable[[str], bool] = lambda _: True) -> int:
        if self._kind is not S3:
            return 0  # Azure drops blocks that no blob took within a week; of Google's, obstore has no list
        from crkafka_core.segments import aws

        start = len(self._root) + 1 if self._root else 0
        top = f"{self._key(prefix)}/"
        return aws.end_uploads(self._bucket, top, self._options, lambda key: only(key[start:]))

    def delete_folder(self, prefix: str) -> None:
        with _errors("Deleting", self.uri(prefix)):
            for page in obstore.list(self._store, self._key(prefix)):
                obstore.delete(self._store, [each["path"] for each in page])

    def _key(self, path: str) -> str:
        return f"{self._root}/{below(path)}" if self._root else below(path)


class _Ranges(io.RawIOBase):
    """A file that is read by ranges; large ones by several requests at the same time."""

    def __init__(self, store: ObjectStore, key: str, size: int, uri: str) -> None:
        self._store, self._key, self._size, self._uri = store, key, size, uri
        self._at = 0

    def read(self, size: int | None = -1) -> bytes:
        stop = self._size if size is None or size < 0 else min(self._at + size, self._size)
        starts = [*range(self._at, stop, _PART)]
        ends = [*starts[1:], stop]
        with _errors("Reading", self._uri):
            parts = obstore.get_ranges(self._store, self._key, starts=starts, ends=ends, coalesce=0) if starts else []
        self._at = max(self._at, stop)
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


class _ObjectOutput(Output):
    """An upload: in parts, in the background, if it has more than one."""

    def __init__(self, store: ObjectStore, key: str, uri: str) -> None:
        self._writer, self._uri = obstore.open_writer(store, key, buffer_size=_PART, max_concurrency=8), uri

    def write(self, data: memoryview) -> None:
        with _errors("Writing", self._uri):
            self._writer.write(bytes(data))  # it keeps what it is given, and a caller may use that memory again

    def close(self) -> None:
        with _errors("Writing", self._uri):
            self._writer.close()

    def discard(self) -> None:
        with contextlib.suppress(Exception):
            self._writer.__exit__(OSError, None, None)  # ends the upload; nothing appears


@lru_cache(maxsize=64)
def _opened(bucket: str, options: tuple[tuple[str, str], ...]) -> ObjectStore:
    """The client of a bucket, which keeps its connections; all threads of a process share it."""
    given = dict(options)
    connect, request = (f"{float(given.get(key, default)):g}s" for key, default in zip(_TIMES, (5, 30), strict=True))
    settings: dict[str, Any] = {
        "client_options": {"allow_http": True, "connect_timeout": connect, "timeout": request},
        "retry_config": {"max_retries": 2, "retry_timeout": timedelta(seconds=90)},
    }
    config: dict[str, Any] = library_options(bucket, given)
    config.pop("allow_http", None)
    place = urlsplit(bucket).netloc
    if store_of(bucket) is AZURE:
        container, _, host = place.partition("@")
        settings["config"] = {"account_name": host.partition(".")[0], **config}
        return AzureStore(container, **settings)
    if store_of(bucket) is GOOGLE:
        return GCSStore(place, **settings, config=config)  # type: ignore[arg-type]
    if "access_key" not in given:
        from crkafka_core.segments import aws

        settings["credential_provider"] = environment = aws.Environment()
        if environment.region and not {"AWS_REGION", "AWS_DEFAULT_REGION"} & os.environ.keys():
            config.setdefault("aws_region", environment.region)
    return S3Store(place, **settings, config=config)  # type: ignore[arg-type]
