"""Finds the control plane for a URL by its entry point, never by an import."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any
from urllib.parse import urlsplit

from crkafka_core.config import RegionConfig
from crkafka_core.config.problem import nearest
from crkafka_core.control import Store
from crkafka_core.model.errors import ConfigError
from crkafka_core.plane.transact import ControlPlane

GROUP = "crkafka.control_plane"
"""Scheme of a URL → a function that opens a store."""
INITIALISE = "crkafka.control_plane.initialise"
"""Scheme of a URL → a function that makes or migrates the schema."""

ROLES = "crkafka.control_plane.roles"
"""Scheme of a URL → a function that gives the SQL of its roles."""


def open_store(url: str) -> Store:
    """The store for a URL: the entry point is named by the scheme, without a driver's name behind `+`."""
    store: Store = _offered(GROUP, url)(url)
    return store


def initialise(url: str) -> None:
    """Make the schema behind a URL, or bring it up to date; safe to repeat, and to run twice at once."""
    _offered(INITIALISE, url)(url)


def roles(url: str) -> str:
    """SQL for a person who has the right to run it: roles of the control plane, and what each of them may."""
    sql: str = _offered(
        ROLES, url, "Only PostgreSQL has roles; of a SQLite file the mode says who may read and write it."
    )()
    return sql


def preload() -> None:
    """Import every store that is installed, so that a process forked from here opens one at once."""
    for store in entry_points(group=GROUP):
        store.load()


def _offered(group: str, url: str, hint: str = "") -> Any:
    scheme = urlsplit(url).scheme.partition("+")[0]
    offered = entry_points(group=group, name=scheme)
    if not offered:
        there = sorted({e.name for e in entry_points(group=group)})
        raise ConfigError(
            f"For {scheme!r} there are no roles."
            if group == ROLES
            else f"No control plane for {scheme!r} is installed.",
            hint=hint
            or f"There are: {', '.join(there) or 'none; install the project itself'}.{nearest(scheme, there)}",
        )
    return next(iter(offered)).load()


def open_plane(config: RegionConfig) -> ControlPlane:
    """The control plane of a region's configuration."""
    return ControlPlane(open_store(config.resolved_control_plane()), config.region)
