"""The steps of the image's build stage, as deploy/Dockerfile has them, in a folder and an environment of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2400)]

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()


def python() -> str:
    """The image's version of Python, if it is here, else this one."""
    (version,) = re.findall(r"^ARG PYTHON=(\S+)", DOCKERFILE, re.MULTILINE)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    return next(
        map(str, sorted(pyenv.glob(f"{version}.*/bin/python"))), shutil.which(f"python{version}") or sys.executable
    )


def test_the_build_stage_makes_an_environment_that_runs(tmp_path: Path) -> None:
    """All but what a package manager does; the base image has pip alone, and so has the environment."""
    source, made = tmp_path / "src", tmp_path / "opt"
    source.mkdir()
    stage = DOCKERFILE.split("\nFROM ")[1].replace("\\\n", " ")
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path), "PYTHON": python()}
    environment |= {
        k: v
        for k, v in os.environ.items()
        if k.startswith(("PIP_", "SSL_", "REQUESTS_")) or k.lower().endswith("_proxy")
    }
    ran = 0
    for verb, rest in re.findall(r"^(COPY|RUN) +(.*)$", stage, re.MULTILINE):
        if verb == "COPY":
            *names, _ = rest.split()
            assert set(names) <= allowed
            for name in names:
                there, here = ROOT / name, source / name
                hidden = shutil.ignore_patterns("*.so", "__pycache__")
                shutil.copytree(there, here, ignore=hidden) if there.is_dir() else shutil.copy(there, here)
        elif "apt-get" not in rest:
            step = rest.replace("python -m venv", '"$PYTHON" -m venv').replace("/opt/crkafka", str(made))
            if "-m venv" in step:
                step += f" && {made}/bin/pip uninstall -q -y setuptools"  # Python before 3.12 brings one
            done = subprocess.run(
                ["bash", "-ec", step], cwd=source, env=environment, capture_output=True, text=True, timeout=1500
            )
            assert done.returncode == 0, f"{step}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
            ran += 1
    assert ran == 3
    shutil.rmtree(source)  # the image has the environment alone
    modules = "crkafka_core.segments.objects, crkafka_core.segments.aws, deltalake, pyiceberg, openlineage.client, psycopg, dagster"
    for command in (
        f"{made}/bin/python -c 'import {modules}'",
        f"{made}/bin/crkafka new shop",
        f"{made}/bin/crkafka check --schema",
    ):
        folder = tmp_path / "shop" if "check" in command else tmp_path
        done = subprocess.run(
            ["bash", "-ec", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
