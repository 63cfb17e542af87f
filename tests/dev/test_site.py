"""`make docs`: the site is whole, made from the code where it says so, and needs nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from crkafka_core.cli.main import VERBS
from crkafka_core.config import RegionConfig
from dagster_project.options import Options

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built strictly: a link or an anchor that leads nowhere ends it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def read(site: Path, page: str) -> str:
    return (site / page).read_text(encoding="utf-8")


def test_every_page_can_be_found(site: Path) -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("nav:")[1]
    docs = ROOT / "docs"
    pages = [str(page.relative_to(docs)) for page in docs.rglob("*.md")]
    assert [page for page in pages if f": {page}" not in nav] == []


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]*\ssrc=[\"']?([^\"' >]+)", text)
        loaded += re.findall(r"<link(?![^>]*rel=[\"']?(?:canonical|edit))[^>]*\shref=[\"']?([^\"' >]+)", text)
        assert [url for url in loaded if url.startswith(("http", "//"))] == [], page.name
        there = [url for url in loaded if page.name != "404.html" and not (page.parent / url.split("?")[0]).exists()]
        assert there == [], page.name


def test_pictures_are_drawn_and_no_diagram_is_left_as_text(site: Path) -> None:
    for page in ("ideas.html", "index.html"):
        assert "images/overview.svg" in read(site, page)
    assert not [p.name for p in site.rglob("*.html") if "mermaid" in p.read_text() or "stateDiagram" in p.read_text()]


def test_the_reference_is_what_the_code_has(site: Path) -> None:
    configuration = read(site, "reference/configuration.html")
    assert [
        k for k in (*RegionConfig.model_fields, *Options.model_fields) if f"<code>{k}</code>" not in configuration
    ] == []
    commands = read(site, "reference/commands.html")
    assert [v for v in VERBS if f">crkafka {v}<" not in commands] == []
    assert "v_checkpoints" in read(site, "reference/views.html")
    assert "crkafka_region_alarmed" in read(site, "reference/metrics.html")
    python = read(site, "reference/python.html")
    for name in ("consume", "read_table", "consistent_region", "await_running"):
        assert name in python
    assert "object at 0x" not in python


def test_the_navigation_names_each_page_once() -> None:
    entries: list[str] = []

    def walk(node: object) -> None:
        for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            entries.append(value) if isinstance(value, str) else walk(value)

    walk(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    assert len(entries) == len(set(entries)) > 20


def test_what_the_samples_import_is_there() -> None:
    found = set()
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            found |= set(
                re.findall(r"(?m)^from ((?:crkafka|checkpoints_db|dagster_project)[\w.]*) import ([\w, ]+)$", block)
            )
    assert len(found) >= 8, "samples import by one front door, and little else"
    for module, names in found:
        for name in names.split(", "):
            assert hasattr(import_module(module), name) or find_spec(f"{module}.{name}"), f"{module}.{name}"
