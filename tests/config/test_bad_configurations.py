"""Each kind of bad configuration gives one sentence that says where, what, and what to write instead (SPEC U3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crkafka_core.config import BadConfiguration, RegionConfig
from crkafka_core.model.errors import ConfigError

GOOD: dict[str, Any] = {
    "region": "orders",
    "control_plane": "sqlite:///var/crkafka.db",
    "storage": "var/segments",
    "kafka": {"bootstrap.servers": "localhost:9092", "group.id": "orders"},
    "topics": ["orders", "refunds"],
}
PG = {"control_plane": "postgresql+psycopg://db/crkafka"}
TABLE = {"name": "bronze", "format": "delta", "path": "var/bronze"}


def kafka(**more: Any) -> dict[str, Any]:
    return {"kafka": {**GOOD["kafka"], **{k.replace("__", "."): v for k, v in more.items()}}}


PROPERTIES: list[tuple[str, str, Any, str]] = [
    ("an endless session", "session.timeout.ms", float("inf"), "a whole number of milliseconds"),
    ("auto commit", "enable.auto.commit", True, "must be false"),
    ("auto commit as text", "enable.auto.commit", "true", "must be false"),
    ("auto offset store", "enable.auto.offset.store", "true", "must be false"),
    ("a timeout in words", "session.timeout.ms", "soon", "whole number"),
    ("a refresh in words", "topic.metadata.refresh.interval.ms", "soon", "whole number"),
    ("a poll interval below the session", "max.poll.interval.ms", 1_000, "must not be below"),
    ("a time with a unit", "socket.timeout.ms", "30s", "whole number of milliseconds"),
    ("a size with a unit", "queued.max.messages.kbytes", "64MB", "'64MB'"),
    ("a number as programs write it", "session.timeout.ms", "45_000", "'45_000'"),
    ("a part of a millisecond", "session.timeout.ms", 6000.5, "whole number"),
    ("no end of a partition", "enable.partition.eof", False, "must be true"),
    ("hidden topics", "topic.blacklist", "^a", "the region waits for them"),
    ("brokers under two names", "metadata.broker.list", "b:9092", "bootstrap.servers"),
    ("tokens as in Python", "oauth_cb", "m:f", "sasl.oauthbearer.callback"),
    ("a callback of Python", "stats_cb", "m:f", "leave it out"),
    ("no broker", "bootstrap.servers", "", "is missing"),
    ("a blank group", "group.id", " ", "is missing"),
    ("instance id by hand", "group.instance.id", "a", "leave it out"),
    ("a library to load", "plugin.library.paths", "/tmp/x.so", "loads a library"),
    ("a path among providers", "ssl.providers", "default,/tmp/x.so", "loads a library"),
    ("providers unseen", "ssl.providers", "${env:X:/tmp/x.so}", "name providers"),
    ("code to run", "sasl.oauthbearer.callback", "os:system", "entry point"),
    ("a command in a principal", "sasl.kerberos.principal", "me; touch /tmp/x", "command line"),
    ("an option of kinit", "sasl.kerberos.principal", "-X", "as user/host@REALM"),
    ("a command in a path", "sasl.kerberos.keytab", '/k"$(touch /tmp/x)"', "command line"),
    ("a command in the name of a service", "sasl.kerberos.service.name", "kafka`id`", "command line"),
    ("a program to run", "sasl.kerberos.kinit.cmd", "true", "command line"),
    ("Java property", "max.poll.records", 5, "max_poll_records"),
    ("unknown assignor", "partition.assignment.strategy", "stricky", "knows range"),
    ("assignor of KIP-848 in a classic group", "group.remote.assignor", "range", "write partition.assignment.strategy"),
    ("secret in clear", "sasl.password", "hunter22", "${env:NAME}"),
    ("bad reference", "sasl.password", "${evn:PW}", "${env:NAME}"),
]
BAD: list[tuple[str, dict[str, Any], str, str]] = [
    ("unknown key", {"memebrs": 2}, "memebrs", 'Did you mean "members"?'),
    ("unknown key, nothing near", {"zzz": 2}, "zzz", "Keys here: "),
    ("unknown nested key", {"trigger": {"perod": "5s"}}, "trigger.perod", 'Did you mean "period"?'),
    ("unknown key of a table", {"tables": [{**TABLE, "pth": "x"}]}, "tables[0].pth", 'Did you mean "path"?'),
    ("wrong type", {"members": "two"}, "members", "must be a whole number, not 'two'"),
    ("a bool is not a number", {"members": True}, "members", "must be a whole number, not True"),
    ("no members", {"members": 0}, "members", "at least 1"),
    ("specific offset", {"start": {"offset": 17}}, "start", "a specific offset cannot be the start of a group"),
    ("specific offset as position", {"start": {"position": 17}}, "start.position", "a specific offset"),
    ("specific offset as start", {"start": 17}, "start", "a specific offset"),
    ("unknown position", {"start": {"position": "begining"}}, "start.position", 'Did you mean "beginning"?'),
    ("two positions", {"start": {"position": ["beginning", "end"]}}, "start.position", "two start positions"),
    ("a position and a timestamp", {"start": {"position": "end", "timestamp": 5}}, "start", "two start positions"),
    ("two positions, one in kafka", kafka(auto__offset__reset="latest"), "", "two start positions"),
    ("timestamp missing", {"start": {"position": "timestamp"}}, "start", "needs a timestamp"),
    (
        "a timestamp in figures of another kind",
        {"start": {"position": "timestamp", "timestamp": "²"}},
        "start.timestamp",
        "ISO 8601",
    ),
    (
        "a timestamp past all",
        {"start": {"position": "timestamp", "timestamp": 10**20}},
        "start.timestamp",
        "beyond the range of Kafka's timestamps",
    ),
    ("a home of nobody", {"storage": "~nobody-here/segments"}, "storage", "a home folder that is not known here"),
    (
        "a secret in a home of nobody",
        kafka(ssl__ca__location="${file:~nobody-here/ca}"),
        "kafka",
        "a home folder that is not known here",
    ),
    ("bad timestamp", {"start": {"position": "timestamp", "timestamp": "noon"}}, "start.timestamp", "ISO 8601"),
    ("adopt without default", {"start": {"adopt": "abc"}}, "start", "position: default"),
    ("negative period", {"trigger": {"period": "-60s"}}, "trigger.period", "must not be negative"),
    ("zero period", {"trigger": {"period": 0}}, "trigger", "period must be above 0"),
    ("unit", {"trigger": {"period": "60 parsecs"}}, "trigger.period", "units are ms, s, m"),
    ("empty trigger", {"trigger": {}}, "trigger", "{period: 60s}"),
    ("manual and tuples", {"trigger": {"manual": True, "tuples": 5}}, "trigger", "choose one"),
    ("zero tuples", {"trigger": {"tuples": 0}}, "trigger", "above 0"),
    ("group.id missing", {"kafka": {"bootstrap.servers": "x"}}, "kafka.group.id", "is missing"),
    (
        "property misspelt",
        {"kafka": {"bootstrap.server": "x", "group.id": "g"}},
        "kafka.bootstrap.server",
        "bootstrap.servers",
    ),
    (
        "underscores",
        {"kafka": {"bootstrap_servers": "x", "group.id": "g"}},
        "kafka.bootstrap_servers",
        '"bootstrap.servers"',
    ),
    (
        "assignor of KIP-848",
        kafka(group__protocol="consumer", partition__assignment__strategy="range"),
        "kafka.partition.assignment.strategy",
        "group.remote.assignor",
    ),
    (
        "protocol type with KIP-848",
        kafka(group__protocol="consumer", group__protocol__type="consumer"),
        "kafka.group.protocol.type",
        "leave it out",
    ),
    (
        "timeouts",
        kafka(session__timeout__ms=6000, heartbeat__interval__ms=6000),
        "kafka.heartbeat.interval.ms",
        "below session",
    ),
    ("nested property", {"kafka": {**GOOD["kafka"], "sasl": {"password": "hunter22"}}}, "kafka.sasl", "must be text"),
    ("no topics", {"topics": None}, "", "name topics: [orders], or a pattern"),
    ("empty topics", {"topics": []}, "topics", "must name a topic"),
    ("topics and pattern", {"pattern": "^a"}, "", "choose one"),
    ("topics no list", {"topics": "orders"}, "topics", "must be a list"),
    ("topic twice", {"topics": ["a", "a"]}, "topics", "'a' is listed twice"),
    ("no topic name", {"topics": ["a b"]}, "topics", "not a topic name"),
    ("bad regex", {"topics": None, "pattern": "^(a"}, "pattern", "not a regular expression"),
    (
        "digits as Perl has them",
        {"topics": None, "pattern": r"^shop\.\d+"},
        "pattern",
        "Kafka's client or broker reads otherwise",
    ),
    ("pattern without ^", {"topics": None, "pattern": "shop.*"}, "pattern", "must begin with ^"),
    ("table format", {"tables": [{**TABLE, "format": "orc"}]}, "tables[0].format", "one of delta, iceberg"),
    ("table twice", {"tables": [TABLE, TABLE]}, "tables", "two tables are called 'bronze'"),
    ("region name", {"region": "or ders"}, "region", "not a name"),
    ("missing region", {"region": None}, "region", "is missing"),
    ("path as control plane", {"control_plane": "var/x.db"}, "control_plane", "sqlite:///var/x.db"),
    ("two slashes", {"control_plane": "sqlite://var/x.db"}, "control_plane", "three slashes"),
    ("SQLite in memory", {"control_plane": "sqlite://"}, "control_plane", "cannot be shared"),
    ("password in a URL", {"control_plane": "postgresql://u:hunter22@db/x"}, "control_plane", "${env:NAME}"),
    ("host", {"host": "local[4]"}, "host", '{spark: "local[4]"}'),
    ("host of two kinds", {"host": {"spark": "local[4]", "processes": True}}, "host", "either"),
    ("no Spark master", {"host": {"spark": "sprak://x"}}, "host", "no Spark master"),
    ("SQLite with a cluster", {"host": {"spark": "spark://big:7077"}}, "", "cannot share a SQLite file"),
    ("disk with a cluster", {**PG, "host": {"spark": "spark://big:7077"}}, "", "do not see the folder of storage"),
    ("disk with Connect", {**PG, "host": {"spark": "sc://big:15002"}}, "", "do not see the folder of storage"),
    (
        "table on disk with a cluster",
        {**PG, "storage": "s3://b/p", "tables": [TABLE], "host": {"spark": "yarn"}},
        "",
        "do not see the folder of table bronze",
    ),
    ("secret of storage", {"storage_options": {"secret_key": "hunter22"}}, "storage_options", "${env:NAME}"),
    (
        "secret of Spark",
        {"host": {"spark": "local[2]", "conf": {"fs.s3a.secret.key": "hunter22"}}},
        "host",
        "${env:NAME}",
    ),
    (
        "Dagster's keys in a file of its own",
        {"dagster": {"group": "x"}},
        "dagster",
        "of a Dagster component (defs.yaml)",
    ),
    ("retain nothing", {"retain": 0}, "retain", "at least 1"),
    ("size", {"queue_bytes": "lots"}, "queue_bytes", "a size such as"),
    ("commit", {"commit": "consistant"}, "commit", 'Did you mean "consistent"?'),
    *[(what, kafka(**{key: value}), f"kafka.{key}", said) for what, key, value, said in PROPERTIES],
]


@pytest.mark.parametrize(("change", "key", "said"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_one_sentence_with_key_and_remedy(change: dict[str, Any], key: str, said: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        RegionConfig.parse({**GOOD, **change})
    (problem,) = caught.value.problems
    assert problem.key == key
    assert said in problem.text
    assert "\n" not in str(caught.value)
    assert "hunter22" not in str(caught.value), "a secret must not be in an error (SPEC U2)"
    assert isinstance(caught.value, ConfigError)
    assert caught.value.exit_code == 2


def test_several_problems_are_told_at_once() -> None:
    with pytest.raises(BadConfiguration) as caught:
        RegionConfig.parse({**GOOD, "memebrs": 2, "members": "two"})
    assert {p.key for p in caught.value.problems} == {"memebrs", "members"}


def test_error_names_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "region.yaml"
    file.write_text(
        "region: orders\nkafka:\n  bootstrap.servers: x\n  group.id: g\n  enable.auto.commit: true\ntopics: [a]\n"
    )
    with pytest.raises(BadConfiguration) as caught:
        RegionConfig.load(file)
    lines = {p.key: p.line for p in caught.value.problems}
    assert lines["kafka.enable.auto.commit"] == 5
    assert f"{file}:5: kafka.enable.auto.commit: must be false" in str(caught.value)
    assert {"control_plane", "storage"} <= set(lines)


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("start:\n  position: beginning\n  position: end\n", "two start positions, beginning and end", 3),
        ("members: 1\nmembers: 2\n", "members: is written twice", 2),
        ('a: 1\npattern: "^shop\\..*"\n', "write the value in single ones, as '^shop\\..*'.", 2),
        ("a: [1\nb: 2\n", "a [ is opened here and not closed", 1),
        ("", "is empty", 0),
        ("a: 1\nb: &b {c: [*b]}\n", "b.c.0: holds itself", 2),
        ("a: *b\n", "begins with * or ! needs quotation marks", 1),
        ("- 1\n", "must be a mapping", 0),
        (
            "a: 1\nkafka: {group.id: 007}\n",
            "kafka.group.id: YAML reads this as another number: write it in quotation marks",
            2,
        ),
        ("a: 12:30\n", "a: YAML reads this as another number", 1),
        ("a: 1\nb: 2026-02-30\n", "cannot be read as YAML here (day ", 2),
    ],
)
def test_bad_yaml(tmp_path: Path, text: str, said: str, line: int) -> None:
    file = tmp_path / "region.yaml"
    file.write_text(text)
    with pytest.raises(BadConfiguration) as caught:
        RegionConfig.load(file)
    assert said in str(caught.value)
    assert caught.value.problems[0].line == line


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no configuration file .*nowhere\.yaml"):
        RegionConfig.load(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("bootstrap.servers", "", "`bootstrap.servers` is missing"),
        ("group.id", " ", "`group.id` is missing"),
        ("partition.assignment.strategy", "sticky", "knows range, roundrobin, cooperative-sticky, not 'sticky'"),
        ("partition.assignment.strategy", "range,cooperative-sticky", "takes cooperative-sticky alone"),
        ("group.protocol", "kip848", "must be classic or consumer, not 'kip848'"),
        ("fetch.max.bytes", "64MB", "`fetch.max.bytes` must be a whole number, not '64MB'"),
        ("sasl.kerberos.principal", "a`id`", "`sasl.kerberos.principal` reaches a command line"),
        (
            "sasl.oauthbearer.callback",
            "os:system",
            "`sasl.oauthbearer.callback` names a function that a package declares",
        ),
    ],
)
def test_what_a_reference_resolves_to_is_checked_as_well(
    key: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIVEN", value)
    config = RegionConfig.parse({**GOOD, "kafka": {**GOOD["kafka"], key: "${env:GIVEN}"}})
    with pytest.raises(ConfigError, match=said):
        config.resolved_kafka()


def test_a_whole_number_that_is_written_with_a_point_is_one() -> None:
    config = RegionConfig.parse({**GOOD, **kafka(session__timeout__ms=45_000.0)})
    assert config.resolved_kafka()["session.timeout.ms"] == "45000"


def test_no_error_of_the_kafka_section_has_a_secret_in_it() -> None:
    secrets = {"sasl.password": "geheim22", "ssl.key.password": "geheim22"}
    for broken in ("true", "yes"):
        with pytest.raises(ConfigError) as caught:
            RegionConfig.parse({**GOOD, "kafka": {**GOOD["kafka"], **secrets, "enable.auto.commit": broken}})
        assert "geheim22" not in str(caught.value)


@pytest.mark.parametrize("value", [300_000, -1])
def test_a_slow_metadata_refresh_is_warned_of(value: int) -> None:
    config = RegionConfig.parse({**GOOD, **kafka(topic__metadata__refresh__interval__ms=value)})
    (said,) = config.warnings()
    assert f"topic.metadata.refresh.interval.ms={value} is replaced by 2000" in said


def test_short_poll_interval_is_warned_of() -> None:
    config = RegionConfig.parse({**GOOD, **kafka(max__poll__interval__ms=60_000)})
    assert "max.poll.interval.ms=60000" in config.warnings()[0]
    assert RegionConfig.parse(GOOD).warnings() == []
