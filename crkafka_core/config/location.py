"""Locations: the kinds of store with their schemes, paths of a project, URLs of a control plane.

A new object store is one line in `STORES` and one module that opens it (`segments/storage.py`).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from crkafka_core.config.reference import expanded, has_reference

_MARKS = ("pyproject.toml", "workspace.yaml", ".git")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_PLAIN_PATH = re.compile(r"[\w./-]+")
_IN_CATALOG = re.compile(r"[\w-]+(\.([\w-]|\{topic\})+){2,}")
_SQLITE = re.compile(r"(?P<scheme>sqlite(?:\+\w+)?)://(?P<rest>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Store:
    """A kind of store for segments and tables. The first of its schemes is Arrow's and delta-rs's name for it."""

    schemes: tuple[str, ...]
    hadoop: str = ""
    """Scheme of Hadoop's file systems, and so of Spark, if it is not the same."""
    local: bool = False
    """On a disk of the machine that opens it."""
    folders: bool = True
    """False for a store of objects: Spark needs jars and credentials to open it, and a folder there would be an empty object."""
    puts_new: bool = False
    """A file can be written only if its name is new: tables can be committed without Spark."""
    configurable: bool = True
    """A region's storage may be there."""


FOLDER = Store(("file", ""), local=True, puts_new=True)
S3 = Store(("s3", "s3a"), hadoop="s3a", folders=False, puts_new=True)
HDFS = Store(("hdfs",))
STORES = (FOLDER, S3, HDFS, Store(("viewfs",)), Store(("gs", "gcs"), folders=False, configurable=False))
_BY_SCHEME = {scheme: store for store in STORES for scheme in store.schemes}
_UNKNOWN = Store((), configurable=False)


def scheme_of(path: str) -> str:
    """Scheme of a URL in lower case; empty for a path."""
    match = _SCHEME.match(path)
    return match[0][:-1].lower() if match is not None else ""


def store_of(path: str) -> Store:
    """The kind of store of a path or URL."""
    return _BY_SCHEME.get(scheme_of(path), _UNKNOWN)


def arrow_url(path: str) -> str:
    """A path or URL with the scheme that Arrow and delta-rs have for its store."""
    return _renamed(path, store_of(path).schemes[:1])


def hadoop_url(path: str) -> str:
    """A path or URL with the scheme that Hadoop's file systems, and so Spark, have for its store."""
    return _renamed(path, (store_of(path).hadoop,))


def _renamed(path: str, schemes: tuple[str, ...]) -> str:
    scheme = scheme_of(path)
    return f"{schemes[0]}{path[len(scheme) :]}" if scheme and schemes and schemes[0] else path


def project_of(file: Path) -> Path:
    """The folder of relative paths: the nearest parent with a mark of a project, else the file's own."""
    folder = file.resolve().parent
    for candidate in (folder, *folder.parents):
        if any((candidate / mark).exists() for mark in _MARKS):
            return candidate
    return folder


def absolute(path: str, base: Path) -> str:
    """A path made absolute; a URL, or a text that begins with a reference, is unchanged."""
    if "\0" in path:
        raise ValueError("has a NUL character, which no path has")
    if _SCHEME.match(path) or path.startswith("${"):
        return path
    return str(base / expanded(path))


def check_store(path: str) -> None:
    """ValueError for the URL of an unknown store: its client might try the network for minutes, and fail with a text of its own."""
    store = store_of(path)
    if not store.configurable:
        raise ValueError(f"must be a folder, s3://bucket/prefix or hdfs://…; {scheme_of(path)}: is not supported")
    if store is S3 and not urlsplit(path).netloc:
        raise ValueError(f"must be s3://bucket/prefix, not {path!r}")


def overlap(one: str, other: str) -> bool:
    """Whether two places are equal, or one is inside the other; of a path with a reference, whose value is unknown here, only equal.

    Names in a catalog differ by more than the case of letters: some catalogs fold it.
    """
    if one == other:
        return True
    first, second = _parts(one), _parts(other)
    shared = min(len(first), len(second))
    return shared > 0 and first[:shared] == second[:shared]


@lru_cache(4096)  # many tables are compared with each other
def _parts(path: str) -> tuple[str, ...]:
    """From the outermost to the innermost; none where they are not known."""
    if has_reference(path):
        return ()
    if in_catalog(path):
        return ("catalog", path.casefold())
    store = store_of(path)
    if not scheme_of(path):
        return (store.schemes[0], *posixpath.normpath(path).split("/")[1:])
    url = urlsplit(path)
    inside = [part for part in posixpath.normpath(url.path or "/").split("/") if part]
    kind = (store.schemes or (url.scheme,))[0]
    return (kind, *inside) if store.local else (kind, url.netloc, *inside)


def in_catalog(path: str) -> bool:
    """Whether a table's `path` is its name in a catalog: `catalog.schema.table`."""
    return _IN_CATALOG.fullmatch(path) is not None


def has_log(path: str) -> bool:
    """Whether a table's log can be written at its path without Spark; not for a name in a catalog, which has the table's path."""
    return store_of(path).puts_new and not in_catalog(path)


def is_local(path: str) -> bool:
    """Whether a storage path is on the disk of the machine that uses it."""
    return not has_reference(path) and store_of(path).local


def absolute_url(url: str, base: Path) -> str:
    """A control plane's URL, with a relative SQLite file made absolute. ValueError if it is not a URL."""
    if url.startswith("${"):
        return url
    match = _SQLITE.fullmatch(url)
    if match is None:
        if "://" not in url:
            file = url.lstrip("/") if _PLAIN_PATH.fullmatch(url) else "var/crkafka.db"  # else it may hold a password
            raise ValueError(f"must be a URL, such as sqlite:///{file} or postgresql+psycopg://…")
        return url
    file, question, query = match["rest"].partition("?")
    if not file.startswith("/"):
        if file:
            raise ValueError(f"a SQLite URL has three slashes: {match['scheme']}:///{file}")
        raise ValueError("SQLite in memory cannot be shared by processes; name a file: sqlite:///var/crkafka.db")
    name = file[1:]
    if name in ("", ":memory:"):
        raise ValueError("SQLite in memory cannot be shared by processes; name a file: sqlite:///var/crkafka.db")
    if name.startswith("file:"):
        return url
    return f"{match['scheme']}:///{absolute(name, base)}{question}{query}"


def is_sqlite(url: str) -> bool:
    """Whether the control plane is a file on one machine."""
    return url.startswith("sqlite")


def sqlite_file(url: str) -> Path | None:
    """The file of a SQLite control plane; None for another database."""
    match = _SQLITE.fullmatch(url)
    return Path(match["rest"][1:].partition("?")[0]) if match else None


def split_endpoint(options: Mapping[str, str]) -> tuple[str, str]:
    """The scheme and `HOST:PORT` of an object store's endpoint; missing parts are empty."""
    prefix, _, place = options.get("endpoint", "").rpartition("://")
    return (options.get("scheme") or prefix).lower(), place


def deltalake_options(options: Mapping[str, str]) -> dict[str, str]:
    """A region's `storage_options` in deltalake's words; the environment has what is not given."""
    scheme, place = split_endpoint(options)
    words = {
        "AWS_ENDPOINT_URL": f"{scheme or 'https'}://{place}" if place else "",
        "AWS_ALLOW_HTTP": "true" if scheme == "http" else "",
        "AWS_REGION": options.get("region", ""),
        "AWS_ACCESS_KEY_ID": options.get("access_key", ""),
        "AWS_SECRET_ACCESS_KEY": options.get("secret_key", ""),
        "AWS_SESSION_TOKEN": options.get("session_token", ""),
    }
    return {key: value for key, value in words.items() if value}
