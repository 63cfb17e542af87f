"""The project and a project of somebody else under `dg`: checked, listed, scaffolded (SPEC A5, docs/clients.md C-D9)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.dagster, pytest.mark.slow]

PAGE = (ROOT / "docs" / "dagster.md").read_text(encoding="utf-8")


def block(language: str, first: str) -> str:
    """A sample of the page, by the first line of it."""
    return str(re.findall(rf"^```{language}\n(# {first}.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[0])


def dg(folder: Path, home: Path, *words: str) -> str:
    """What `dg` prints; anything but success is an error."""
    settings = home / "dg.toml"
    settings.write_text("[cli.telemetry]\nenabled = false\n")
    env = {
        **os.environ,
        "HOME": str(home),
        "DG_CLI_CONFIG": str(settings),
        "VIRTUAL_ENV": sys.prefix,
        "PYTHONPATH": str(folder),
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }
    done = subprocess.run(
        [str(Path(sys.prefix) / "bin" / "dg"), *words], cwd=folder, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.soak
def test_the_project_is_checked_and_listed(tmp_path: Path) -> None:
    assert "All definitions loaded successfully" in dg(ROOT, tmp_path, "check", "defs")
    dg(ROOT, tmp_path, "check", "toml")
    found = json.loads(dg(ROOT, tmp_path, "list", "defs", "--json"))
    assert {"orders/records", "orders/group"} <= {a["asset_key"] for a in found["assets"]}
    assert {"orders_cut", "orders_reset_region"} <= {j["name"] for j in found["jobs"]}
    assert "dagster_project.ConsistentRegion" in dg(ROOT, tmp_path, "list", "components", "--json")


def somebodys(folder: Path) -> Path:
    """A project as the page writes it."""
    project = folder / "shop"
    (project / "shop" / "defs").mkdir(parents=True)
    (project / "pyproject.toml").write_text(block("toml", "pyproject.toml"))
    (project / "shop" / "__init__.py").touch()
    (project / "shop" / "defs" / "__init__.py").touch()
    (project / "shop" / "definitions.py").write_text(block("python", "shop/definitions.py"))
    return project


@pytest.mark.soak
def test_a_region_is_scaffolded_in_a_project_of_somebody_else(tmp_path: Path) -> None:
    project = somebodys(tmp_path)
    dg(project, tmp_path, "scaffold", "defs", "dagster_project.ConsistentRegion", "clicks")
    written = (project / "shop" / "defs" / "clicks" / "defs.yaml").read_text()
    assert "region: clicks" in written and "format: delta" in written, "the first table needs no Spark"
    assert "All definitions loaded successfully" in dg(project, tmp_path, "check", "defs")
    assets = json.loads(dg(project, tmp_path, "list", "defs", "--json"))["assets"]
    assert {"clicks/records", "clicks/clicks_bronze"} <= {a["asset_key"] for a in assets}
    (project / "shop" / "defs" / "clicks" / "defs.yaml").write_text(
        "type: dagster_project.ConsistentRegion\nattributes: {regoin: clicks}\n"
    )
    with pytest.raises(AssertionError, match="regoin"):
        dg(project, tmp_path, "check", "defs")
