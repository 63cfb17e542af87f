"""A package that declares entry points, as one that is installed does."""

from __future__ import annotations

from pathlib import Path

import pytest


def declare(folder: Path, monkeypatch: pytest.MonkeyPatch, group: str, **points: str) -> None:
    """Each is found by its name, in this process and those that it starts."""
    told = folder / "declared-1.dist-info"
    told.mkdir(parents=True)
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: declared\nVersion: 1\n")
    lines = "".join(f"{name.replace('_', '-')} = {value}\n" for name, value in points.items())
    (told / "entry_points.txt").write_text(f"[{group}]\n{lines}")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
