"""References stay references in everything that is written, and are resolved where somebody connects (SPEC U2)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crkafka_core.config import HostConfig, RegionConfig, redact
from crkafka_core.config.resolving import read_again, resolve
from crkafka_core.model.errors import ConfigError

CONFIG: dict[str, Any] = {
    "region": "orders",
    "control_plane": "postgresql+psycopg://crkafka:${env:CRK_DB_PASSWORD}@db/crkafka",
    "storage": "s3://bucket/prefix",
    "storage_options": {"secret_key": "${file:keys/s3}"},
    "kafka": {
        "bootstrap.servers": "${env:CRK_BROKERS:localhost:9092}",
        "group.id": "orders",
        "sasl.password": "${env:CRK_KAFKA_PASSWORD}",
    },
    "topics": ["orders"],
}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RegionConfig:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "s3").write_text("s3-geheimnis\n")
    monkeypatch.setenv("CRK_DB_PASSWORD", "db-geheimnis")
    monkeypatch.setenv("CRK_KAFKA_PASSWORD", "kafka-geheimnis")
    monkeypatch.delenv("CRK_BROKERS", raising=False)
    return RegionConfig.parse(CONFIG, base=tmp_path)


def test_resolved_where_somebody_connects(config: RegionConfig) -> None:
    resolved = config.resolve()
    assert resolved.control_plane == "postgresql+psycopg://crkafka:db-geheimnis@db/crkafka"
    assert resolved.storage_options == {"secret_key": "s3-geheimnis"}
    assert resolved.kafka["sasl.password"] == "kafka-geheimnis"
    assert resolved.kafka["bootstrap.servers"] == "localhost:9092"


def test_no_text_holds_a_secret(config: RegionConfig) -> None:
    texts = [config.to_json(), repr(config), str(config), repr(config.resolve()), str(config.model_dump())]
    assert not [t for t in texts if "geheimnis" in t]
    assert "${env:CRK_KAFKA_PASSWORD}" in config.to_json()


def test_a_file_is_named_by_its_absolute_path(config: RegionConfig, tmp_path: Path) -> None:
    assert config.storage_options["secret_key"] == f"${{file:{tmp_path}/keys/s3}}"


def test_a_missing_variable_names_itself_and_the_key(config: RegionConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CRK_KAFKA_PASSWORD")
    with pytest.raises(ConfigError, match=r"kafka\.sasl\.password needs the environment variable CRK_KAFKA_PASSWORD"):
        config.resolve()


def test_a_missing_file_names_itself_and_the_key(config: RegionConfig, tmp_path: Path) -> None:
    (tmp_path / "keys" / "s3").unlink()
    with pytest.raises(ConfigError, match=r"storage_options\.secret_key is to be read from .*keys/s3"):
        config.resolve()


def test_resolved_secrets_are_redacted_from_any_text(config: RegionConfig) -> None:
    config.resolve()
    text = redact("could not connect as crkafka with db-geheimnis; s3-geheimnis; kafka-geheimnis to localhost:9092")
    assert text == "could not connect as crkafka with ***; ***; *** to localhost:9092"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("postgresql+psycopg://me:pw@db/x refused", "postgresql+psycopg://me:***@db/x refused"),
        ("sasl.password=abc;sasl.username=me", "sasl.password=***;sasl.username=me"),
        ("{'ssl.key.password': 'abc', 'client.id': 'x'}", "{'ssl.key.password': ***, 'client.id': 'x'}"),
        ('"secret_key": "abc d"', '"secret_key": ***'),
        ("partition 3 of orders at 17:00", "partition 3 of orders at 17:00"),
        ("http://localhost:8080/path", "http://localhost:8080/path"),
    ],
)
def test_passwords_are_redacted_by_their_place(text: str, clean: str) -> None:
    assert redact(text) == clean


def test_what_is_no_secret_stays(config: RegionConfig) -> None:
    RegionConfig.parse(
        {
            **CONFIG,
            "kafka": {
                **CONFIG["kafka"],
                "ssl.key.location": "/keys/a",
                "sasl.oauthbearer.token.endpoint.url": "http://x",
            },
        }
    )


def test_what_a_file_has_now_is_not_taken_for_another_secret_of_the_same_value(tmp_path: Path) -> None:
    """Kafka's password and the database's were equal; only one of them is renewed."""
    kafka, database = tmp_path / "kafka", tmp_path / "database"
    for file, key in ((database, "control_plane"), (kafka, "kafka.sasl.password")):
        file.write_text("equal-word\n")
        assert resolve(f"${{file:{file}}}", key) == "equal-word"
    kafka.write_text("renewed-word\n")
    assert read_again("equal-word", kafka=True) == "renewed-word"
    assert read_again("equal-word", kafka=False) == "equal-word"
    kafka.unlink()
    assert read_again("equal-word", kafka=True) == "equal-word", "what cannot be read is as it was"


def test_a_token_in_the_address_of_spark_connect_is_shown_by_no_repr(
    config: RegionConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRK_TOKEN", "connect-geheimnis")
    host = HostConfig(spark="sc://connect:15002/;token=${env:CRK_TOKEN}")
    resolved = config.model_copy(update={"host": host}).resolve()
    assert "connect-geheimnis" in str(resolved.spark)
    assert "geheimnis" not in repr(resolved)


def test_a_file_is_utf_8_whatever_the_locale_of_the_process_that_reads_it(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("pässwort", encoding="utf-8")
    code = f"from crkafka_core.config.resolving import resolve; print(ascii(resolve('${{file:{tmp_path}/password}}', 'x')))"
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    said = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | locale, capture_output=True, text=True, timeout=60
    )
    assert said.stdout == "'p\\xe4sswort'\n", said.stderr
