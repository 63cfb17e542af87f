"""Mistake → message → exit code: one or two sentences of ours, what to do next, once, and soon."""

from __future__ import annotations

import re
import shlex
import socketserver
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from crkafka_core.control import Tx
from crkafka_core.model.errors import ServiceUnavailable
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import MemberStatus
from crkafka_core.plane import hosts, leases, roster
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.region import Region as Driven
from tests.cli.conftest import POSTGRES, SOON, YAML, Crkafka

NOT_OURS = re.compile(r"Traceback|Exception|Error:|sqlalchemy|psycopg\.|py4j|java\.|_TRANSPORT|Errno|<block|FATAL")


DATABASE = "sqlite:///var/crkafka.db"


def _y(old: str, new: str) -> str:
    """The region file with one mistake."""
    return YAML.replace(old, new)


def _more(line: str) -> str:
    return f"{YAML}{line}\n"


def _tables(*tables: str) -> str:
    return _more(f"tables: [{', '.join(f'{{format: delta, {table}}}' for table in tables)}]")


def _kafka(given: str) -> str:
    return _y("group.id", f"{given}, group.id")


_IN_PROC = _y("var/segments", "/proc/segments")
"""The mistake that measures how soon `check` ends if Kafka does not answer."""
_BROKER = r"is not the address of a broker"
_MOST = r"must be at most 9223372036854775807, not 9"
_AWAY = r"Kafka does not answer \(.* at 127\.0\.0\.1:9\)\. Is the broker up"
OF_THE_FILE = [
    (_y("storage:", "  storage:"), r"region\.yaml:3: the line is indented otherwise than those above it"),
    (_y("kafka:", "\tkafka:"), r"region\.yaml:4: the line begins with a tab; YAML is indented with spaces\."),
    (_y("[orders]", "[orders"), r"region\.yaml:5: a \[ is opened here and not closed"),
    (_y('"127.0.0.1:9"', '"127.0.0.1:9'), r"a quotation mark is opened here and not closed"),
    (_y("region: orders", 'region: "orders'), r"region\.yaml:1: a quotation mark is opened here and not closed"),
    ("# nothing\n", r"region: the file is empty\.$"),
    ("- region: orders\n", r"must be a mapping of keys to values, one a line, such as `region: orders`\.$"),
    (YAML, r"There is no control plane at .*\. Run `crkafka init`"),
    (_y("members: 2", "memebrs: 2"), r'^region\.yaml:6: memebrs: unknown key\. Did you mean "members"\?$'),
    (_tables("name: t, path: t, typed: {json: region.yaml}"), r"region\.yaml is not JSON from line 1, column 1 on\."),
    (_kafka("sasl.password: hunter2"), r"kafka\.sasl\.password: is a secret written in clear"),
    (_y("127.0.0.1:9", "http://b:9092"), rf"region\.yaml:4: kafka\..*: 'http://b:9092' {_BROKER}; write host:port"),
    (_y("127.0.0.1:9", "broker:99999"), rf"'broker:99999' {_BROKER}"),
    (_y("127.0.0.1:9", "$KAFKA"), rf"'\$KAFKA' {_BROKER}; write \$\{{env:NAME\}} for what a variable has\."),
    (_y('"127.0.0.1:9"', "[a:1, b:1]"), r"bootstrap\.servers: must be one text: write \"a:1,b:1\"\."),
    (
        _y('{bootstrap.servers: "127.0.0.1:9"', "{bootstrap: {servers: b}"),
        r"kafka\.bootstrap: .* write bootstrap\.servers\.",
    ),
    (_y("[orders]", "orders"), r"region\.yaml:5: topics: must be a list; write \[orders\]\."),
    (_more("trigger: often"), r"trigger: must be \{period: 60s\}, .* or \{manual: true\}, not 'often'\."),
    (_more("trigger: 60s"), r"trigger: write \{period: 60s\}\."),
    (_more("host: proceses"), r"host: must be processes, or .* Did you mean \"processes\"\?"),
    (_more('host: {spark: "local[0]"}'), r"host: no Spark master: 'local\[0\]'; write local\[4\]"),
    (_y("members: 2", "members:2"), r"a key is followed by a colon and a space, as in `members: 2`\."),
    (f"{YAML}---\n{_y(': orders', ': sales')}", r"name one, as by -r\. Regions here: orders, sales"),
    (
        _tables("name: t, path: var/segments/t"),
        r"storage \(.*\) and table t \(.*\) lie in one another: .* folder of its own",
    ),
    (_tables("name: t, path: t", "name: u, path: x/../t/"), r"table t \(.*/t\) and table u \(.*\) lie in one another"),
    (_y("sqlite:///", "postgres://me@host/"), r"Did you mean \"postgresql\"\?"),
    (_y(DATABASE, "postgresql://me@host/db?sslmod=require"), r'URL cannot be used: .*"sslmod"\. Look at what follows'),
    (_y("region: orders", "region: or/ders"), r"'or/ders' is not a name; it takes letters, digits, dot, underscore"),
    (_more("start: earliest"), r"start: write \{position: beginning\}\."),
    (_more("start: beginnig"), r"start: must be \{position: …\} with one of .* Did you mean \"beginning\"\?"),
    (_more("start: {position: latest}"), r"start\.position: must be end, as latest is called here\."),
]
"""`crkafka events` ends with 2."""
OF_THE_CALL: list[tuple[str, int, str]] = [
    ("init --roles", 2, r"For 'sqlite' there are no roles\. Only PostgreSQL has roles; of a SQLite file the mode"),
    ("group", 3, _AWAY),
    ("consume", 3, _AWAY),
    ("-c . show", 2, r"The configuration file \. cannot be read: Is a directory\.$"),
    ("new /proc/shop", 2, r"/proc/shop cannot be made: No such file or directory\. Choose another folder"),
    ("scale many", 2, r"'many' is not a number\. See `crkafka scale --help`"),
    ("checkpoints 0", 2, r"must be at least 1, not 0\. See `crkafka checkpoints --help`"),
    ("dev up --port 70000", 2, r"must be from 1 to 65535, not 70000\."),
    ("dev up --topic 'my orders:4'", 2, r"'my orders' is not a topic name: letters, digits"),
    ("dev up --topic orders:²", 2, r"'orders:²' is no NAME:PARTITIONS"),
    ("dev up --topic orders:99999999999", 2, r"'orders:9+' is no NAME:PARTITIONS"),
    ("dev up --folder region.yaml", 2, r"Directory 'region\.yaml' is a file\."),
    ("host --logs region.yaml", 2, r"No logs can be written to region\.yaml: File exists\. Name another folder"),
    *(
        (f"{words} {'9' * 20}", 2, _MOST)
        for words in ("checkpoints", "events --since", "report --last", "tables replay t --after 1 --upto")
    ),
    ("reset", 2, r"Missing option '--to'"),
    (f"reset --to {'9' * 20}", 2, r"'9+' is neither head, initial nor the number of a checkpoint\."),
    ("reset --to ²", 2, r"'²' is neither head, initial nor the number of a checkpoint\."),
    ("pause orders[007]", 2, r"'orders\[007\]' is not a partition\. Write it as topic\[3\]\."),
    ("show --interval 2", 2, r"--interval and --once need --watch\."),
    ("show --jsno", 2, r"--jsno"),
    ("replay t", 2, r"`crkafka replay` is `crkafka tables replay` now\."),
    ("ceck", 2, r"There is no verb 'ceck'\. Did you mean \"check\"\?"),
]
_WRITTEN = r"Nothing can be written to /proc/segments/.*\. Choose another folder"
OF_BOTH: list[tuple[str, str, int, str]] = [
    (_y(DATABASE, POSTGRES), "show", 3, r"does not answer: Connection refused\. Check that it runs"),
    (_y(DATABASE, POSTGRES), "init", 3, r"does not answer: Connection refused\."),
    (_y("/var/crk", "//proc/crk"), "init", 2, r"The file /proc/crkafka\.db cannot be made: .*\. Choose another path"),
    (
        _y("/var/crk", "//proc/no/crk"),
        "check",
        3,
        r"WRONG  control plane: The file /proc/no/crkafka\.db cannot be made: ",
    ),
    (_IN_PROC, "check", 3, rf"storage: {_WRITTEN}"),
    (_IN_PROC, "init", 3, rf"^{_WRITTEN}"),
    (
        _y("var/crkafka.db", "region.yaml"),
        "show",
        3,
        r"region\.yaml is not a SQLite database, .* another file in control_plane",
    ),
    (
        _y("var/segments", "az://bucket/orders"),
        "check",
        2,
        r"storage: must be a folder, s3://.*gs://bucket/prefix or hdfs://…; az: is not",
    ),
    (_y("members: 2", f"members: {10**30}"), "init", 2, r"members: must be at most 10000, not 1000"),
    (_y("var/crkafka.db", "."), "show", 3, r"cannot be used: unable to .*\. Is the file gone, is it a folder"),
    (
        _y("var/segments", "region.yaml"),
        "init",
        3,
        r"^Writing to .*/region\.yaml/ failed: .* A part of the path is a file",
    ),
    (_y("var/segments", "s3://"), "check --offline", 2, r"storage: must be s3://bucket/prefix, not 's3://'\."),
    (
        _kafka("security.protocol: SSL, ssl.ca.location: /no.pem"),
        "check",
        2,
        r"\.ssl\.ca\.location: there is no file /no\.pem\. Put",
    ),
    (_kafka("security.protocol: SASL_SSL"), "check", 2, r"kafka\.sasl\.mechanism is missing, .* Write PLAIN, SCRAM"),
    (
        _tables("name: raw, path: /etc/hostname/raw"),
        "check",
        3,
        r"WRONG  tables: Table raw cannot .* Choose another path in tables",
    ),
    (
        _kafka("isolation.level: read_comitted"),
        "check",
        3,
        r'kafka: Invalid value "read_comitted" .*\. Mend the property\.',
    ),
    (_kafka("fetch.nonsense: 1"), "check", 3, r'kafka: No such .* property: "fetch\.nonsense"\. Mend the property\.'),
]
MISTAKES = [
    *((yaml, "events", 2, said) for yaml, said in OF_THE_FILE),
    *((YAML, words, code, said) for words, code, said in OF_THE_CALL),
    *OF_BOTH,
]


@pytest.mark.parametrize(("yaml", "words", "code", "said"), MISTAKES, ids=[m[3][:60] for m in MISTAKES])
def test_a_mistake_is_told_soon_once_and_in_words(
    crkafka: Crkafka, region_file: Path, yaml: str, words: str, code: int, said: str, request: pytest.FixtureRequest
) -> None:
    region_file.write_text(yaml)
    if words == "check" and yaml != _IN_PROC:
        request.getfixturevalue("check_soon")
    if words in ("group", "consume"):
        assert crkafka("init").code == 0
    began = time.monotonic()
    answer = crkafka(*shlex.split(words))
    text = answer.err or answer.out
    assert re.search(said, text), text
    assert answer.code == code
    assert len(re.findall(said, text)) == 1
    assert not NOT_OURS.search(text), text
    assert words == "check" or len(answer.err.splitlines()) == 1
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
    """It waited without a message."""
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
    """The port of a server that speaks enough of PostgreSQL's protocol to refuse every login."""
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


def test_a_region_whose_host_is_gone_names_the_host_wherever_one_looks(
    crkafka: Crkafka, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(tx: Tx) -> None:
        leases.take(tx, hosts.LEASE, holder="anna", token="a", length=0.0)
        tx.put(*(replace(m, status=MemberStatus.LOST, assignment_json="") for m in roster.all_of(tx)))

    monkeypatch.setattr(Driven, "start", lambda self, **_: plane.read(lambda _, row: row))
    assert crkafka("health").code == 0
    plane.do(killed)
    for verb in ("health", "show", "cut", "start"):
        answer = crkafka(verb)
        assert (answer.out + answer.err).count("anna, has shown no life for ") == 1, answer
        assert "`crkafka host` runs them" in answer.out + answer.err
        assert answer.code == (1 if verb in ("health", "cut") else 0)


def test_without_a_verb_the_help_is_all_that_is_printed(crkafka: Crkafka) -> None:
    answer = crkafka()
    assert (answer.code, answer.out) == (2, "") and "See `" not in answer.err
    assert "_CRKAFKA_COMPLETE=bash_source crkafka" in answer.err and "\nVerbs:\n" in answer.err
