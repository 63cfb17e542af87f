"""The warm launcher on a real `dagster dev`: cold at first, then warm; ended, killed, and changed code (docs/clients.md C-D2)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from dagster_project.launcher.process import Process
from dagster_project.launcher.warm import TAG
from dagster_project.testing.live import SETTINGS, LiveDagster

pytestmark = [pytest.mark.dagster, pytest.mark.slow, pytest.mark.timeout(420)]

DEFINITIONS = """
import os
import time
from pathlib import Path

import dagster as dg

SAID = [file.read_text() for folder in Path("defs").iterdir() for file in folder.iterdir()]
FROM_FILE = os.environ.get("CRKAFKA_OF_DOTENV", "")


@dg.op(config_schema={"seconds": dg.Field(float, default_value=0.0)})
def work(context):
    if FROM_FILE != "there" or not os.path.exists("warm_definitions.py"):
        raise dg.Failure(f"made without Dagster's .env file, {FROM_FILE!r}, or run in {os.getcwd()}")
    if "fail" in SAID:
        raise dg.Failure("the new YAML")
    end = time.monotonic() + context.op_config["seconds"]
    while time.monotonic() < end:
        time.sleep(0.05)
    return "first"


@dg.job(executor_def=dg.in_process_executor, tags={"crkafka/warm": "true"})
def quick():
    work()


defs = dg.Definitions(jobs=[quick])
"""


@pytest.fixture(scope="module")
def dagster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDagster]:
    folder = tmp_path_factory.mktemp("warm")
    (folder / "warm_definitions.py").write_text(DEFINITIONS)
    (folder / "defs" / "orders").mkdir(parents=True)
    (folder / "defs" / "orders" / "defs.yaml").write_text("well")
    (folder / "shop").mkdir()
    (folder / "shop" / ".env").write_text("CRKAFKA_OF_DOTENV=there\n")
    settings = folder / "settings.yaml"
    settings.write_text(SETTINGS.read_text().replace("poll_interval_seconds: 10", "poll_interval_seconds: 1"))
    env = {"DAGSTER_PROJECT_ENV_FILE_PATHS": '{"crkafka": "shop"}'}  # as `dg dev` tells each location its own
    with LiveDagster(folder, "warm_definitions", settings=settings, env=env) as made:
        yield made


def process_of(dagster: LiveDagster, run: str) -> Process | None:
    """Out of Dagster's storage: no page and no answer of its webserver shows the tag."""
    with dg.DagsterInstance.from_config(str(dagster.home)) as instance:
        kept = instance.get_run_by_id(run)
    assert kept is not None and TAG not in [t["key"] for t in dagster.run(run)["tags"]]
    return Process.parse(kept.tags.get(TAG, ""))


def warm(dagster: LiveDagster, ends: str = "SUCCESS") -> None:
    """Launch runs until one was warm."""

    def one() -> bool:
        run = dagster.launch("quick")
        assert dagster.finished(run) == ends
        return process_of(dagster, run) is not None

    dagster.until(one, 180, "a run has started warm")


def long(dagster: LiveDagster) -> tuple[str, Process]:
    run = dagster.launch("quick", {"ops": {"work": {"config": {"seconds": 300.0}}}})
    dagster.until(lambda: dagster.run(run)["status"] == "STARTED", 60, "the run has started")
    process = process_of(dagster, run)
    assert process is not None and process.alive
    return run, process


def test_the_first_run_is_cold_brings_up_the_warm_process_and_is_left_alone_while_it_lasts(
    dagster: LiveDagster,
) -> None:
    """Run monitoring looks after cold runs as well: one that lives is not failed, one that was killed is."""
    run = dagster.launch("quick", {"ops": {"work": {"config": {"seconds": 300.0}}}})
    warm(dagster)
    process = dagster.until(lambda: process_of(dagster, run), 60, "monitoring has found its process")
    assert process.alive and dagster.parts("launcher.zygote")
    assert f"(pid: {process.pid})" in dagster.log.read_text()
    time.sleep(2.5)  # two more looks
    assert dagster.run(run)["status"] == "STARTED"
    os.kill(process.pid, signal.SIGKILL)
    assert dagster.finished(run) == "FAILURE"


def test_a_warm_run_is_terminated_from_the_ui(dagster: LiveDagster) -> None:
    warm(dagster)
    run, process = long(dagster)
    dagster.ask("mutation T($id: String!) { terminateRun(runId: $id) { __typename } }", id=run)
    assert dagster.finished(run) == "CANCELED"
    dagster.until(lambda: not process.alive, 20, "its process has ended")


def test_a_warm_run_whose_process_was_killed_is_seen_to_have_failed(dagster: LiveDagster) -> None:
    warm(dagster)
    run, process = long(dagster)
    os.kill(process.pid, signal.SIGKILL)
    assert dagster.finished(run) == "FAILURE"


def test_after_a_change_of_yaml_and_with_a_new_region_runs_have_the_new_definitions(dagster: LiveDagster) -> None:
    defs = Path(dagster.folder) / "defs"
    for name in ("orders", "shop.refunds"):
        warm(dagster)
        file = defs / name / "defs.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text("fail")
        assert dagster.finished(dagster.launch("quick")) == "FAILURE"
        file.write_text("well")


def test_after_a_change_of_code_runs_have_the_new_code(dagster: LiveDagster) -> None:
    warm(dagster)
    file = Path(dagster.folder) / "warm_definitions.py"
    file.write_text(file.read_text().replace('return "first"', 'raise dg.Failure("the new code")'))
    run = dagster.launch("quick")
    assert dagster.finished(run) == "FAILURE"


def test_a_process_that_is_gone_is_not_taken_for_one_of_the_same_number() -> None:
    me = Process.of(os.getpid())
    assert me.alive and Process.parse(str(me)) == me
    assert not Process(me.host, me.pid, "1").alive
    assert not Process("elsewhere", me.pid, me.began).alive
    assert Process.parse("nonsense") is None and Process.parse("a|b|c") is None


def test_the_private_names_of_dagster_are_there() -> None:
    from dagster_project.compat import launcher, storage

    for module in (launcher, storage):
        assert all(hasattr(module, name) for name in module.__all__)


def test_it_leaves_nothing_behind(dagster: LiveDagster) -> None:
    """The last of this file: it ends the instance that they share."""
    warm(dagster, ends="FAILURE")
    there = dagster.parts("launcher.zygote")
    assert there
    dagster.stop()
    end = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in there):
        assert time.monotonic() < end
        time.sleep(0.2)
