"""Imports go one way only: the contracts of pyproject.toml hold, and each refuses what it is there to refuse."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

from crkafka_core.model.rows import ROWS

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("crkafka", "crkafka_core", "checkpoints_db", "dagster_project")

PARQUET_ROOM = "crkafka_core/segments"
FILES_OF_ARROW = {"pyarrow.parquet", "pyarrow.fs", "pyarrow.dataset", "pyarrow.feather", "pyarrow.orc"}


@cache
def syntax(file: Path) -> ast.Module:
    """Parsed once for all tests."""
    return ast.parse(file.read_text())


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_the_contracts_hold() -> None:
    done = _lint(ROOT)
    assert done.returncode == 0, done.stdout


WRONG_WAY = (
    ("crkafka_core/model", "import dagster_project.definitions"),
    ("crkafka_core/region", "from crkafka import Region"),
    ("crkafka_core/region", "import sqlalchemy"),
    ("crkafka_core/region", "import checkpoints_db"),
    ("crkafka_core/member", "import dagster"),
    ("crkafka_core/member", "from confluent_kafka import Consumer"),
    ("checkpoints_db", "import dagster"),
    ("checkpoints_db", "import confluent_kafka"),
    ("dagster_project", "import confluent_kafka"),
    ("crkafka_core/protocol", "import time"),
    ("crkafka_core/protocol", "import threading"),
    ("crkafka_core/plane", "import time"),
    ("crkafka_core/model", "from pathlib import Path"),
    ("crkafka_core/protocol", "import crkafka_core.member"),
    ("crkafka_core/region", "import crkafka_core.testing"),
    ("crkafka_core/testing", "import crkafka_core.cli"),
    ("crkafka_core/dev", "import crkafka_core.kafka"),
    ("crkafka_core/decode", "import pyspark"),
)


def test_each_import_in_the_wrong_direction_is_refused(tmp_path: Path) -> None:
    """Planted in a copy, each in a module of its own that nothing imports: one look of the linter names them all."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    modules = {}
    for number, (room, planted) in enumerate(WRONG_WAY):
        folder = tmp_path / room
        if not (folder / "__init__.py").exists():
            (folder / "__init__.py").write_text('"""Planted."""\n')
        (folder / f"planted_{number:02}.py").write_text(f'"""Planted."""\n\n{planted}\n')
        modules[f"{room.replace('/', '.')}.planted_{number:02} -> "] = planted
    done = _lint(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert [f"{module}{planted}" for module, planted in modules.items() if module not in done.stdout] == []


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(syntax(file)):
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


def test_no_private_name_of_dagster_is_imported() -> None:
    found = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in sorted((ROOT / "dagster_project").rglob("*.py"))
        for name in _imports(file)
        if name.startswith("dagster._")
    ]
    assert found == []


EVENTS = "crkafka_core/plane/events.py"
DECIDING = (
    "crkafka_core/plane",
    "crkafka_core/protocol",
    "crkafka_core/region",
    "crkafka_core/member",
    "dagster_project",
)
"""Rooms that decide something; the command line and the snapshots for people show events, and decide nothing."""


def test_nothing_is_decided_from_the_event_log() -> None:
    """Events are for people (SPEC X8): only `plane/events.py` reads them, and nobody who decides asks it to."""
    found = []
    for room in DECIDING:
        for file in sorted((ROOT / room).rglob("*.py")):
            if str(file.relative_to(ROOT)) == EVENTS:
                continue
            imports = set(_imports(file))
            asked = {
                node.attr
                for node in ast.walk(syntax(file))
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "events"
            }
            if "crkafka_core.model.rows.Event" in imports or asked & {"after", "since", "last"}:
                found.append(str(file.relative_to(ROOT)))
    assert found == []


KNOWN_CIRCLES = (
    (
        "crkafka_core.segments.hdfs",
        "crkafka_core.segments.local",
        "crkafka_core.segments.objects",
        "crkafka_core.segments.storage",
    ),  # opens what extends it
    ("crkafka_core.dev.class_archive", "crkafka_core.dev.kafka"),  # made by starting once what is started with it
)


def test_no_two_files_import_each_other() -> None:
    """Also not from within a function, and not by way of others; what is imported for its types alone does not count."""
    modules = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
    }
    left = {name: _imports_to_run(file, modules) - {name} for name, file in modules.items()}
    for circle in KNOWN_CIRCLES:
        for module in circle:
            assert left[module] & set(circle), f"{module} is in no circle any more"
        for module in circle[:-1]:
            left[module] -= set(circle)
    while done := [name for name, imports in left.items() if not imports]:
        for name in done:
            del left[name]
        left = {name: imports - set(done) for name, imports in left.items()}
    assert left == {}


def _imports_to_run(file: Path, modules: Collection[str]) -> set[str]:
    tree = syntax(file)
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{name.name}" for name in node.names}
            found |= {name if name in modules else node.module for name in names}
    return found & set(modules)


PARTS_OF_THE_STATUS = {
    ("alarms", "current"),
    ("alarms", "no_merge"),
    ("alarms", "last_cut_missed"),
    ("cuts", "unready"),
}


def test_what_a_region_waits_for_and_what_is_wrong_is_asked_of_its_status() -> None:
    """`show`, `health`, metrics, probes and Dagster say the same, because they ask one place: `plane/status.py`."""
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
        for package in PACKAGES
        for file in sorted((ROOT / package).rglob("*.py"))
        if not str(file.relative_to(ROOT)).startswith(("crkafka_core/plane", "crkafka_core/testing"))
        for node in ast.walk(syntax(file))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in PARTS_OF_THE_STATUS
    ]
    assert found == []


def test_a_member_reaches_the_control_plane_through_its_gate_alone() -> None:
    """SPEC G11: `MemberPlane` compares region, incarnation and epoch; what makes one is the only place that names anything else."""
    found = []
    for file in sorted((ROOT / "crkafka_core/member").glob("*.py")):
        tree = syntax(file)
        attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        if file.name in (
            "main.py",
            "leash.py",
        ):  # they open the ungated one, to wrap it or to read: no mutation by themselves
            wrong = {node.attr for node in attributes} & {"do", "create"}
        else:
            wrong = {n for n in _imports(file) if n.endswith(("transact.ControlPlane", "control.Store"))}
            wrong |= {node.attr for node in attributes if node.attr in ("store", "_store") and _plane(node.value)}
        if wrong:
            found.append(f"{file.name}: {', '.join(sorted(wrong))}")
    assert found == []


def _plane(node: ast.expr) -> bool:
    """Whether an expression is called a plane: `plane`, `self._plane`."""
    return "plane" in (node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else "")


QUESTIONS = {"select", "column", "count"}
MAY_ASK = ("crkafka_core/plane", "crkafka_core/verify", "crkafka_core/testing", "checkpoints_db")


def test_rows_are_searched_in_the_plane_alone() -> None:
    """What is above names what it wants to know: `checkpoints.filled(reader)`, and no condition on columns."""
    rows = {row.__name__ for row in ROWS}
    found = []
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            if str(file.relative_to(ROOT)).startswith(MAY_ASK):
                continue
            for node in ast.walk(syntax(file)):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                    continue
                about = ast.unparse(node.args[0]).split(".")[-1]
                if node.func.attr in QUESTIONS and about in rows:
                    found.append(f"{file.relative_to(ROOT)}:{node.lineno} {ast.unparse(node.func)}({about}")
    assert found == []


LONGEST_FUNCTION = 40


def test_no_function_is_longer_than_a_screen() -> None:
    """Migrations are history, and stay as they were."""
    found = {
        f"{file.relative_to(ROOT)} {node.name}"
        for package in PACKAGES
        for file in sorted((ROOT / package).rglob("*.py"))
        if "migrations" not in file.parts
        for node in ast.walk(syntax(file))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > LONGEST_FUNCTION
    }
    assert found == set()


def test_no_line_is_kept_from_the_formatter() -> None:
    marks = tuple(f"# fmt: {what}" for what in ("skip", "off"))
    found = [
        str(file.relative_to(ROOT))
        for folder in (*PACKAGES, "pyspark_crkafka", "scripts", "bench", "examples", "tests")
        for file in sorted((ROOT / folder).rglob("*.py"))
        if any(mark in file.read_text() for mark in marks)
    ]
    assert found == []
