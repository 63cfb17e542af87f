"""Imports go one way only: the contracts of pyproject.toml hold, and each refuses what it is there to refuse."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("crkafka_core", "checkpoints_db", "dagster_project")

PARQUET_ROOM = "crkafka_core/segments"
FILES_OF_ARROW = {"pyarrow.parquet", "pyarrow.fs", "pyarrow.dataset", "pyarrow.feather", "pyarrow.orc"}


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages' sources and the contracts, to plant imports in."""
    folder = tmp_path_factory.mktemp("tree")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_the_contracts_hold() -> None:
    done = _lint(ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("module", "planted"),
    [
        ("crkafka_core/model/planted.py", "import dagster_project.definitions"),
        ("crkafka_core/region/planted.py", "import sqlalchemy"),
        ("crkafka_core/region/planted.py", "import checkpoints_db"),
        ("crkafka_core/member/planted.py", "import dagster"),
        ("crkafka_core/member/planted.py", "from confluent_kafka import Consumer"),
        ("checkpoints_db/planted.py", "import dagster"),
        ("checkpoints_db/planted.py", "import confluent_kafka"),
        ("dagster_project/planted.py", "import confluent_kafka"),
        ("crkafka_core/protocol/planted.py", "import time"),
        ("crkafka_core/protocol/planted.py", "import threading"),
        ("crkafka_core/plane/planted.py", "import time"),
        ("crkafka_core/model/planted.py", "from pathlib import Path"),
        ("crkafka_core/protocol/planted.py", "import crkafka_core.member"),
    ],
)
def test_an_import_in_the_wrong_direction_is_refused(copy: Path, module: str, planted: str) -> None:
    file = copy / module
    if not (file.parent / "__init__.py").exists():
        (file.parent / "__init__.py").write_text('"""Planted."""\n')
    file.write_text(f'"""Planted."""\n\n{planted}\n')
    try:
        done = _lint(copy)
        assert done.returncode == 1, done.stdout + done.stderr
        assert module.removesuffix(".py").replace("/", ".") in done.stdout
    finally:
        file.unlink()


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def test_only_the_segments_room_touches_parquet_and_file_systems() -> None:
    """Import-linter sees only whole packages from outside; this looks at their modules."""
    found = [
        f"{file.relative_to(ROOT)} imports {name}"
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        if not str(file.relative_to(ROOT)).startswith((PARQUET_ROOM, "crkafka_core/testing"))
        for name in _imports(file)
        if name in FILES_OF_ARROW
    ]
    assert found == []
