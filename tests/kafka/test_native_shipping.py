"""How the native edge reaches a machine: built by pip, in a zip as on Spark's executors; and what is said where there is none."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from crkafka_core.kafka.native import library
from crkafka_core.spark.shipping import package

ROOT = Path(__file__).parents[2]
SOURCES = ("crkafka", "crkafka_core", "checkpoints_db", "dagster_project", "pyspark_crkafka")
ASK = """
import logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
import crkafka_core
from crkafka_core.kafka.native.library import load
print(crkafka_core.__file__)
print("native" if load() and load() else "objects")
"""
OWN_LIBRDKAFKA = """
import ctypes, importlib.metadata, logging, sys
def nothing(name): raise importlib.metadata.PackageNotFoundError(name)
importlib.metadata.version = nothing
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
import confluent_kafka
from confluent_kafka import cimpl
for _ in range(3):
    ctypes.CDLL(sys.argv[1])
from crkafka_core.kafka.native.library import load
def address(library): return ctypes.cast(library.rd_kafka_queue_new, ctypes.c_void_p).value
print(confluent_kafka.__file__)
library = load()
print("native" if library else "objects")
print("the client's own" if address(library.kafka) == address(ctypes.CDLL(cimpl.__file__)) else "another")
"""


def asked(archive: Path, folder: Path) -> list[str]:
    """What a new Python says that has this project's code from an archive alone."""
    env = {**os.environ, "PYTHONPATH": str(archive)}
    return subprocess.run(
        [sys.executable, "-c", ASK], env=env, cwd=folder, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def test_code_that_came_as_a_zip_brings_the_native_edge(tmp_path: Path) -> None:
    archive = package()
    where, way = asked(archive, tmp_path)
    assert where.startswith(str(archive))
    assert way == "native"
    shutil.rmtree(archive.parent)


def test_without_a_compiler_the_install_goes_on_and_records_come_as_objects_which_is_said_once(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in SOURCES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = ["-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(tmp_path), str(source)]
    env = {**os.environ, "CC": "false"}
    subprocess.run([sys.executable, *build], env=env, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    where, said, way = asked(wheel, tmp_path)
    assert where.startswith(str(wheel))
    assert said.startswith("records are read through Python objects: the native edge is not built")
    assert way == "objects"


def test_the_clients_own_librdkafka_is_called_wherever_it_lies_and_whatever_else_is_loaded(tmp_path: Path) -> None:
    """A folder with spaces in its name; a client without an installer's record; another librdkafka, as other packages bring."""
    installed = Path(confluent_kafka.__file__).parent
    folder = tmp_path / "my own packages"
    for name in ("confluent_kafka", "confluent_kafka.libs"):
        shutil.copytree(installed.parent / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (others,) = (installed.parent / "confluent_kafka.libs").glob("librdkafka*")
    other = shutil.copy(others, tmp_path / "librdkafka.so.1")
    said = subprocess.run(
        [sys.executable, "-c", OWN_LIBRDKAFKA, other],
        env={**os.environ, "PYTHONPATH": f"{folder}:{ROOT}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert said == [str(folder / "confluent_kafka" / "__init__.py"), "native", "the client's own"]


def test_the_native_edge_is_built_to_end_where_it_would_be_taken_over(tmp_path: Path) -> None:
    """It copies what brokers send: tables of addresses are read-only, no stack is code, buffers of the stack are guarded."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (module,) = project["tool"]["setuptools"]["ext-modules"]
    built = tmp_path / "edge.so"
    flags = [*module["extra-compile-args"], *module["extra-link-args"]]
    subprocess.run(["cc", "-shared", "-fPIC", *flags, "-o", built, *module["sources"]], cwd=ROOT, check=True)
    headers = subprocess.run(["readelf", "-lWd", built], capture_output=True, text=True, check=True).stdout
    assert "GNU_RELRO" in headers and "BIND_NOW" in headers
    assert re.search(r"GNU_STACK +(0x0+ ){3}(0x0+ ){2}RW ", headers), headers
    assert b"__stack_chk_fail" in built.read_bytes()


@pytest.fixture
def fresh_look() -> Iterator[None]:
    library.load.cache_clear()
    yield
    library.load.cache_clear()


@pytest.mark.usefixtures("fresh_look")
@pytest.mark.parametrize("tried", [{"0.0.1": "2.16.0"}, {str(confluent_kafka.version()): "2.15.0"}])
def test_a_client_or_a_librdkafka_that_was_not_tried_is_read_through_objects(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tried: dict[str, str]
) -> None:
    """Where a `Consumer` keeps its handle is its own business: elsewhere it would be any pointer."""
    monkeypatch.setattr(library, "TRIED", tried)
    with caplog.at_level(logging.INFO, library.__name__):
        assert library.load() is None
        assert library.load() is None
    assert [record.message for record in caplog.records if "was not tried with the native edge" in record.message]
    assert len(caplog.records) == 1
