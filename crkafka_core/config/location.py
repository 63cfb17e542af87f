"""Paths and URLs: a relative path means the configuration file's project, and is made absolute when loaded."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from crkafka_core.config.reference import expanded, has_reference

_MARKS = ("pyproject.toml", "workspace.yaml", ".git")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_PLAIN_PATH = re.compile(r"[\w./-]+")
_IN_CATALOG = re.compile(r"[\w-]+(\.[\w-]+){2,}")
_SQLITE = re.compile(r"(?P<scheme>sqlite(?:\+\w+)?)://(?P<rest>.*)", re.DOTALL)


def project_of(file: Path) -> Path:
    """The folder that relative paths mean: the nearest one upward with a project's mark, else the file's own."""
    folder = file.resolve().parent
    for candidate in (folder, *folder.parents):
        if any((candidate / mark).exists() for mark in _MARKS):
            return candidate
    return folder


def absolute(path: str, base: Path) -> str:
    """A path made absolute; a URL or a text that begins with a reference is left as it is."""
    if "\0" in path:
        raise ValueError("has a NUL character, which no path has")
    if _SCHEME.match(path) or path.startswith("${"):
        return path
    return str(base / expanded(path))


def check_scheme(path: str, known: Sequence[str]) -> None:
    """ValueError for a URL of another kind: its client would ask the network for minutes, or say what only it understands."""
    match = _SCHEME.match(path)
    if match is not None and match[0][:-1].lower() not in known:
        raise ValueError(f"must be a folder, s3://bucket/prefix or hdfs://…; {match[0]} is not supported")
    if match is not None and match[0].lower() in ("s3:", "s3a:") and not urlsplit(path).netloc:
        raise ValueError(f"must be s3://bucket/prefix, not {path!r}")


def overlap(one: str, other: str) -> bool:
    """Whether two places are one, or one is within the other. What a reference hides is not known."""
    first, second = _parts(one), _parts(other)
    shared = min(len(first), len(second))
    return not (has_reference(one) or has_reference(other)) and first[:shared] == second[:shared]


def _parts(path: str) -> list[str]:
    scheme = _SCHEME.match(path)
    if scheme is None:
        return ["", *posixpath.normpath(path).split("/")[1:]]
    url = urlsplit(path)
    kind = {"file": "", "s3a": "s3"}.get(url.scheme.lower(), url.scheme.lower())
    inside = [part for part in posixpath.normpath(url.path or "/").split("/") if part]
    return [kind, *inside] if kind == "" else [kind, url.netloc, *inside]


def in_catalog(path: str) -> bool:
    """Whether a table's path is not a path but its name in a catalog: `catalog.schema.table`."""
    return _IN_CATALOG.fullmatch(path) is not None


def has_log(path: str) -> bool:
    """Whether a table is at a path at which its log is written without Spark; not a name in a catalog, which knows where its table is."""
    scheme = path.partition("://")[0] if "://" in path else ""
    return scheme in ("", "file", "s3", "s3a") and not in_catalog(path)


def is_local(path: str) -> bool:
    """Whether a storage path is on the disk of the machine that uses it."""
    return not has_reference(path) and (not _SCHEME.match(path) or path.lower().startswith("file:"))


def absolute_url(url: str, base: Path) -> str:
    """A control plane's URL, with a relative SQLite file made absolute. ValueError for what cannot be one."""
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
    """The scheme and `HOST:PORT` of an object store's endpoint; what is not said is empty."""
    prefix, _, place = options.get("endpoint", "").rpartition("://")
    return (options.get("scheme") or prefix).lower(), place
