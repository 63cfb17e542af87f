"""Finds a Chromium for browser tests: the system's, else the one that Playwright put into the cache (docs/clients.md C-E6)."""

from __future__ import annotations

import shutil
from pathlib import Path

from crkafka_core.dev.cache import cache_folder
from crkafka_core.dev.errors import ServiceFailed

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

QUIET_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""Start it with these: as root, in a small container, and without calls to anywhere but the page under test."""


def browsers_folder() -> Path:
    """Where Playwright puts a browser that it downloads (`PLAYWRIGHT_BROWSERS_PATH`)."""
    return cache_folder() / "browsers"


def find_chromium() -> Path:
    """The executable, for Playwright's `executable_path`."""
    for name in NAMES:
        if (path := shutil.which(name)) and not _only_points_to_a_snap(Path(path)):
            return Path(path)
    downloaded = sorted(browsers_folder().glob("chromium-*/chrome-linux*/chrome"))
    if downloaded:
        return downloaded[-1]
    raise ServiceFailed("Chromium", "was not found", hint="Install it, for example `sudo apt-get install chromium`.")


def _only_points_to_a_snap(path: Path) -> bool:
    """Ubuntu's `chromium-browser` may be a script that says how to install the snap."""
    with path.open("rb") as file:
        start = file.read(4_000)
    return start.startswith(b"#!") and b"snap install" in start
