"""`import crkafka` is all that a program over a region needs: cheap to import, and nothing deeper stands in any document or example."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import crkafka
from crkafka_core.model.errors import CrkafkaError

ROOT = Path(__file__).resolve().parents[2]
DOOR = ROOT / "crkafka" / "__init__.py"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
PROGRAMS = [*sorted((ROOT / "crkafka_core" / "starter").rglob("*.py")), *sorted((ROOT / "examples").rglob("*.py"))]
STAGED = ROOT / "examples" / "demo"
"""No pattern for programs: it starts the services, plays the faults and looks behind the scenes while it tells of them."""
DOORS = re.compile(r"crkafka|dagster_project|crkafka_core\.(dev|testing)(\..*)?")
"""What users import: a region, Dagster's component, and what brings up and feeds services in a first look or a test."""


def _typed() -> dict[str, str]:
    """Name → module, as type checkers see the front door."""
    for node in ast.parse(DOOR.read_text()).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            found = [(n, a) for n in node.body if isinstance(n, ast.ImportFrom) for a in n.names]
            assert [a.name for _, a in found if a.asname != a.name] == []
            return {a.name: n.module or "" for n, a in found}
    raise AssertionError("the front door has no types")


def test_what_is_typed_is_what_is_there() -> None:
    assert dir(crkafka) == sorted(_typed())
    for name, module in _typed().items():
        home = sys.modules[module] if getattr(crkafka, name) is not None else None
        assert getattr(crkafka, name) is getattr(home, name), name


def test_all_that_a_program_is_promised_is_there() -> None:
    from crkafka import Region, RegionConfig, checkpoints, initialise, tables

    assert all((Region.open, RegionConfig.load, checkpoints, initialise, tables.advance))
    assert issubclass(crkafka.DataLoss, CrkafkaError) and crkafka.errors.LeaseHeld


def test_a_name_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(AttributeError, match=r"no 'Regions'; it has .*Region, RegionConfig"):
        _ = crkafka.Regions


def test_the_import_brings_no_client_no_spark_and_no_dagster() -> None:
    heavy = ("confluent_kafka", "dagster", "pandas", "pyarrow", "pydantic", "pyspark", "sqlalchemy")
    code = f"import sys, crkafka; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_documents_and_examples_import_nothing_deeper() -> None:
    found = []
    for path in (*PAGES, *PROGRAMS):
        if path.is_relative_to(STAGED):
            continue
        text = path.read_text(encoding="utf-8")
        for module in re.findall(r"^\s*(?:from|import) ((?:crkafka|checkpoints_db|dagster_project)[\w.]*)", text, re.M):
            if not DOORS.fullmatch(module):
                found.append(f"{path.relative_to(ROOT)}: {module}")
    assert found == []
