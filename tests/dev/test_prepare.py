"""What a person reads when a fresh machine lacks something that cannot be installed: one sentence, and what to type."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from crkafka_core.dev import ports
from crkafka_core.dev.find_java import find_java
from crkafka_core.dev.trust import PASSWORD, trusted_certificates, write_trust_store
from crkafka_core.model.errors import ConfigError
from crkafka_core.private_folder import private_folder
from tests.rigs import proxy

ROOT = Path(__file__).resolve().parents[2]
SHELL_TOOLS = ("sh", "dirname", "rm", "id", "env", "cat")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A copy of the scripts, and a PATH with little more than a shell."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "bin").mkdir()
    for tool in SHELL_TOOLS:
        found = shutil.which(tool)
        assert found
        (tmp_path / "bin" / tool).symlink_to(found)
    return tmp_path


def _command(folder: Path, name: str, script: str) -> None:
    file = folder / "bin" / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def _prepare(folder: Path, *steps: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {"PATH": str(folder / "bin"), "HOME": str(folder / "nowhere"), **env}
    command = [str(folder / "scripts" / "prepare"), *steps]
    return subprocess.run(command, env=clean, capture_output=True, text=True, timeout=120, check=False)


def test_without_a_new_enough_python(bare: Path) -> None:
    _command(bare, "python3", "exit 1")  # what the version check of an old one answers
    done = _prepare(bare, "packages")
    assert done.returncode == 3
    assert done.stderr.startswith("Python 3.11 or newer is needed")
    assert "sudo apt-get install python3 python3-venv" in done.stderr
    assert not (bare / ".venv").exists()


def test_a_python_that_cannot_make_environments(bare: Path) -> None:
    real = sys.executable
    _command(bare, "python3", f'[ "$1" = -m ] && exit 1; exec {real} "$@"')
    done = _prepare(bare, "packages")
    assert done.returncode == 3
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert f"sudo apt-get install python{version}-venv" in done.stderr
    assert not (bare / ".venv").exists()


def test_a_python_that_gets_its_environments_from_the_package_manager(bare: Path) -> None:
    real = sys.executable
    _command(bare, "apt-get", f'echo "$@" >>{bare}/asked; case "$*" in *install*) : >{bare}/installed ;; esac')
    _command(bare, "sudo", 'shift; exec "$@"')  # drops the -n
    _command(bare, "true", "exit 0")
    script = f'if [ "$1" = -m ]; then [ -e {bare}/installed ] || exit 1; mkdir -p .venv/bin;'
    script += f' ln -sf {real} .venv/bin/python; exit 0; fi; exec {real} "$@"'
    _command(bare, "python3", f"PATH=$PATH:/usr/bin:/bin; {script}")
    done = _prepare(bare)
    assert done.returncode == 0, done.stderr
    assert "-venv" in (bare / "asked").read_text()


def test_without_java_and_without_a_package_manager(bare: Path) -> None:
    script = "import sys; sys.path.insert(0, 'scripts'); import prepare; from crkafka_core.dev import find_java"
    script += "; find_java._candidates = lambda: iter(()); sys.exit(prepare.main(['java']))"
    env = {**os.environ, "PATH": str(bare / "bin"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, cwd=bare, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "Java 17 or newer is needed (none was found" in done.stderr
    assert "`sudo apt-get install openjdk-17-jre-headless`" in done.stderr


def test_an_old_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crkafka_core.dev import find_java as java
    from crkafka_core.dev.errors import ServiceFailed

    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019' >&2\n")
    old.chmod(0o755)
    monkeypatch.setattr(java, "_candidates", lambda: iter([old]))
    java.find_java.cache_clear()
    try:
        with pytest.raises(ServiceFailed, match="is Java 11"):
            java.find_java()
    finally:
        java.find_java.cache_clear()


def test_an_unknown_step_is_named(bare: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(bare / "scripts" / "prepare.py"), "jarz"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "unknown: jarz" in done.stderr


def test_javas_own_tool_reads_every_certificate(tmp_path: Path) -> None:
    store = write_trust_store(tmp_path / "trust.jks")
    assert store is not None
    keytool = find_java().resolve().parent / "keytool"
    command = [keytool, "-list", "-storepass", PASSWORD, "-keystore", store]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert said.count("trustedCertEntry") == len(trusted_certificates()) > 10


def test_the_bundle_that_the_environment_names_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = trusted_certificates()[0]
    (tmp_path / "one.pem").write_text(ssl.DER_cert_to_PEM_cert(one))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "one.pem"))
    assert trusted_certificates() == [one]


def test_a_port_is_given_once_and_not_while_something_listens_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a broker's own port can be that of another of its listeners, and it does not start."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        taken = listening.getsockname()[1]
        first, second = ports.free_ports(2)
        drawn = iter((taken, first, first, second))
        monkeypatch.setattr(ports, "_given", set())
        monkeypatch.setattr(ports.random, "randint", lambda *_: next(drawn))
        assert ports.free_ports(1) + ports.free_ports(1) == [first, second]


def test_both_sides_of_a_proxy_have_ports_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter((3, 7, 3, 7, 3, 8))
    monkeypatch.setattr(ports, "is_free", lambda *_: True)
    monkeypatch.setattr(ports, "_given", set())
    monkeypatch.setattr(proxy.random, "randint", lambda *_: next(drawn))
    assert (proxy._ports(1), proxy._ports(1)) == ("23{id}07", "23{id}08")


def test_it_is_made_for_this_user_alone(tmp_path: Path) -> None:
    assert private_folder(tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_one_of_ours_that_is_open_is_closed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o755)
    assert private_folder(tmp_path / "a").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("made", ["link", "file", "somebody else's"])
def test_anything_else_of_that_name_is_refused(made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "a"
    if made == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif made == "file":
        path.touch()
    else:
        path.mkdir()
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(ConfigError, match="is not a folder of this user"):
        private_folder(path)
