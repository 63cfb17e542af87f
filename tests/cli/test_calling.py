"""How the command line is called: help, configuration, errors of one or two sentences, exit codes (SPEC U4)."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest

from crkafka_core.cli.call import COMMANDS
from crkafka_core.cli.main import EXAMPLES, MOVED, VERBS
from crkafka_core.model.errors import ServiceUnavailable
from crkafka_core.model.rows import Table
from crkafka_core.plane import tables
from crkafka_core.plane.transact import ControlPlane
from tests.cli.conftest import YAML, Crkafka, python

pytestmark = pytest.mark.usefixtures("check_soon")

SPEC_VERBS = {
    *("init", "check", "host", "start", "stop", "delete", "cut", "reset", "retire", "forget", "checkpoints", "show"),
    *("group", "events", "pause", "resume", "scale", "tables", "consume", "verify", "dev"),
}


def test_every_verb_of_the_contract_is_there_and_a_plain_function() -> None:
    assert set(VERBS) >= SPEC_VERBS
    for verb, (module_name, _) in VERBS.items():
        module = import_module(f"crkafka_core.cli.{module_name}")
        assert isinstance(COMMANDS[verb], click.Command)
        if verb != "dev":
            assert callable(getattr(module, verb)), f"{module_name}.{verb}"


def test_a_verb_that_has_moved_exists_in_its_present_form(crkafka: Crkafka) -> None:
    for present in MOVED.values():
        words, _, option = present.partition(" --")
        answer = crkafka(*words.split(), "--help")
        assert answer.out.startswith(f"Usage: crkafka {words} ") and f" --{option}" in answer.out, present


def test_help_of_each_verb(crkafka: Crkafka) -> None:
    overview = crkafka("--help").out
    for verb in VERBS:
        assert f"\n  {verb} " in overview
        answer = crkafka(verb, "--help")
        assert answer.code == 0
        assert answer.out.startswith(f"Usage: crkafka {verb}")


@pytest.mark.parametrize(
    ("typed", "offered"), [("crkafka che", ["check", "checkpoints"]), ("crkafka tables adv", ["advance"])]
)
def test_a_shell_completes_verbs(
    crkafka: Crkafka,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    typed: str,
    offered: list[str],
) -> None:
    monkeypatch.setenv("_CRKAFKA_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
    with pytest.raises(SystemExit):
        crkafka()
    assert capsys.readouterr().out.split() == [f"plain,{verb}" for verb in offered]


@pytest.mark.parametrize("example", [line for lines in EXAMPLES.values() for line in lines])
def test_help_has_examples_that_can_be_typed(
    crkafka: Crkafka, example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "records.csv").write_text("orders,0,3")
    monkeypatch.setattr("sys.stdin", (tmp_path / "records.csv").open())
    words = shlex.split(example.partition(" < ")[0].partition(" | ")[0])
    words = words[2:] if words[0] == "-c" else words
    assert f"crkafka {example}" in crkafka(words[0], "--help").out
    COMMANDS[words[0]].make_context(words[0], words[1:])  # parses and checks, and runs nothing


def test_roles_need_no_configuration(crkafka: Crkafka, region_file: Path) -> None:
    """The administrator of a database has no configuration of its regions."""
    region_file.unlink()
    answer = crkafka("init", "--roles")
    assert (answer.code, answer.err) == (0, "") and "CREATE ROLE %I NOLOGIN" in answer.out


def test_no_configuration_here(crkafka: Crkafka, region_file: Path) -> None:
    region_file.unlink()
    answer = crkafka("show")
    assert answer.code == 2
    assert answer.err.startswith("There is no region.yaml in ")


def test_configuration_before_or_after_the_verb_or_from_the_environment(
    crkafka: Crkafka, region_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.yaml"
    region_file.rename(other)
    for arguments in (("-c", str(other), "check", "--offline"), ("check", "--offline", "-c", str(other))):
        assert crkafka(*arguments).code == 0
    monkeypatch.setenv("CRKAFKA_CONFIG", str(other))
    assert crkafka("check", "--offline").code == 0


def test_a_region_is_chosen_by_name(crkafka: Crkafka, region_file: Path) -> None:
    region_file.write_text(YAML + "---\n" + YAML.replace("region: orders", "region: sales"))
    assert crkafka("check", "--offline").code == 2
    assert "region sales" in crkafka("check", "--offline", "-r", "sales").out


def test_a_region_is_shown_while_its_file_has_a_mistake_elsewhere(crkafka: Crkafka, region_file: Path) -> None:
    """Its state and its health are in SQL; what the file says of members is not asked."""
    assert crkafka("init").code == 0
    region_file.write_text(YAML.replace("members: 2", "memebrs: 2"))
    assert "phase    IDLE" in crkafka("show").out
    assert crkafka("health").code == 0
    region_file.write_text(YAML.replace("control_plane:", "controlplane:"))
    for verb in ("show", "health"):
        answer = crkafka(verb)
        assert (answer.code, answer.err.splitlines()[0]) == (2, "region.yaml:1: control_plane: is missing."), verb


def test_check_says_what_is_there_and_what_is_not(crkafka: Crkafka) -> None:
    answer = crkafka("check", "--json")
    assert answer.code == 3, "Kafka on port 9 is not there"
    by_what = {f["what"]: f for f in answer.json}
    assert by_what["storage"]["ok"]
    assert "crkafka init" in by_what["control plane"]["text"]
    assert not by_what["kafka"]["ok"]
    assert "127.0.0.1:9" in by_what["kafka"]["text"]


def test_a_missing_secret_names_variable_and_key(crkafka: Crkafka, region_file: Path) -> None:
    region_file.write_text(YAML.replace("group.id: orders", "group.id: orders, sasl.password: '${env:NOT_SET_HERE}'"))
    answer = crkafka("check", "--offline")
    assert answer.code == 2
    assert "kafka.sasl.password needs the environment variable NOT_SET_HERE" in answer.out
    region_file.write_text(YAML + "registry: {url: 'https://r', user: 'me:${env:NOT_SET_HERE}'}\n")
    assert "registry.user.password needs the environment variable NOT_SET_HERE" in crkafka("check", "--offline").out


def test_the_unexpected_is_a_sentence_without_a_traceback_unless_asked(
    crkafka: Crkafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("postgresql://me:geheim@db/x\nbroke")

    monkeypatch.setattr("crkafka_core.cli.status.show", broken)
    answer = crkafka("show")
    assert answer.code == 1
    assert answer.err == (
        "Unexpected, so a mistake in crkafka: RuntimeError: postgresql://me:***@db/x broke "
        "(CRKAFKA_DEBUG=1 shows where).\n"
    )
    monkeypatch.setenv("CRKAFKA_DEBUG", "1")
    traced = crkafka("show")
    assert "Traceback" in traced.err
    assert "in broken" in traced.err
    assert "geheim" not in traced.err


def test_a_closed_pipe_is_no_error(region_file: Path) -> None:
    script = f"{sys.executable} -m crkafka_core.cli.main --help | head -c 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "U", "")
    script = f"{sys.executable} -m crkafka_core.cli.main check --schema | true"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_another_pipe_that_breaks_is_no_silence(crkafka: Crkafka, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("crkafka_core.cli.status.show", broken)
    answer = crkafka("show")
    assert (answer.code, answer.out) == (1, "")
    assert "BrokenPipeError: [Errno 32] Broken pipe" in answer.err


def test_one_view_of_a_control_plane_that_is_away_is_no_success(
    crkafka: Crkafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crkafka_core.cli.status.watch", lambda *_, **__: iter([ServiceUnavailable("It is away.")]))
    answer = crkafka("show", "--watch", "--once", "--json")
    assert (answer.code, answer.out, answer.err) == (3, "", "It is away.\n")


def test_a_bounded_run_is_ended_by_sigterm_as_by_an_interrupt(
    crkafka: Crkafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise AssertionError("nothing that was started would be stopped again")

    before = signal.signal(signal.SIGTERM, killed)
    monkeypatch.setattr("crkafka_core.cli.cuts.consume", lambda *_, **__: signal.raise_signal(signal.SIGTERM))
    try:
        assert crkafka("consume").code == 130
        assert signal.getsignal(signal.SIGTERM) is killed
    finally:
        signal.signal(signal.SIGTERM, before)


FROM_SQL = (
    "show health events checkpoints checkpoints,2 tables pause,orders resume,orders report scale,2 stop,--no-wait"
)
IMPORTED = """
import contextlib, io, sys
from crkafka_core.cli.main import run
for verb in sys.argv[2:]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = run(verb.split(","))
    heavy = {"confluent_kafka", "pyspark", "pyarrow", "numpy", "alembic", "rich", *sys.argv[1].split()} & {*sys.modules}
    if heavy or code > 1:
        sys.exit(f"{verb} {code} {heavy}")
print(len(sys.modules))
"""


@pytest.mark.parametrize(
    ("verbs", "without", "most"),
    [
        ("--version --help", "sqlalchemy pydantic yaml", 200),
        ("show health", "sqlalchemy.orm pydantic", 450),
        (FROM_SQL, "", 560),
    ],
)
def test_a_verb_imports_only_what_it_needs(plane: ControlPlane, verbs: str, without: str, most: int) -> None:
    """An import of Kafka's client or Spark takes a second of processor on a slow machine, for an answer from SQL."""
    done = python("-c", IMPORTED, without, *verbs.split())
    assert done.stderr == "" and int(done.stdout) <= most, done


def test_a_verb_that_gives_up_does_not_say_that_it_goes_on_trying(
    crkafka: Crkafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members and hosts try again; `verify` and `start` printed the same sentence, and ended."""

    def away(*_: object) -> None:
        raise ServiceUnavailable("Kafka is away.", hint="It is tried again.")

    monkeypatch.setattr("crkafka_core.cli.status.show", away)
    answer = crkafka("show")
    assert (answer.code, answer.err) == (3, "Kafka is away. Try again.\n")


def test_check_resolves_the_references_of_the_storage(
    crkafka: Crkafka, region_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHERE", "somewhere")
    region_file.write_text(region_file.read_text().replace("storage: var/segments", "storage: ${env:WHERE}/segments"))
    found = {f["what"]: f for f in crkafka("check", "--json").json}
    assert found["storage"]["ok"], found["storage"]["text"]
    assert not list(region_file.parent.glob("*{*")), "no folder of that name was made"


def test_forgetting_a_topic_is_asked_for_first(crkafka: Crkafka, plane: ControlPlane) -> None:
    answer = crkafka("forget", "orders")
    assert answer.code == 2
    assert "gives up what it has not read yet of topic orders" in answer.err
    assert "--yes" in answer.err


def test_undeclaring_a_table_is_asked_for_first(crkafka: Crkafka, plane: ControlPlane) -> None:
    plane.do(lambda tx: tables.declare(tx, "bronze", "delta", "/tables/bronze"))
    answer = crkafka("tables", "undeclare", "bronze")
    assert answer.code == 2
    assert "writes no more to table bronze and does not wait for it" in answer.err
    assert "--yes" in answer.err
    assert crkafka("tables", "undeclare", "silver").err.count("declares no table 'silver'") == 1, (
        "before anybody is asked"
    )
    assert crkafka("tables", "undeclare", "bronze", "--yes").code == 0
    assert plane.read(lambda reader, _: reader.select(Table)) == []
