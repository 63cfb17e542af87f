"""A sentence names what the machine lacks or refuses: Java, packages, rights, space on a disk."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

from checkpoints_db import address
from checkpoints_db.retry import unavailable
from crkafka_core.model.rows import Table
from crkafka_core.plane.transact import ControlPlane
from tests.cli.conftest import SOON, YAML, Crkafka, findings, python

pytestmark = pytest.mark.usefixtures("check_soon")


@pytest.mark.parametrize(
    "more",
    ['host: {spark: "local[4]"}\n', "tables: [{name: t, path: t, shape: 'shop.rows:all'}]\n"],
    ids=["members", "tables"],
)
def test_no_java_is_a_sentence(crkafka: Crkafka, region_file: Path, monkeypatch: pytest.MonkeyPatch, more: str) -> None:
    from crkafka_core.dev import find_java as java

    java.find_java.cache_clear()
    monkeypatch.setattr(java, "_candidates", lambda: iter(()))
    region_file.write_text(YAML + more)
    answer = crkafka("check", "--json")
    java.find_java.cache_clear()
    assert {f["what"]: f for f in answer.json}["host"]["text"].startswith(
        "java: Java 17 or newer is needed (none was found"
    )


@pytest.mark.parametrize("verb", [("dev", "up"), ("tables", "advance", "t")], ids=" ".join)
def test_a_verb_that_needs_java_ends_with_that_sentence(
    crkafka: Crkafka, region_file: Path, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, verb: tuple[str, ...]
) -> None:
    from crkafka_core.dev import find_java as java

    java.find_java.cache_clear()
    monkeypatch.setattr(java, "_candidates", lambda: iter(()))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    region_file.write_text(YAML + "tables: [{name: t, path: t, shape: 'shop.rows:all'}]\n")
    plane.do(lambda tx: tx.put(Table("orders", "t", "delta", str(region_file.parent / "t"), shape="shop.rows:all")))
    began = time.monotonic()
    answer = crkafka(*verb)
    java.find_java.cache_clear()
    *steps, said = answer.err.splitlines()
    assert (answer.code, said.startswith("java: Java 17 or newer is needed (none was found")) == (3, True), answer
    assert not any("Java 17" in step for step in steps) and "Install it" in said
    assert time.monotonic() - began < SOON


def test_a_java_that_dies_is_a_sentence_and_names_what_to_look_at(
    crkafka: Crkafka, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/spark/test_launch.py shows that the death of Java raises this error."""
    from py4j.protocol import Py4JNetworkError

    def dies(*_: object, **__: object) -> None:
        import_module("crkafka_core.spark.launch")
        raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr("crkafka_core.cli.status.show", dies)
    answer = crkafka("show")
    assert (answer.code, answer.err) == (3, "Spark: its Java process has ended. Was it killed, or out of memory?\n")


def test_a_package_that_is_missing_names_its_extra(
    crkafka: Crkafka, region_file: Path, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object, **__: object) -> None:
        import_module("deltalake.nowhere")

    monkeypatch.setitem(sys.modules, "deltalake", None)
    monkeypatch.setattr("crkafka_core.cli.status.show", missing)
    answer = crkafka("show")
    assert (answer.code, answer.err) == (2, "deltalake is not installed. pip install 'crkafka[delta]'.\n")
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setattr("crkafka_core.cli.status.show", lambda *_, **__: import_module("pyspark.nowhere"))
    assert crkafka("show").err == "pyspark is not installed. pip install 'crkafka'.\n", "which brings it"
    region_file.write_text(YAML + "tables: [{name: t, format: delta, path: t}]\n")
    monkeypatch.setattr("crkafka_core.cli.checks.find_spec", lambda package: None)
    assert findings(crkafka)["tables"] == "deltalake is not installed. pip install 'crkafka[delta]'."


@pytest.mark.parametrize(
    ("broken", "said", "code"),
    [
        (OSError(28, "No space left on device"), "The answer cannot be written to stdout: No space left on device.", 3),
        (
            PermissionError(13, "Permission denied", "/x/y"),
            "/x/y cannot be used: Permission denied. May this user read and write it, and has the disk space left?",
            3,
        ),
        (
            UnicodeEncodeError("ascii", "ä", 0, 1, "no"),
            "A path or an answer has a character that this locale lacks. Set LC_ALL=C.UTF-8.",
            2,
        ),
    ],
    ids=["full disk", "no right", "locale"],
)
def test_what_the_machine_refuses_is_no_mistake_of_ours(
    crkafka: Crkafka, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, broken: Exception, said: str, code: int
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise broken

    monkeypatch.setattr("crkafka_core.cli.status.show", fails)
    answer = crkafka("show")
    assert (answer.code, answer.err) == (code, f"{said}\n")


def test_a_control_plane_on_a_full_disk_is_said(tmp_path: Path) -> None:
    """The message was that the file `does not answer`."""
    full = sqlite3.connect(tmp_path / "full.db", isolation_level=None)
    full.execute("PRAGMA max_page_count = 2")
    with pytest.raises(sqlite3.OperationalError) as met:
        full.executescript("CREATE TABLE a (x); INSERT INTO a VALUES (randomblob(100000))")
    full.close()
    said = str(unavailable(address.parse(f"sqlite:///{tmp_path}/full.db"), met.value))
    assert re.fullmatch(
        r"The control plane \S+ cannot be written: database or disk is full\. Free some space on .*", said
    ), said


def test_answers_and_errors_that_nobody_can_hear_change_no_exit_code(region_file: Path) -> None:
    """stdout and stderr closed, as by `>&-` of a shell, or without space left."""
    program = f"'{sys.executable}' -c 'from crkafka_core.cli.entry import main; main()'"
    for verb, code in (("show >&- 2>&-", 2), ("check --offline >/dev/full", 3)):
        done = subprocess.run(
            ["sh", "-c", f"{program} {verb}"],
            cwd=region_file.parent,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        assert done.returncode == code and "Traceback" not in done.stderr, (verb, done)


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    program = "import os; os.rmdir(os.getcwd())\nfrom crkafka_core.cli.entry import main\nmain(['show'])"
    (gone := tmp_path / "gone").mkdir()
    done = python("-c", program, cwd=gone)
    assert (done.returncode, done.stderr) == (3, "The current folder no longer exists. Change to another one.\n")
