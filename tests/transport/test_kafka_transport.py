"""TLS, SASL and certificates of clients against a real Kafka: what is right connects, what is wrong is told in a sentence."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import ResourceType

from crkafka_core.cli import checks
from crkafka_core.kafka import clients
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.kafka.errors import KafkaFailed, KafkaUnavailable, NotAllowed, error_of
from crkafka_core.kafka.range_reader import RangeReader
from crkafka_core.model.errors import ConfigError, CrkafkaError
from crkafka_core.model.offsets import TP
from crkafka_core.model.redaction import redact_values
from crkafka_core.verify.kafka_again import KafkaAgain
from tests.rigs.configs import configured
from tests.rigs.until import until
from tests.transport import conftest
from tests.transport.conftest import Broker

pytestmark = pytest.mark.kafka
KINDS = ("TLS", "MTLS", "SCRAM", "OAUTH")
UNTIL_LOGIN = 3
"""Pieces that a client sends before it begins to log in: two for TLS, and the question which requests there are."""


@contextmanager
def admin(properties: dict[str, str], timeout: float = 5.0) -> Iterator[KafkaAdmin]:
    made = KafkaAdmin(properties, timeout=timeout)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_right_connects_with_every_client_that_we_have(broker: Broker, kind: str) -> None:
    properties = broker.properties(kind)
    with admin(properties) as asks:
        assert asks.cluster_id() == broker.cluster.cluster_id
        assert list(asks.topics(["orders"])) == ["orders"]
        assert asks.committed("nobody", [TP("orders", 0)]) == {}
        assert asks.watermarks([TP("orders", 0)]) == {TP("orders", 0): (0, 0)}
    with RangeReader(properties) as reads:
        assert list(reads.read(TP("orders", 0), 0, 0)) == []
    consumer = clients.consumer({**properties, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["orders"])
        until(lambda: consumer.poll(0.2) or consumer.assignment())
    finally:
        consumer.close()


def test_whoever_may_read_the_topic_and_the_group_may_do_all_that_is_needed(broker: Broker, tmp_path: Path) -> None:
    properties = {**broker.properties("SCRAM"), "sasl.username": "bob"}
    config = configured(tmp_path, topics=["few"], kafka={**properties, "sasl.password": "${env:ANY}"})
    config = config.model_copy(update={"kafka": properties})
    broker.password("first-word", "bob")
    broker.cluster.topics.create("few", 1)
    producer = Producer({"bootstrap.servers": broker.cluster.bootstrap})
    for value in (b"a", b"b"):
        producer.produce("few", value)
    assert producer.flush(20) == 0
    broker.let_read("bob", ResourceType.TOPIC, "few")
    with pytest.raises(NotAllowed, match="GROUP_AUTHORIZATION_FAILED"):
        checks.group(config, checks.Stored())
    broker.let_read("bob", ResourceType.GROUP, "g")
    assert checks.group(config, checks.Stored()) == "g, 0 members of this region in it"
    tp = TP("few", 0)
    with admin(properties) as asks:
        assert asks.committed("g", [tp]) == {}
        assert asks.cut_below({tp: (1, -1)}) == {}
    with RangeReader(properties) as reads:
        assert sum(batch.rows for batch in reads.read(tp, 0, 2)) == 2
    again = KafkaAgain(properties)
    assert again.read(tp, 0, 2)[0].num_rows == 2
    again.close()


WRONG: dict[str, tuple[str, dict[str, str | None], type[CrkafkaError], str]] = {
    "another authority": (
        "TLS",
        {"ssl.ca.location": "THEIRS/ca.pem"},
        NotAllowed,
        r"certificate verify failed.*Did the authority in `ssl\.ca\.location` sign",
    ),
    "another name in the certificate": (
        "OTHERHOST",
        {},
        NotAllowed,
        r"certificate verify failed.*is the broker's name, as `bootstrap\.servers`",
    ),
    "no file of the authority": (
        "TLS",
        {"ssl.ca.location": "/nowhere/ca.pem"},
        ConfigError,
        r"kafka\.ssl\.ca\.location: there is no file /nowhere/ca\.pem",
    ),
    "plain to a listener of TLS": (
        "TLS",
        {"security.protocol": "plaintext"},
        KafkaUnavailable,
        r"does not answer.*`bootstrap\.servers` and `security\.protocol` right\?",
    ),
    "TLS to a plain listener": (
        "PLAIN",
        {"security.protocol": "SSL"},
        KafkaUnavailable,
        r"ends the connection.*may take no TLS there",
    ),
    "a login to a plain listener": (
        "PLAIN",
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "ada",
            "sasl.password": "some-word",
        },
        NotAllowed,
        r"^Kafka takes no login at this listener \(.*`security\.protocol` is PLAINTEXT there",
    ),
    "no certificate of the client": (
        "MTLS",
        {"ssl.certificate.location": None, "ssl.key.location": None},
        KafkaUnavailable,
        r"ends the connection.*wants a certificate of this client.*`ssl\.certificate\.location`",
    ),
    "a certificate of the client by another authority": (
        "MTLS",
        {"ssl.certificate.location": "THEIRS/client.crt", "ssl.key.location": "THEIRS/client.key"},
        KafkaUnavailable,
        r"wants a certificate of this client that it knows",
    ),
    "a certificate without its key": ("MTLS", {"ssl.key.location": "THEIRS/client.key"}, ConfigError, r"key"),
    "a wrong password": (
        "SCRAM",
        {"sasl.password": "wrong-word"},
        NotAllowed,
        r"invalid credentials with SASL mechanism SCRAM-SHA-512.*Check the security properties",
    ),
    "an unknown user": ("SCRAM", {"sasl.username": "nobody"}, NotAllowed, r"invalid credentials"),
    "a mechanism that the listener lacks": (
        "SCRAM",
        {"sasl.mechanism": "PLAIN"},
        NotAllowed,
        r"Unsupported SASL mechanism: broker's supported mechanisms: SCRAM-SHA-512",
    ),
    "no login at all": ("SCRAM", {"security.protocol": "SSL"}, KafkaUnavailable, r"`security\.protocol` right\?"),
    "a function that is not there": (
        "OAUTH",
        {clients.CALLBACK: "nothing"},
        ConfigError,
        r"nothing, the `sasl\.oauthbearer\.callback`, is tests\.transport\.conftest:nothing, which is not here",
    ),
    "a name that no package declares": (
        "OAUTH",
        {clients.CALLBACK: "token"},
        ConfigError,
        r"names token, which no installed package declares .* crkafka\.oauthbearer\. Did you mean .tokens",
    ),
    "a package that is not there": ("OAUTH", {clients.CALLBACK: "elsewhere"}, ConfigError, r"No module named"),
    "what is not a function": ("OAUTH", {clients.CALLBACK: "no-function"}, ConfigError, r"is not a function"),
}


@pytest.mark.parametrize("code", [KafkaError._SSL, KafkaError._TRANSPORT])
def test_a_certificate_that_is_refused_is_told_by_whichever_code_it_comes(code: int) -> None:
    said = (
        "ssl://b:1/bootstrap: error:0A000086:SSL routines::certificate verify failed (after 7ms in state SSL_HANDSHAKE)"
    )
    refused = error_of(KafkaError(code, said), "in group g")
    assert type(refused) is NotAllowed
    assert "Did the authority in `ssl.ca.location` sign" in str(refused)


@pytest.mark.parametrize("more", ["", ": connecting to a PLAINTEXT broker listener?"])
def test_a_listener_without_tls_is_told_by_whichever_text_it_comes(more: str) -> None:
    said = f"ssl://b:1/bootstrap: Disconnected: SSL connection closed by peer{more} (after 8ms in state SSL_HANDSHAKE)"
    assert "It may take no TLS there" in str(error_of(KafkaError(KafkaError._TRANSPORT, said), "in group g"))
    later = "ssl://b:1/1: Disconnected: SSL connection closed by peer (after 8ms in state UP)"
    assert "Is the broker up" in str(error_of(KafkaError(KafkaError._TRANSPORT, later), "in group g"))


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told_in_a_sentence_without_a_secret(broker: Broker, name: str) -> None:
    kind, changes, error, said = WRONG[name]
    given = broker.properties(kind)
    for key, value in changes.items():
        if value is None:
            del given[key]
        else:
            given[key] = value.replace("THEIRS", str(broker.theirs.folder))
    with pytest.raises(error, match=said) as caught, admin(given, timeout=1.5) as asks:
        if "`security" not in said:  # there is a reason, and a busy broker may take longer than the question to give it
            until(lambda: asks._client.poll(0.1) or asks._refusal)
        asks.cluster_id()
    assert "-word" not in str(caught.value)


def test_a_connection_that_goes_away_during_its_login_is_no_refused_login(broker: Broker) -> None:
    """docs/clients.md C-K29: a broker that restarts, or is busy, must cost no member."""
    properties = broker.properties("SCRAM")
    target, heard = int(properties["bootstrap.servers"].rpartition(":")[2]), list[KafkaError]()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_end_in_login, args=(listener, target), daemon=True).start()
        there = {"bootstrap.servers": f"127.0.0.1:{listener.getsockname()[1]}"}
        consumer = clients.consumer({**properties, **there}, heard.append)
        try:
            until(lambda: consumer.poll(0.1) or any("mechanism handshake failed" in e.str() for e in heard))
        finally:
            consumer.close()
    assert KafkaError._AUTHENTICATION in [error.code() for error in heard]
    assert {type(error_of(error, "in group g")) for error in heard} == {KafkaUnavailable}


def _end_in_login(listener: socket.socket, target: int) -> None:
    """Pass on what a client sends up to its login, and end each connection there."""
    with suppress(OSError):
        while True:
            near, _ = listener.accept()
            with suppress(OSError), near, socket.create_connection(("127.0.0.1", target)) as far:
                threading.Thread(target=_pass_on, args=(far, near), daemon=True).start()
                for _ in range(UNTIL_LOGIN):
                    far.sendall(near.recv(1 << 16))
                near.recv(1 << 16)
                near.shutdown(socket.SHUT_RDWR)


def _pass_on(source: socket.socket, to: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(1 << 16):
            to.sendall(chunk)


def test_a_function_that_gives_no_token_is_named_and_what_it_raised_is_logged(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    given = {**broker.properties("OAUTH"), clients.CALLBACK: "no-token"}
    with pytest.raises(KafkaUnavailable, match=r"no-token, the `sasl\.oauthbearer\.callback`, gave no token"):
        KafkaAdmin(given)
    assert "PermissionError: the identity provider is closed" in caplog.text


def test_tokens_are_renewed_while_a_client_runs_and_are_secrets(broker: Broker) -> None:
    before = len(conftest.TOKENS)
    with admin(broker.properties("OAUTH")) as asks:
        asks.cluster_id()
        until(lambda: asks.cluster_id() and len(conftest.TOKENS) > before + 1)
        assert list(asks.topics(["orders"])) == ["orders"]
    assert conftest.TOKENS[-1] not in redact_values(f"refused: {conftest.TOKENS[-1]}")


def test_a_password_that_is_renewed_in_its_file_is_taken_without_a_restart(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker asks each connection for its login again; the old one is refused then."""
    file = tmp_path / "password"
    file.write_text("first-word\n")
    given = broker.properties("SCRAM")
    config = configured(tmp_path, kafka={**given, "sasl.password": f"${{file:{file}}}"})
    refused: list[Any] = []
    before = config.resolved_kafka()
    consumer = clients.consumer({**before, "group.id": "renewal"}, refused.append)
    try:
        consumer.subscribe(["orders"])
        until(lambda: consumer.poll(0.2) or consumer.assignment())
        broker.password("second-word")
        file.write_text("second-word\n")
        with caplog.at_level(logging.WARNING):
            until(lambda: consumer.poll(0.2) or "credentials that their file contains now" in caplog.text)
        until(lambda: consumer.poll(0.2) or _answers(consumer))
        assert not [error for error in refused if isinstance(error_of(error, "x"), NotAllowed)]
        caplog.clear()
        with admin(before) as asks:  # a new client of a process that began with the old one
            asks.cluster_id()
            assert asks.cut_below({TP("orders", 0): (0, -1)}) == {}
        assert "refused" not in caplog.text
    finally:
        consumer.close()
        broker.password("first-word")


def _answers(consumer: Any) -> bool:
    try:
        return bool(consumer.list_topics(timeout=1).topics)
    except KafkaException:
        return False


def test_a_certificate_that_was_renewed_in_its_file_makes_the_member_go_on_with_a_new_client(tmp_path: Path) -> None:
    """One that is refused, or cannot reach the broker, looks at its files; without a renewal nothing but the error is told."""
    for name in ("client.crt", "client.key"):
        (tmp_path / name).write_text("old")
    heard: list[Any] = []
    renewal = clients._Renewal({"ssl.certificate.location": str(tmp_path / "client.crt")}, heard.append)
    error = clients.KafkaError(clients.KafkaError._TRANSPORT, "ssl://b:1: SSL routines::alert expired certificate")
    renewal(error)
    assert heard == [error]
    (tmp_path / "new").write_text("new")
    (tmp_path / "new").replace(tmp_path / "client.crt")
    renewal(error)
    typed = error_of(heard[-1], "in group g")
    assert isinstance(typed, KafkaFailed) and "renewed" in str(typed)
