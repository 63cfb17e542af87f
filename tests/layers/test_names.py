"""Names of the private dialect are refused in rooms that are written in plain English; the list of rooms grows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.layers.sources import ROOT

BANNED = frozenset({"told", "said", "found", "there", "anew", "nobody", "somebody", "whoever"})
ROOMS = (
    "checkpoints_db",
    "crkafka_core/cli",
    "crkafka_core/config",
    "crkafka_core/decode",
    "crkafka_core/dev",
    "crkafka_core/kafka",
    "crkafka_core/member",
    "crkafka_core/model",
    "crkafka_core/hosts",
    "crkafka_core/lake",
    "crkafka_core/plane",
    "crkafka_core/protocol",
    "crkafka_core/segments",
    "crkafka_core/region",
    "crkafka_core/verify",
    "crkafka_core/spark",
    "crkafka_core/logs.py",
    "crkafka_core/testing",
    "scripts/run_suites.py",
    "tests/decode",
    "tests/oracle",
    "tests/rigs",
    "tests/segments",
    "tests/spark",
    "tests/tables",
    "dagster_project",
)
"""Rooms and files without such names; add one when it is done, and take none out."""
WITHOUT_OF = tuple(
    f"crkafka_core/{room}"
    for room in (
        "cli",
        "decode",
        "hosts",
        "lake",
        "model",
        "plane",
        "protocol",
        "region",
        "segments",
        "spark",
        "verify",
    )
)
"""Rooms in which no variable or parameter is named `of`."""


def _named(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Names that the code itself gives, with their lines: variables, attributes, parameters, functions, classes."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(attr=name, ctx=ast.Store())
                | ast.arg(arg=name)
                | ast.MatchAs(name=str(name))
            ):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name


def _refused(text: str) -> list[tuple[int, str]]:
    """Banned names; a test's own name is a sentence, and may have such words."""
    names = ((line, name) for line, name in _named(ast.parse(text)) if not name.startswith("test_"))
    return [(line, name) for line, name in names if BANNED & set(name.lower().split("_"))]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_that_is_done_has_no_name_of_the_dialect(room: str) -> None:
    place = ROOT / room
    files: list[Path] = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    assert files
    refused = [(str(file.relative_to(ROOT)), *each) for file in files for each in _refused(file.read_text())]
    assert refused == [], "say what it holds: rows, text, answer, lags, members …"


@pytest.mark.parametrize("room", WITHOUT_OF)
def test_no_variable_is_a_preposition(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    refused = [(str(file.relative_to(ROOT)), line) for file in files for line in _prepositions(file.read_text())]
    assert refused == [], "say what it holds"


def _prepositions(text: str) -> list[int]:
    lines = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Name(id="of", ctx=ast.Store()) | ast.arg(arg="of"):
                lines.append(node.lineno)
    return lines


def test_such_names_are_seen() -> None:
    text = (
        "def _told(there, *, x):\n    said = x\n    for found in x:\n        x.told = fine = found\nclass Anew: ...\n"
    )
    assert [name for _, name in sorted(_refused(text))] == ["_told", "there", "said", "found", "told", "Anew"]
    assert _prepositions("def of(x): ...\nof = limits.of(x)\ndef f(of): ...\n") == [2, 3]
