"""Whoever makes a folder of that name first, only ours is used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crkafka_core.model.errors import ConfigError
from crkafka_core.private_folder import private_folder


def test_it_is_made_for_this_user_alone(tmp_path: Path) -> None:
    assert private_folder(tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_one_of_ours_that_is_open_is_closed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o755)
    assert private_folder(tmp_path / "a").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("made", ["link", "file", "somebody else's"])
def test_anything_else_of_that_name_is_refused(made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "a"
    if made == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif made == "file":
        path.touch()
    else:
        path.mkdir()
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(ConfigError, match="is not a folder of this user"):
        private_folder(path)
