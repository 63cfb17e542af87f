"""Mistake → message → exit code: one or two sentences of ours, what to do next, once, and soon."""

from __future__ import annotations

import os
import re
import signal
import socket
import socketserver
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from checkpoints_db import address
from checkpoints_db.unavailable import unavailable
from crkafka_core.control import Tx
from crkafka_core.model.errors import ServiceUnavailable
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Group, MemberStatus, Region, Table
from crkafka_core.plane import hosts, leases, life, roster, starts
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.region import Region as Driven
from tests.cli.conftest import YAML, Answer, Crkafka

SOON = 12.0
"""Seconds; ten are promised, and these machines are slow."""
NOT_OURS = re.compile(r"Traceback|Exception|Error:|sqlalchemy|psycopg\.|py4j|java\.|_TRANSPORT|Errno|<block|FATAL")


def _closed_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


POSTGRES = f"postgresql+psycopg://me@127.0.0.1:{_closed_port()}/db"

MISTAKES: dict[str, tuple[str, tuple[str, ...], int, str]] = {
    "bad indentation": (
        YAML.replace("storage:", "  storage:"),
        ("show",),
        2,
        r"region\.yaml:3: the line is indented otherwise than those above it",
    ),
    "a tab": (
        YAML.replace("kafka:", "\tkafka:"),
        ("show",),
        2,
        r"region\.yaml:4: the line begins with a tab; YAML is indented with spaces\.",
    ),
    "an open bracket": (
        YAML.replace("[orders]", "[orders"),
        ("show",),
        2,
        r"region\.yaml:5: a \[ is opened here and not closed",
    ),
    "an open quotation mark": (
        YAML.replace('"127.0.0.1:9"', '"127.0.0.1:9'),
        ("show",),
        2,
        r"a quotation mark is opened here and not closed",
    ),
    "an open quotation mark above others": (
        YAML.replace("region: orders", 'region: "orders'),
        ("show",),
        2,
        r"region\.yaml:1: a quotation mark is opened here and not closed",
    ),
    "an empty file": ("# nothing\n", ("show",), 2, r"region: the file is empty\.$"),
    "a list": (
        "- region: orders\n",
        ("show",),
        2,
        r"must be a mapping of keys to values, one a line, such as `region: orders`\.$",
    ),
    "no control plane yet": (YAML, ("show",), 2, r"There is no control plane at .*\. Run `crkafka init`"),
    "roles of a file": (
        YAML,
        ("roles",),
        2,
        r"For 'sqlite' there are no roles\. Only PostgreSQL has roles; of a SQLite file the mode",
    ),
    "closed port of PostgreSQL": (
        YAML.replace("sqlite:///var/crkafka.db", POSTGRES),
        ("show",),
        3,
        r"does not answer: Connection refused\. Check that it runs",
    ),
    "closed port of PostgreSQL, init": (
        YAML.replace("sqlite:///var/crkafka.db", POSTGRES),
        ("init",),
        3,
        r"does not answer: Connection refused\.",
    ),
    "closed port of Kafka": (YAML, ("group",), 3, r"Kafka does not answer \(.* at 127\.0\.0\.1:9\)\. Is the broker up"),
    "a control plane in /proc": (
        YAML.replace("sqlite:///var", "sqlite:////proc"),
        ("init",),
        2,
        r"The file /proc/crkafka\.db cannot be made: .*\. Choose another path",
    ),
    "a control plane in /proc, check": (
        YAML.replace("sqlite:///var", "sqlite:////proc/nosuch"),
        ("check",),
        3,
        r"WRONG  control plane: The file /proc/nosuch/crkafka\.db cannot be made: .*\. Choose another path",
    ),
    "storage in /proc": (
        YAML.replace("var/segments", "/proc/segments"),
        ("check",),
        3,
        r"storage: Nothing can be written to /proc/segments/.*\. Choose another folder",
    ),
    "storage in /proc, init": (
        YAML.replace("var/segments", "/proc/segments"),
        ("init",),
        3,
        r"^Nothing can be written to /proc/segments/.*\. Choose another folder",
    ),
    "a folder as configuration": (
        YAML,
        ("-c", ".", "show"),
        2,
        r"The configuration file \. cannot be read: Is a directory\.$",
    ),
    "a control plane that is another file": (
        YAML.replace("var/crkafka.db", "region.yaml"),
        ("show",),
        3,
        r"region\.yaml is not a SQLite database, or is damaged\. Name another file in control_plane",
    ),
    "a project in /proc": (
        YAML,
        ("new", "/proc/shop"),
        2,
        r"/proc/shop cannot be made: No such file or directory\. Choose another folder",
    ),
    "a schema that is no JSON": (
        YAML + "tables: [{name: t, format: delta, path: t, typed: {json: region.yaml}}]\n",
        ("show",),
        2,
        r"region\.yaml is not JSON from line 1, column 1 on\.",
    ),
    "a word for a number": (YAML, ("scale", "many"), 2, r"'many' is not a number\. See `crkafka scale --help`"),
    "a secret in clear": (
        YAML.replace("group.id", "sasl.password: hunter2, group.id"),
        ("show",),
        2,
        r"kafka\.sasl\.password: is a secret written in clear",
    ),
    "an address that is a web page's": (
        YAML.replace("127.0.0.1:9", "http://broker:9092"),
        ("show",),
        2,
        r"region\.yaml:4: kafka\.bootstrap\.servers: 'http://broker:9092' is not the address of a broker; write host:port",
    ),
    "a port that is none": (
        YAML.replace("127.0.0.1:9", "broker:99999"),
        ("show",),
        2,
        r"'broker:99999' is not the address of a broker",
    ),
    "addresses as a list": (
        YAML.replace('"127.0.0.1:9"', "[a:9092, b:9092]"),
        ("show",),
        2,
        r"bootstrap\.servers: must be one text: write \"a:9092,b:9092\"\.",
    ),
    "a topic that is no list": (
        YAML.replace("[orders]", "orders"),
        ("show",),
        2,
        r"region\.yaml:5: topics: must be a list; write \[orders\]\.",
    ),
    "a trigger that is a word": (
        YAML + "trigger: often\n",
        ("show",),
        2,
        r"trigger: must be \{period: 60s\}, \{tuples: 100000\} or \{manual: true\}, not 'often'\.",
    ),
    "a trigger without its key": (YAML + "trigger: 60s\n", ("show",), 2, r"trigger: write \{period: 60s\}\."),
    "a host that is misspelt": (
        YAML + "host: proceses\n",
        ("show",),
        2,
        r"host: must be processes, or .* Did you mean \"processes\"\?",
    ),
    "a Spark without slots": (
        YAML + 'host: {spark: "local[0]"}\n',
        ("show",),
        2,
        r"host: no Spark master: 'local\[0\]'; write local\[4\]",
    ),
    "no space after a colon": (
        YAML.replace("members: 2", "members:2"),
        ("show",),
        2,
        r"region\.yaml:6: a key is followed by a colon and a space, as in `members: 2`\.",
    ),
    "two regions": (
        YAML + "---\n" + YAML.replace("region: orders", "region: sales"),
        ("show",),
        2,
        r"name one, as by -r\. Regions here: orders, sales",
    ),
    "a table within the segments": (
        YAML + "tables: [{name: t, format: delta, path: var/segments/t}]\n",
        ("show",),
        2,
        r"storage \(.*/var/segments\) and table t \(.*\) lie in one another: .* a folder of its own\.",
    ),
    "two tables at one path": (
        YAML + "tables: [{name: t, format: delta, path: t}, {name: u, format: delta, path: x/../t/}]\n",
        ("show",),
        2,
        r"table t \(.*/t\) and table u \(.*/x/\.\./t/?\) lie in one another",
    ),
    "a store that is not supported": (
        YAML.replace("var/segments", "gs://bucket/orders"),
        ("check",),
        2,
        r"storage: must be a folder, s3://bucket/prefix or hdfs://…; gs: is not",
    ),
    "a database that is misspelt": (
        YAML.replace("sqlite:///", "postgres://me@host/"),
        ("show",),
        2,
        r"Did you mean \"postgresql\"\?",
    ),
    "too many members": (
        YAML.replace("members: 2", f"members: {10**30}"),
        ("init",),
        2,
        r"members: must be at most 10000, not 1000",
    ),
    "a control plane that is a folder": (
        YAML.replace("var/crkafka.db", "."),
        ("show",),
        3,
        r"cannot be used: unable to .*\. Is the file gone, is it a folder",
    ),
    "a checkpoint 0": (YAML, ("checkpoints", "0"), 2, r"must be at least 1, not 0\. See `crkafka checkpoints --help`"),
    "a port of dev up": (YAML, ("dev", "up", "--port", "70000"), 2, r"must be from 1 to 65535, not 70000\."),
    "a topic of dev up": (
        YAML,
        ("dev", "up", "--topic", "my orders:4"),
        2,
        r"'my orders' is not a topic name: letters, digits",
    ),
    "logs in a file": (
        YAML,
        ("host", "--logs", "region.yaml"),
        2,
        r"No logs can be written to region\.yaml: File exists\. Name another folder",
    ),
    "storage that is a file": (
        YAML.replace("var/segments", "region.yaml"),
        ("init",),
        3,
        r"^Writing to .*/region\.yaml/ failed: Not a directory\. A part of the path is a file",
    ),
    "consume without Kafka": (
        YAML,
        ("consume",),
        3,
        r"Kafka does not answer \(.* at 127\.0\.0\.1:9\)\. Is the broker up",
    ),
    "a bucket without a name": (
        YAML.replace("var/segments", "s3://"),
        ("check", "--offline"),
        2,
        r"storage: must be s3://bucket/prefix, not 's3://'\.",
    ),
    "a variable of a shell": (
        YAML.replace("127.0.0.1:9", "$KAFKA"),
        ("show",),
        2,
        r"'\$KAFKA' is not the address of a broker; write \$\{env:NAME\} for what a variable has\.",
    ),
    "a region's name with a slash": (
        YAML.replace("region: orders", "region: or/ders"),
        ("show",),
        2,
        r"'or/ders' is not a name; it takes letters, digits, dot, underscore and hyphen\.",
    ),
    "a position by Kafka's name": (YAML + "start: earliest\n", ("show",), 2, r"start: write \{position: beginning\}\."),
    "a position that is misspelt": (
        YAML + "start: beginnig\n",
        ("show",),
        2,
        r"start: must be \{position: …\} with one of beginning, .* Did you mean \"beginning\"\?",
    ),
    "a property of Kafka as a tree": (
        YAML.replace('{bootstrap.servers: "127.0.0.1:9", ', '{bootstrap: {servers: "127.0.0.1:9"}, '),
        ("show",),
        2,
        r"kafka\.bootstrap: must be text, .*; a property's name is one key: write bootstrap\.servers\.",
    ),
    "a position by Kafka's name, as its key": (
        YAML + "start: {position: latest}\n",
        ("show",),
        2,
        r"start\.position: must be end, as latest is called here\.",
    ),
    "a certificate that is not there": (
        YAML.replace("group.id", "security.protocol: SSL, ssl.ca.location: /nosuch.pem, group.id"),
        ("check",),
        2,
        r"kafka\.ssl\.ca\.location: there is no file /nosuch\.pem\. Put it there",
    ),
    "a login without its mechanism": (
        YAML.replace("group.id", "security.protocol: SASL_SSL, group.id"),
        ("check",),
        2,
        r"kafka\.sasl\.mechanism is missing, .* Write PLAIN, SCRAM",
    ),
    "a checkpoint past all numbers": (
        YAML,
        ("checkpoints", "9" * 20),
        2,
        r"must be at most 9223372036854775807, not 9+\.",
    ),
    "events past all numbers": (
        YAML,
        ("events", "--since", "9" * 20),
        2,
        r"must be at most 9223372036854775807, not 9",
    ),
    "a report past all numbers": (
        YAML,
        ("report", "--last", "9" * 20),
        2,
        r"must be at most 9223372036854775807, not 9",
    ),
    "a replay past all numbers": (
        YAML,
        ("replay", "t", "--after", "1", "--upto", "9" * 20),
        2,
        r"must be at most 9223372036854775807, not 9",
    ),
    "a reset past all numbers": (
        YAML,
        ("reset", "--to", "9" * 20),
        2,
        r"'9+' is neither head, initial nor the number of a checkpoint\.",
    ),
    "a reset to no figure": (
        YAML,
        ("reset", "--to", "²"),
        2,
        r"'²' is neither head, initial nor the number of a checkpoint\.",
    ),
    "partitions that are no figure": (
        YAML,
        ("dev", "up", "--topic", "orders:²"),
        2,
        r"'orders:²' is no NAME:PARTITIONS",
    ),
    "partitions that nobody has": (
        YAML,
        ("dev", "up", "--topic", "orders:99999999999"),
        2,
        r"'orders:9+' is no NAME:PARTITIONS",
    ),
    "a folder of dev up that is a file": (
        YAML,
        ("dev", "up", "--folder", "region.yaml"),
        2,
        r"Directory 'region\.yaml' is a file\.",
    ),
    "a partition with zeros before it": (
        YAML,
        ("pause", "orders[007]"),
        2,
        r"'orders\[007\]' is not a partition\. Write it as topic\[3\]\.",
    ),
    "a misspelt option of PostgreSQL": (
        YAML.replace("sqlite:///var/crkafka.db", "postgresql://me@host/db?sslmod=require"),
        ("show",),
        2,
        r'URL cannot be used: invalid connection option "sslmod"\. Look at what follows its question mark\.',
    ),
    "a value that the client does not take": (
        YAML.replace("group.id", "isolation.level: read_comitted, group.id"),
        ("check",),
        3,
        r'kafka: Invalid value "read_comitted" for configuration property "isolation\.level"\. Mend the property\.',
    ),
    "a property that the client does not know": (
        YAML.replace("group.id", "fetch.nonsense: 1, group.id"),
        ("check",),
        3,
        r'kafka: No such configuration property: "fetch\.nonsense"\. Mend the property\.',
    ),
    "an unknown verb": (YAML, ("ceck",), 2, r"There is no verb 'ceck'\. Did you mean \"check\"\?"),
}


@pytest.mark.parametrize(("yaml", "arguments", "code", "said"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_soon_once_and_in_words(
    crkafka: Crkafka, region_file: Path, yaml: str, arguments: tuple[str, ...], code: int, said: str
) -> None:
    region_file.write_text(yaml)
    if arguments in (("group",), ("consume",)):
        assert crkafka("init").code == 0
    began = time.monotonic()
    answer = crkafka(*arguments)
    text = answer.err or answer.out
    assert re.search(said, text), text
    assert answer.code == code
    assert len(re.findall(said, text)) == 1
    assert not NOT_OURS.search(text), text
    assert arguments == ("check",) or len(answer.err.splitlines()) == 1
    assert time.monotonic() - began < SOON


def test_where_the_kafka_of_dev_up_is_away_its_start_is_named(crkafka: Crkafka, region_file: Path) -> None:
    assert crkafka("init").code == 0
    assert "dev up" not in crkafka("group").err
    (dev := region_file.parent / "var" / "dev").mkdir(parents=True)
    (dev / "bootstrap.servers").write_text("127.0.0.1:9\n")
    answer = crkafka("group")
    assert (answer.code, answer.err.count("\n")) == (3, 1)
    assert answer.err.endswith(" `crkafka dev up` starts the one at 127.0.0.1:9.\n")


def test_a_program_whose_kafka_is_away_is_told_so(crkafka: Crkafka, region_file: Path) -> None:
    """It waited without a word."""
    assert crkafka("init").code == 0
    began = time.monotonic()
    with Driven.open(region_file) as region:
        said = r"^Kafka does not answer \(.* at 127\.0\.0\.1:9\)\. Is the broker up"
        with pytest.raises(ServiceUnavailable, match=said), region.hosted():
            raise AssertionError("members wait for it")
        assert region.status().region.phase is Phase.IDLE
    assert time.monotonic() - began < SOON


@pytest.fixture
def refusing_postgres() -> Iterator[int]:
    """The port of a server that speaks enough of PostgreSQL's protocol to refuse everybody."""
    words = b'SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed for user "me"\0\0'

    class Refusing(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while head := self.rfile.read(8):
                length, kind = struct.unpack("!ii", head)
                self.rfile.read(length - 8)
                if kind == 196608:  # the start-up message of protocol 3.0; what comes before asks for TLS or GSS
                    self.wfile.write(b"E" + struct.pack("!i", len(words) + 4) + words)
                    return
                self.wfile.write(b"N")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_init_takes_the_place_of_a_configuration_that_only_an_older_version_took(
    crkafka: Crkafka, region_file: Path
) -> None:
    """It did, and then said that the stored one is wrong, exit code 2; `check` could say nothing else of the region."""
    assert crkafka("init").code == 0
    with sqlite3.connect(region_file.parent / "var" / "crkafka.db") as database:
        database.execute("UPDATE region SET config_json = json_set(config_json, '$.of_long_ago', 1)")
    assert (
        "changed since `crkafka init`: the whole: what this version refuses → what the file says"
        in crkafka("check").out
    )
    done = crkafka("init")
    assert (done.code, "changed: the whole" in done.out) == (0, True)
    assert "changed" not in crkafka("init").out


def test_a_wrong_password_is_no_silence(
    crkafka: Crkafka, region_file: Path, refusing_postgres: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB_PASSWORD", "geheim@1")
    url = f"postgresql+psycopg://me:${{env:DB_PASSWORD}}@127.0.0.1:{refusing_postgres}/db"
    region_file.write_text(YAML.replace("sqlite:///var/crkafka.db", url))
    began = time.monotonic()
    answer = crkafka("show")
    assert answer.code == 3
    assert re.search(r"answers, but refuses: .*authentication failed.*Check user, password and database", answer.err)
    assert "geheim" not in answer.err
    assert time.monotonic() - began < SOON


def test_a_cut_that_nobody_would_make_names_the_host(crkafka: Crkafka) -> None:
    crkafka("init")
    began = time.monotonic()
    answer = crkafka("cut")
    assert (answer.code, answer.err.count("`crkafka host` runs them"), answer.err.count("\n")) == (1, 1, 1)
    assert time.monotonic() - began < SOON


def test_a_region_whose_host_is_gone_names_the_host_wherever_one_looks(
    crkafka: Crkafka, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(tx: Tx) -> None:
        leases.take(tx, hosts.LEASE, holder="anna", token="a", length=0.0)
        tx.put(*(replace(m, status=MemberStatus.LOST, assignment_json="") for m in roster.all_of(tx)))

    monkeypatch.setattr("crkafka_core.cli.life.start", lambda config, **_: plane.read(lambda _, row: row))
    assert crkafka("health").code == 0
    plane.do(killed)
    for verb in ("health", "show", "cut", "start"):
        answer = crkafka(verb)
        assert (answer.out + answer.err).count("anna, has shown no life for ") == 1, answer
        assert "`crkafka host` runs them" in answer.out + answer.err
        assert answer.code == (1 if verb in ("health", "cut") else 0)


@pytest.mark.parametrize(
    "more",
    ['host: {spark: "local[4]"}\n', "tables: [{name: t, format: iceberg, path: t}]\n"],
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
    plane.do(lambda tx: tx.put(Table("orders", "t", "parquet", str(region_file.parent / "t"))))
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
    """That Java's death is met like this: tests/spark/test_launch.py."""
    from py4j.protocol import Py4JNetworkError

    def dies(*_: object, **__: object) -> None:
        import_module("crkafka_core.spark.launch")
        raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr("crkafka_core.cli.history.show", dies)
    answer = crkafka("show")
    assert (answer.code, answer.err) == (3, "Spark: its Java process has ended. Was it killed, or out of memory?\n")


def test_a_package_that_is_missing_names_its_extra(
    crkafka: Crkafka, region_file: Path, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object, **__: object) -> None:
        import_module("deltalake.nowhere")

    monkeypatch.setitem(sys.modules, "deltalake", None)
    monkeypatch.setattr("crkafka_core.cli.history.show", missing)
    answer = crkafka("show")
    assert (answer.code, answer.err) == (2, "deltalake is not installed. pip install 'crkafka[delta]'.\n")
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setattr("crkafka_core.cli.history.show", lambda *_, **__: import_module("pyspark.nowhere"))
    assert crkafka("show").err == "pyspark is not installed. pip install 'crkafka'.\n", "which brings it"
    region_file.write_text(YAML + "tables: [{name: t, format: delta, path: t}]\n")
    monkeypatch.setattr("crkafka_core.cli.checks.find_spec", lambda package: None)
    assert _check(crkafka)["tables"] == "deltalake is not installed. pip install 'crkafka[delta]'."


@pytest.mark.parametrize("after", [0.05, 0.4, 1.0])
def test_an_interrupt_at_any_time_is_a_word(region_file: Path, after: float) -> None:
    region_file.write_text(YAML.replace("sqlite:///var/crkafka.db", POSTGRES))
    # A process that was started in the background ignores Ctrl-C, and so would its children.
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from crkafka_core.cli.entry import main; print('begun', flush=True); main(['watch', '--json'])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=region_file.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err.strip()) == (130, "interrupted")


def test_a_second_interrupt_of_a_host_ends_it_at_once_whatever_it_still_waits_for() -> None:
    program = (
        "import time\nfrom crkafka_core.cli import hosting\n"
        "with hosting._interrupts() as stop:\n"
        "    try:\n        print('begun', flush=True)\n        stop.wait()\n        print('ends', flush=True)\n        time.sleep(60)\n"
        "    finally:\n        time.sleep(60)  # a member that does not end\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for said in ("begun\n", "ends\n"):
        assert process.stdout.readline() == said
        process.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, err = process.communicate(timeout=50)
    assert (process.returncode, err) == (130, "interrupted\n") and time.monotonic() - began < 20


# -- what `check` finds


def _check(crkafka: Crkafka) -> dict[str, str]:
    return {f["what"]: f["text"] for f in crkafka("check", "--json").json if not f["ok"] or f["what"] == "region"}


def test_check_and_init_tell_what_has_changed(crkafka: Crkafka, region_file: Path, plane: ControlPlane) -> None:
    region_file.write_text(
        YAML.replace("topics: [orders]", "topics: [orders, refunds]").replace("members: 2", "members: 3")
    )
    said = _check(crkafka)["region"]
    assert "topics: orders → orders, refunds" in said
    assert "2 members are wanted, as `crkafka scale` says, and not 3" in said
    done = crkafka("init")
    assert "changed: topics: orders → orders, refunds\n" in done.out
    assert "`crkafka scale 3` changes that" in done.err
    assert "changed" not in crkafka("init").out


def test_check_refuses_another_group(crkafka: Crkafka, region_file: Path, plane: ControlPlane) -> None:
    region_file.write_text(YAML.replace("group.id: orders", "group.id: sales"))
    said = "The region's group is 'orders', and the configuration says 'sales'"
    assert said in _check(crkafka)["region"]
    refused = crkafka("init")
    assert (refused.code, refused.err.startswith(said)) == (2, True), refused
    assert said in _check(crkafka)["region"], "what was refused has changed nothing"


def test_check_finds_a_table_whose_folder_is_gone(crkafka: Crkafka, region_file: Path, plane: ControlPlane) -> None:
    def declared(tx: Tx) -> None:
        tx.put(Table("orders", "bronze", "parquet", str(region_file.parent / "bronze"), acknowledged=2))
        tx.put(Table("orders", "named", "iceberg", "lake.shop.orders", acknowledged=2))  # in a catalog: no folder

    plane.do(declared)
    assert "Table bronze has rows up to checkpoint 2, and what its folder" in _check(crkafka)["tables"]
    (region_file.parent / "bronze").mkdir()
    assert "tables" not in _check(crkafka)


def test_check_does_not_take_files_that_a_writer_has_left_for_a_delta_table(
    crkafka: Crkafka, region_file: Path, plane: ControlPlane
) -> None:
    """Where the host has tried to go on with a deleted table, its folder is there again."""
    log = region_file.parent / "bronze" / "_delta_log"
    log.parent.mkdir()
    plane.do(lambda tx: tx.put(Table("orders", "bronze", "delta", str(log.parent), acknowledged=2)))
    assert "Table bronze has rows up to checkpoint 2, and what its folder" in _check(crkafka)["tables"]
    log.mkdir()
    assert "tables" not in _check(crkafka)


def test_check_goes_on_after_what_this_user_may_not_look_at(
    crkafka: Crkafka, region_file: Path, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    plane.do(lambda tx: tx.put(Table("orders", "bronze", "parquet", str(region_file.parent / "t"), acknowledged=2)))
    monkeypatch.setattr("crkafka_core.cli.checks.Path.is_dir", forbidden)
    answer = crkafka("check")
    assert answer.code == 3 and "WRONG  tables: " in answer.out, answer
    assert "/t cannot be used: Permission denied. May this user read and write it" in answer.out
    assert "\nok     host: " in answer.out, "what comes after is looked at all the same"


def test_check_counts_task_slots(crkafka: Crkafka, region_file: Path) -> None:
    region_file.write_text(YAML + 'host: {spark: "local[1]"}\n')
    assert "2 members need 2 task slots, and local[1] has 1. Write local[3]" in _check(crkafka)["host"]


def test_check_and_scale_count_the_task_slots_of_a_region_that_was_scaled(
    crkafka: Crkafka, region_file: Path, plane: ControlPlane
) -> None:
    """Members took all of them without a word, and tables stood still."""
    region_file.write_text(YAML + 'host: {spark: "local[4]"}\ntables: [{name: bronze, format: parquet, path: t}]\n')
    refused = crkafka("scale", "5")
    assert refused.code == 2, refused
    assert "5 members need 5 task slots, and local[4] has 4. Write local[6]: one more, for tables." in refused.err
    assert crkafka("scale", "4").code == 0
    assert (
        "All task slots of local[4] go to 4 members: none is left for bronze. Write local[5]."
        in _check(crkafka)["host"]
    )
    plane.do(lambda tx: tx.set_region(members_wanted=5))
    assert "5 members need 5 task slots, and local[4] has 4" in _check(crkafka)["host"]


def test_check_compares_pyspark_with_the_jars(
    crkafka: Crkafka, region_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crkafka_core.cli.checks.metadata.version", lambda package: "4.2.0")
    region_file.write_text(YAML + 'host: {spark: "local[4]"}\ntables: [{name: t, format: iceberg, path: t}]\n')
    assert "PySpark 4.2.0 is installed; the jars for iceberg are for Spark 4.1" in _check(crkafka)["host"]


def test_check_tells_another_topic_of_the_same_name(
    crkafka: Crkafka, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crkafka_core.kafka.admin import KafkaAdmin, TopicInfo

    monkeypatch.setattr(KafkaAdmin, "cluster_id", lambda _: "c1")
    monkeypatch.setattr(KafkaAdmin, "topics", lambda *_, **__: {"orders": TopicInfo("t2", ())})
    monkeypatch.setattr(KafkaAdmin, "largest_messages", lambda *_: {})
    assert (
        "topic orders was made anew: the region knows it with the id t1, and it has the id t2 now"
        in _check(crkafka)["kafka"]
    )
    assert "`crkafka forget" in _check(crkafka)["kafka"]


Asked = Callable[..., Answer]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("ordesr", "does not read a topic 'ordesr'. Did you mean \"orders\"?"),
        ("refunds[3]", "does not read a topic 'refunds'. It reads orders."),
        ("^shop", "The pattern '^shop' matches no topic"),
        ("nosuch/0", "'nosuch/0' is not a member of region orders. Write it as orders/0."),
    ],
)
def test_a_pause_of_what_would_never_be_read_is_refused(
    crkafka: Asked, plane: ControlPlane, what: str, said: str
) -> None:
    answer = crkafka("pause", what)
    assert (answer.code, said in answer.err) == (1, True), answer.err  # as other names that are not known
    assert crkafka("pause", "orders[99]").code == 0, "a partition that may come"


def test_a_rewind_that_would_lose_rows_of_a_forgotten_topic_is_refused_before_it_is_asked_for(
    crkafka: Asked, plane: ControlPlane
) -> None:
    plane.do(lambda tx: starts.forget(tx, "orders", by="me"))
    answer = crkafka("reset", "--to", "1")
    assert answer.code == 1
    assert (
        "rows of orders would be superseded" in answer.err and "`crkafka reset --to 1 --give-up orders`" in answer.err
    )
    assert "--yes" in crkafka("reset", "--to", "1", "--give-up", "orders").err, "that one is asked for"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("replay", "bronce", "--after", "0", "--upto", "2"), "declares no table 'bronce'. Declared: bronze."),
        (("mend", "bronce"), "declares no table 'bronce'. Declared: bronze."),
        (("tables", "advance", "bronce"), "declares no table 'bronce'. Declared: bronze."),
        (("forget", "ordesr"), "knows no topic 'ordesr', or has forgotten it already. It knows orders."),
        (("skip", "ordesr[0]@3"), "knows no topic 'ordesr', or has forgotten it already. It knows orders."),
        (("checkpoints", "99"), "has no checkpoint 99."),
        (("replay", "bronze", "--after", "0", "--upto", "99"), "What can be read: 1, 2 (2 on the line to the head)."),
    ],
)
def test_what_is_not_there_is_refused_before_anything_starts(
    crkafka: Asked, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    for module in ("replaying", "mending", "declared"):
        monkeypatch.setattr(f"crkafka_core.cli.{module}.open_session", _no_session)
    plane.do(lambda tx: tx.put(Table("orders", "bronze", "parquet", "bronze", acknowledged=2)))
    answer = crkafka(*arguments)
    assert (answer.code, said in answer.err, "--yes" in answer.err) == (1, True, False), answer.err


def test_a_replay_into_a_table_by_key_is_refused_before_spark_starts(
    crkafka: Asked, region_file: Path, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was refused after two minutes of Spark, and after it had been announced."""
    monkeypatch.setattr("crkafka_core.cli.replaying.open_session", _no_session)
    (region_file.parent / "order.json").write_text('{"type": "object", "properties": {"id": {"type": "integer"}}}')
    typed = "typed: {json: order.json}, mode: upsert"
    region_file.write_text(YAML + f"tables: [{{name: customers, format: delta, path: t, {typed}}}]\n")
    assert crkafka("init").code == 0
    answer = crkafka("replay", "customers", "--after", "0", "--upto", "2")
    assert (answer.code, answer.err.count("\n")) == (1, 1), answer.err
    assert "keeps the last record of each kafka_key: rows of single checkpoints cannot be written again." in answer.err


def _no_session(*_: object) -> NoReturn:
    raise AssertionError("Spark was started")


def test_a_table_that_is_new_since_init_is_said_as_it_is_written(
    crkafka: Crkafka, region_file: Path, plane: ControlPlane
) -> None:
    (region_file.parent / "order.json").write_text('{"type": "object", "properties": {"a": {"type": "integer"}}}')
    region_file.write_text(YAML + "tables: [{name: t, format: delta, path: t, typed: {json: order.json}}]\n")
    said = _check(crkafka)["region"]
    assert "typed: json: " in said and "{" not in said and "None" not in said, said


@pytest.mark.parametrize(
    ("wanted", "said"), [("0", "`crkafka stop` ends all members."), ("20000", "A region has 10,000 at most.")]
)
def test_a_number_of_members_that_cannot_be_is_refused(
    crkafka: Crkafka, plane: ControlPlane, wanted: str, said: str
) -> None:
    answer = crkafka("scale", wanted)
    assert (answer.code, answer.err.endswith(f" {said}\n")) == (1, True), answer.err
    assert plane.read(lambda _, row: row.members_wanted) == 2


def test_a_reset_to_what_is_not_there_is_refused_before_it_is_confirmed(crkafka: Crkafka, plane: ControlPlane) -> None:
    answer = crkafka("reset", "--to", "99")
    assert (answer.code, "--yes" in answer.err) == (1, False)
    assert "Checkpoint 99 of region orders is unknown" in answer.err


def test_who_says_no_when_asked_hears_that_nothing_was_done(
    crkafka: Crkafka, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: "n\n"))
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: "n")
    answer = crkafka("reset", "--to", "1")
    assert (answer.code, answer.err.splitlines()[-1]) == (1, "Nothing was done.")


@pytest.mark.parametrize(
    ("broken", "said", "code"),
    [
        (OSError(28, "No space left on device"), "What is printed cannot be written: No space left on device.", 3),
        (
            PermissionError(13, "Permission denied", "/x/y"),
            "/x/y cannot be used: Permission denied. May this user read and write it, and is there space left?",
            3,
        ),
        (
            UnicodeEncodeError("ascii", "ä", 0, 1, "no"),
            "A character of a path or of an answer is none in this locale. Set LC_ALL=C.UTF-8.",
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

    monkeypatch.setattr("crkafka_core.cli.history.show", fails)
    answer = crkafka("show")
    assert (answer.code, answer.err) == (code, f"{said}\n")


def test_a_control_plane_on_a_full_disk_is_said(tmp_path: Path) -> None:
    """It was told that the file `does not answer`."""
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
    """Closed by who started it, as a shell does with `>&-`, or written where no space is left."""
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
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=gone,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert (done.returncode, done.stderr) == (3, "The current folder is no longer there. Change to another one.\n")


def test_without_a_verb_the_help_is_all_that_is_printed(crkafka: Crkafka) -> None:
    answer = crkafka()
    assert (answer.code, answer.out) == (2, "") and "See `" not in answer.err
    assert "_CRKAFKA_COMPLETE=bash_source crkafka" in answer.err and "\nVerbs:\n" in answer.err


@pytest.mark.kafka
def test_check_and_group_name_whose_the_group_is_and_who_is_foreign(
    crkafka: Crkafka, region_file: Path, plane: ControlPlane, kafka: object, new_topic: Callable[..., str]
) -> None:
    from confluent_kafka import Consumer

    from crkafka_core.dev.kafka import KafkaCluster
    from crkafka_core.kafka.admin import KafkaAdmin

    assert isinstance(kafka, KafkaCluster)
    topic = new_topic(partitions=1)
    group = f"foreign-{topic}"
    here = (
        YAML.replace("127.0.0.1:9", kafka.bootstrap)
        .replace("[orders]", f"[{topic}]")
        .replace("group.id: orders", f"group.id: {group}")
    )
    cluster = KafkaAdmin({"bootstrap.servers": kafka.bootstrap}).cluster_id()
    region_file.write_text(here)
    plane.do(lambda tx: tx.set_region(cluster_id="", group_id="", config_json=""))
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group, "client.id": "somebody[/x]"})
    try:
        consumer.subscribe([topic])
        end = time.monotonic() + 30
        while "somebody" not in _check(crkafka).get("group", ""):
            consumer.poll(0.3)
            assert time.monotonic() < end
        shown = crkafka("group")
        assert re.search(r"somebody\[/x\].*FOREIGN", shown.out)
        assert "no member of this region" in shown.err
    finally:
        consumer.close()
    life.declare(plane.store, Region(name="sales", uid="u2", region_index=0, members_wanted=1))
    ControlPlane(plane.store, "sales").do(lambda tx: tx.put(Group(cluster, group, "sales", 0)))
    assert f"Group '{group}' belongs to region sales" in _check(crkafka)["group"]
    before = plane.read(lambda _, row: row.config_json)
    refused = crkafka("init")
    assert refused.code != 0 and refused.err.startswith(f"Group '{group}' belongs to region sales"), refused
    assert plane.read(lambda _, row: row.config_json) == before
