"""The warm launcher without a live Dagster: whom it serves, what it falls back on, what makes it stale (docs/clients.md C-D2)."""

from __future__ import annotations

import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from dagster_project.compat.launcher import GRPC_INFO_TAG, DefaultRunLauncher, WorkerStatus
from dagster_project.launcher import warm
from dagster_project.launcher.sources import is_left_out
from dagster_project.launcher.warm import WarmRunLauncher, server_of, socket_of
from dagster_project.launcher.zygote import told_to_go

pytestmark = pytest.mark.dagster


@dg.op
def work() -> None:
    """Nothing."""


@dg.job
def quick() -> None:
    work()


def location(host: str = "localhost", server: str = "s1", socket: str | None = "/tmp/s.sock") -> Any:
    """One whose server Dagster has started itself listens on a socket."""
    return SimpleNamespace(host=host, socket=socket, server_id=server)


def context(run: Any, there: Any) -> Any:
    origin = SimpleNamespace(
        repository_origin=SimpleNamespace(code_location_origin=SimpleNamespace(location_name="here"))
    )
    kept = SimpleNamespace(run_id=run.run_id, tags=run.tags, remote_job_origin=origin)
    code = SimpleNamespace(repository_origin=SimpleNamespace(executable_path="python", code_pointer=None))
    return SimpleNamespace(
        dagster_run=kept, job_code_origin=code, workspace=SimpleNamespace(get_code_location=lambda _: there)
    )


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs that were launched as usual."""
    found: list[str] = []
    monkeypatch.setattr(DefaultRunLauncher, "launch_run", lambda _, c: found.append(c.dagster_run.run_id))
    return found


@pytest.fixture
def launcher(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> Iterator[WarmRunLauncher]:
    made = WarmRunLauncher()
    made.register_instance(instance)
    monkeypatch.setattr(warm, "socket_of", lambda *_: Path("/nowhere/s.sock"))
    yield made


ASKS = {"crkafka/region": "orders"}


@pytest.mark.parametrize(
    ("tags", "there"),
    [
        ({}, location()),
        (ASKS, location(host="code.example.org", socket=None)),
        (ASKS, location(socket=None)),  # a port may lead into a container, or to a server with another environment
        ({"crkafka/warm": "no"}, location()),
    ],
)
def test_who_did_not_ask_and_who_is_elsewhere_is_launched_as_usual(
    launcher: WarmRunLauncher,
    instance: dg.DagsterInstance,
    cold: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tags: dict[str, str],
    there: Any,
) -> None:
    monkeypatch.setattr(WarmRunLauncher, "_ask", lambda *_: pytest.fail("a warm process was asked"))
    run = instance.create_run_for_job(quick, tags=tags)
    launcher.launch_run(context(run, there))
    assert cold == [run.run_id]


def test_whatever_fails_the_run_is_launched_as_usual_and_its_process_forgotten(
    launcher: WarmRunLauncher, instance: dg.DagsterInstance, cold: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = instance.create_run_for_job(quick, tags=ASKS)
    monkeypatch.setattr(
        WarmRunLauncher, "_ask", lambda *_: 1
    )  # a process, but the connection is not there to tell it to go
    launcher.launch_run(context(run, location()))
    broken = SimpleNamespace(
        host="localhost", socket="/tmp/s.sock"
    )  # Dagster has changed: it has no server_id any more
    launcher.launch_run(context(run, broken))
    assert cold == [run.run_id, run.run_id]
    kept = instance.get_run_by_id(run.run_id)
    assert kept is not None and kept.tags[warm.TAG] == ""


@pytest.mark.parametrize(("tags", "seen"), [(ASKS, WorkerStatus.FAILED), ({}, WorkerStatus.RUNNING)])
def test_only_runs_that_ask_for_it_are_looked_after(
    launcher: WarmRunLauncher,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    tags: dict[str, str],
    seen: WorkerStatus,
) -> None:
    """Behind a port of this machine may be somebody's container: the number of a process there means another one here, or none."""
    ran = quick.execute_in_process(instance=instance, tags={**tags, GRPC_INFO_TAG: '{"host": "localhost"}'}).run_id
    run = instance.get_run_by_id(ran)
    assert run is not None
    monkeypatch.setattr(warm, "_pid_of", lambda _: 4_194_304)
    assert launcher.check_run_worker_health(run).status is seen


def test_a_reloaded_location_has_another_warm_process() -> None:
    from dagster._core.code_pointer import ModuleCodePointer
    from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin

    pointer = ModuleCodePointer("definitions", "defs", None)
    origin = JobPythonOrigin("quick", RepositoryPythonOrigin(sys.executable, pointer, None, None, None))
    run = SimpleNamespace(run_id="r", tags={})
    one, two = (server_of(context(run, location(server=s))) for s in ("s1", "s2"))
    assert socket_of(origin, one) != socket_of(origin, two) and socket_of(origin, one) == socket_of(origin, "s1")


def test_a_child_runs_only_once_the_launcher_has_its_answer() -> None:
    for last, runs in ((b"+", True), (b"", False)):
        ours, theirs = socket.socketpair()
        threading.Timer(0.05, lambda ours=ours, last=last: (ours.sendall(last), ours.close())).start()
        assert told_to_go(theirs) is runs
        theirs.close()


def test_whatever_the_definitions_came_from_is_noticed(tmp_path: Path) -> None:
    """A region's file given by path, a folder of `defs` without `__init__.py`, a region in a folder that is new."""
    script = r"""
        import importlib, sys
        from pathlib import Path
        sys.path.insert(0, str(root := Path(sys.argv[1])))
        (root / "defs" / "a").mkdir(parents=True)
        (root / "regions").mkdir()
        (root / "defs" / "a" / "defs.yaml").write_text("a: 1")
        (root / "regions" / "orders.yaml").write_text("r: 1")
        (root / "code.py.txt").write_text("not read")
        (root / "mine.py").write_text(
            "from pathlib import Path\nroot = Path(__file__).parent\n"
            "texts = [f.read_text() for d in (root / 'defs').iterdir() for f in d.iterdir()]\n"
            "texts.append((root / 'regions' / 'orders.yaml').read_text())\n"
        )
        from dagster_project.launcher.sources import Sources
        def changed(what, undo):
            what()
            found = sources.changed()
            undo()
            return found.removeprefix(str(root))
        with Sources() as sources:
            import mine
        assert sources.changed() == "", sources.changed()
        import os
        def rewrite(name, text):
            path = root / name
            at, old = path.stat().st_mtime_ns, path.read_text()
            return (lambda: path.write_text(text)), (lambda: (path.write_text(old), os.utime(path, ns=(at, at))))
        for name in ("regions/orders.yaml", "defs/a/defs.yaml", "mine.py"):
            assert changed(*rewrite(name, "changed")) == "/" + name, name
        (root / "code.py.txt").write_text("still not read")
        assert sources.changed() == ""
        for name in ("b", "shop.orders"):
            assert changed((root / "defs" / name).mkdir, (root / "defs" / name).rmdir) == "/defs", name
        assert sources.changed() == ""
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr[-2_000:]


def test_code_beside_and_within_the_prefix_of_the_interpreter_is_noticed() -> None:
    """Debian's Python has the prefix /usr, beneath which images have /usr/src/app; `pip install -e git+…` clones into the environment."""
    noticed = [f"{sys.prefix}/src/shop/defs.yaml", f"{sys.base_prefix}/src/app/defs.py", "/development/orders.yaml"]
    assert [path for path in noticed if is_left_out(path)] == []
    left_out = [str(dg.__file__), textwrap.__file__, str(Path(dg.__file__).parents[1]), "/proc", "/dev/null"]
    assert [path for path in left_out if not is_left_out(path)] == []


def test_a_zygote_starts_without_a_warning_in_dagsters_log() -> None:
    """What the package imports by itself is not imported again as the program."""
    program = [sys.executable, "-m", "dagster_project.launcher.zygote"]
    ended = subprocess.run(program, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert "JSONDecodeError" in ended.stderr and "RuntimeWarning" not in ended.stderr
