"""Locations: the kinds of store with their schemes, paths of a project, URLs of a control plane. A new object store is one line in `STORES`
and one module that opens it (`segments/storage.py`)."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from crkafka_core.config.reference import expanded, has_reference

_MARKS = ("pyproject.toml", "workspace.yaml", ".git")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_PLAIN_PATH = re.compile(r"[\w./-]+")
_IN_CATALOG = re.compile(r"[\w-]+(\.([\w-]|\{topic\})+){2,}")
_CONTAINER = re.compile(r"[\w$-]+@[\w-]+\.[\w.-]+")
_SQLITE = re.compile(r"(?P<scheme>sqlite(?:\+\w+)?)://(?P<rest>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """A kind of store for segments and tables."""

    schemes: tuple[str, ...]
    written: str
    """Form of its paths or URLs."""
    hadoop: str = ""
    """Scheme of Hadoop's file systems, and so of Spark, if it is not the same."""
    local: bool = False
    """On a disk of the machine that opens it."""
    folders: bool = True
    """False for a store of objects: Spark needs jars and credentials to open it, and a folder there would be an empty object."""
    puts_new: bool = False
    """A file can be written only if its name is new: tables can be committed without Spark."""
    copies: bool = False
    """A file can be copied inside, and is complete once that call has returned."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Names in `storage_options` → names in the library `object_store`, which deltalake and obstore share."""


FOLDER = Store(("file", ""), "a folder", local=True, puts_new=True)
S3 = Store(
    ("s3", "s3a"),
    "s3://bucket/prefix",
    hadoop="s3a",
    folders=False,
    puts_new=True,
    copies=True,
    options={
        "endpoint": "aws_endpoint_url",
        "region": "aws_region",
        "access_key": "aws_access_key_id",
        "secret_key": "aws_secret_access_key",
        "session_token": "aws_session_token",
    },
)
AZURE = Store(
    ("abfss",),
    "abfss://container@account.dfs.core.windows.net/prefix",
    folders=False,
    puts_new=True,
    options={
        "endpoint": "azure_storage_endpoint",
        "access_key": "azure_storage_account_key",
        "sas_token": "azure_storage_sas_key",
        "client_id": "azure_storage_client_id",
        "client_secret": "azure_storage_client_secret",
        "tenant_id": "azure_storage_tenant_id",
    },
)
GOOGLE = Store(
    ("gs",),
    "gs://bucket/prefix",
    folders=False,
    puts_new=True,
    options={"endpoint": "google_base_url", "service_account_key": "google_service_account_key"},
)
HDFS = Store(("hdfs", "viewfs"), "hdfs://…")
STORES = (FOLDER, S3, AZURE, GOOGLE, HDFS)
_BY_SCHEME = {scheme: store for store in STORES for scheme in store.schemes}
_UNKNOWN = Store((), "")


def scheme_of(path: str) -> str:
    """Scheme of a URL in lower case; empty for a path."""
    match = _SCHEME.match(path)
    return match[0][:-1].lower() if match is not None else ""


def store_of(path: str) -> Store:
    return _BY_SCHEME.get(scheme_of(path), _UNKNOWN)


def hadoop_url(path: str) -> str:
    """A path or URL with the scheme that Hadoop's file systems, and so Spark, have for its store."""
    hadoop = store_of(path).hadoop
    return hadoop + path[len(scheme_of(path)) :] if hadoop else path


def project_of(file: Path) -> Path:
    """The folder of relative paths: the nearest parent with a mark of a project, else the file's own."""
    folder = file.resolve().parent
    above = (each for each in (folder, *folder.parents) if any((each / mark).exists() for mark in _MARKS))
    return next(above, folder)


def absolute(path: str, base: Path) -> str:
    """A path made absolute; a URL, or a text that begins with a reference, is unchanged."""
    if "\0" in path:
        raise ValueError("has a NUL character, which no path has")
    if _SCHEME.match(path) or path.startswith("${"):
        return path
    return str(base / expanded(path))


def check_store(path: str) -> None:
    """ValueError for the URL of an unknown store: its client might try the network for minutes, and fail with a text of its own."""
    store, url = store_of(path), urlsplit(path)
    if store is _UNKNOWN:
        *others, last = (each.written for each in STORES)
        raise ValueError(f"must be {', '.join(others)} or {last}; {scheme_of(path)}: is not supported")
    named = _CONTAINER.fullmatch(url.netloc) if store is AZURE else url.netloc
    if not store.folders and not has_reference(path) and (not named or url.query):
        raise ValueError(f"must be {store.written}, not {path!r}")


def overlap(one: str, other: str) -> bool:
    """Whether two places are equal, or one is inside the other; of a path with a reference, whose value is unknown here, only equal. Names
    in a catalog differ by more than the case of letters: some catalogs fold it."""
    if one == other:
        return True
    first, second = _parts(one), _parts(other)
    shared = min(len(first), len(second))
    return shared > 0 and first[:shared] == second[:shared]


def check_apart(places: Iterable[tuple[str, str]]) -> None:
    """ValueError for places, each with its name, that lie in one another."""
    for (one, path), (other, another) in itertools.combinations(places, 2):
        if overlap(path, another):
            raise ValueError(
                f"{one} ({path}) and {other} ({another}) lie in one another: cleaning up one would delete the other; "
                "give each a folder of its own"
            )


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
    if file in ("", "/", "/:memory:"):
        raise ValueError("SQLite in memory cannot be shared by processes; name a file: sqlite:///var/crkafka.db")
    if not file.startswith("/"):
        raise ValueError(f"a SQLite URL has three slashes: {match['scheme']}:///{file}")
    if file.startswith("/file:"):
        return url
    return f"{match['scheme']}:///{absolute(file[1:], base)}{question}{query}"


def sqlite_file(url: str) -> Path | None:
    """The file of a SQLite control plane; None for another database."""
    match = _SQLITE.fullmatch(url)
    return Path(match["rest"][1:].partition("?")[0]) if match else None


def split_endpoint(options: Mapping[str, str]) -> tuple[str, str]:
    """The scheme and `HOST:PORT` of an object store's endpoint; missing parts are empty."""
    prefix, _, place = options.get("endpoint", "").rpartition("://")
    return (options.get("scheme") or prefix).lower(), place


def library_options(path: str, options: Mapping[str, str]) -> dict[str, str]:
    """A region's `storage_options` in the words of `object_store`, for a path; the environment has what is not given."""
    scheme, place = split_endpoint(options)
    given = {**options, "endpoint": f"{scheme or 'https'}://{place}" if place else ""}
    words = {word: given[name] for name, word in store_of(path).options.items() if given.get(name)}
    return {**words, "allow_http": "true"} if words and scheme == "http" else words
