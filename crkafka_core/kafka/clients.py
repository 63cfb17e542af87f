"""Makes Kafka clients, with tokens from a function, and credentials that are read again from their files; and keeps their log short.

librdkafka's log lines, each kind at most every ten seconds: an absent broker writes many a second (docs/clients.md C-R12). Lines that
repeat a message of ours are DEBUG: `CRKAFKA_LOG=DEBUG` shows them.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import entry_points
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from crkafka_core.config import resolving
from crkafka_core.config.kafka_section import CALLBACK
from crkafka_core.config.problem import nearest
from crkafka_core.kafka.errors import KafkaUnavailable, NotAllowed, error_of
from crkafka_core.kafka.native.library import report_errors
from crkafka_core.model.errors import ConfigError, CrkafkaError

TOKENS = "crkafka.oauthbearer"
"""Group of entry points of token functions. One is called with `sasl.oauthbearer.config` and returns a token and its expiry in seconds
since 1970 (and a principal and a mapping of extensions, if the broker wants them). Only functions that an installed package declares
are called: a line of configuration runs no other code."""
_CREDENTIALS = ("sasl.username", "sasl.password")
_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.keystore.location")
_LOGIN = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}
_STILL_OLD = 10.0
"""Seconds after a renewal in which connections with the old credentials may still be refused."""
_MILLISECONDS = 1e11
"""An expiry from here on is in milliseconds: in seconds it would be the year 5138."""
EVERY = 10.0
_SLOW = ("REQTMOUT", "SESSTMOUT")
"""Timeouts of a request or a session. Our own lines report both, as the caller's error or as "Kafka does not answer": these are INFO."""
_AWAY = re.compile(
    r"FAIL .*: (Connect to \S+ failed: |Connection setup timed out|Disconnected( \(|$)|\d+ request\(s\) timed out: disconnect)"
)
"""A connection that was refused, cut or not answered: also reported as an error with the broker's name, so these lines are DEBUG.
Lines about host names, TLS and logins have more detail than our errors and keep their level."""
_NUMBERS = re.compile(r"\d+")
_BROKER = re.compile(r", at broker \S+(?=\))")
"""The same outage is reported with the broker's name, and again without it."""
_log = logging.getLogger(__name__)

T = TypeVar("T")
OnError = Callable[[KafkaError], None]


class Throttle(logging.Filter):
    """Lets a line pass if no line of its kind (equal but for numbers) passed within `EVERY` seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, float] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now = _NUMBERS.sub("0", _BROKER.sub("", record.getMessage()))[:200], time.monotonic()
        with self._lock:
            if now - self._seen.get(kind, -EVERY) < EVERY:
                return False
            if len(self._seen) > 200:
                self._seen.clear()
            self._seen[kind] = now
        return True


def _set_level(record: logging.LogRecord) -> bool:
    """Lower the level of lines that repeat ours; whether the new level is shown."""
    line = record.getMessage()
    level = logging.INFO if line.startswith(_SLOW) else logging.DEBUG if _AWAY.match(line) else record.levelno
    record.levelno, record.levelname = level, logging.getLevelName(level)
    return client_log.isEnabledFor(level)


client_log = logging.getLogger("crkafka_core.kafka.client")
client_log.addFilter(_set_level)
client_log.addFilter(Throttle())


def consumer(properties: Mapping[str, str], on_error: OnError = lambda _: None) -> Consumer:
    """A consumer; errors of its connections reach `on_error`, on the thread that polls."""
    return _client(Consumer, properties, on_error)


def admin(properties: Mapping[str, str], on_error: OnError = lambda _: None) -> AdminClient:
    """A client that only asks."""
    return _client(AdminClient, properties, on_error)


def _client(kind: Callable[..., T], properties: Mapping[str, str], on_error: OnError) -> T:
    # Credentials that were resolved at the start of the process may be outdated: a short-lived client has no time to be refused first.
    now = {name: resolving.read_again(properties[name], kafka=True) for name in _CREDENTIALS if name in properties}
    settings: dict[str, Any] = {**properties, **now}
    renewal = settings["error_cb"] = _Renewal(settings, on_error)
    if CALLBACK in settings:
        settings["oauth_cb"] = _with_first_token(settings.pop(CALLBACK), settings.get("sasl.oauthbearer.config"))
    try:
        client = kind(settings, logger=client_log)
    except (KafkaException, SystemError) as error:
        # A failing constructor calls `error_cb` while its own exception is set, and the call raises SystemError from it.
        why = error.__cause__ if isinstance(error, SystemError) else error
        if not isinstance(why, KafkaException):
            raise
        raise _refused(properties, why.args[0].str()) from error
    # A weak reference, so that an admin client ends with its last user. A consumer has no weak references, and is closed.
    renewal.client = weakref.ref(client) if isinstance(client, AdminClient) else lambda: client
    if isinstance(client, Consumer):
        renewal.native = report_errors(client, renewal)
    return client


def _refused(properties: Mapping[str, str], reason: str) -> ConfigError:
    """The error for properties that the client refuses, with our own text for a missing file or mechanism."""
    for name, value in properties.items():
        if name.endswith(".location") and name in reason and not Path(value).is_file():
            return ConfigError(
                f"kafka.{name}: there is no file {value}.", hint="Put it there, on each machine that connects."
            )
    if "GSSAPI" in reason and not {"sasl.mechanism", "sasl.mechanisms"} & properties.keys():
        return ConfigError(
            "kafka.sasl.mechanism is missing, and this client has no GSSAPI, which it would take then.",
            hint="Write PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.",
        )
    reason = re.sub(r"^Failed to create (admin client|consumer): ", "", reason).strip()
    return ConfigError(f"kafka: {reason}.", hint="Mend the property.")


def _with_first_token(where: str, config: Any) -> Callable[[str], Any]:
    """The token function, called once already: a client whose first token fails may end the process (docs/clients.md C-K32)."""
    token = token_function(where)
    try:
        first = [token(config)]
    except Exception as error:
        raise KafkaUnavailable(
            f"{where}, the `{CALLBACK}`, gave no token.", hint="The log has its exception; it is called again."
        ) from error
    return lambda config: first.pop() if first else token(config)


def token_function(where: str) -> Callable[[str], Any]:
    """The token function `where` names. Its tokens are redacted from then on, and its exceptions logged."""
    declared = {point.name: point for point in entry_points(group=TOKENS)}
    if where not in declared:
        raise ConfigError(
            f"kafka: `{CALLBACK}` names {where}, which no installed package declares as an entry point of the group "
            f"{TOKENS}.{nearest(where, declared)}",
            hint="Install the package that does, wherever members run.",
        )
    try:
        function = declared[where].load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"kafka: {where}, the `{CALLBACK}`, is {declared[where].value}, which is not here: {error}.",
            hint="Mend the package that declares it.",
        ) from error
    if not callable(function):
        raise ConfigError(f"kafka: {where}, the `{CALLBACK}`, is not a function.")

    def token(config: str) -> Any:
        try:
            given = function(config)
            _check_token(given)
            resolving.remember_token(given[0])
        except Exception as error:
            _log.error("%s gave no token: %s: %s", where, type(error).__name__, error)
            raise
        return given

    return token


def _check_token(given: Any) -> None:
    """Raise for a token that the client would refuse without a log line. The error never contains the token."""
    if not (isinstance(given, tuple) and len(given) >= 2 and isinstance(given[0], str) and isinstance(given[1], Real)):
        raise TypeError("it has to return (token, second since 1970 at which it ends)")
    ends = float(given[1])
    if ends >= _MILLISECONDS:
        raise ValueError("it returns the token's end in milliseconds, not in seconds: it would never be renewed")
    if ends <= time.time():
        raise ValueError("the token that it returned has ended already")


class _Renewal:
    """An `on_error` that repeats a refused login with the credentials that their files contain now. Open connections keep their
    credentials, so the files are read only after a refusal. A client cannot exchange its certificate: its process fails, and the next one
    makes a new client."""

    def __init__(self, properties: Mapping[str, str], on_error: OnError) -> None:
        self.client: Callable[[], Any] = lambda: None
        self.native: Any = None
        self._on_error = on_error
        self._given = [properties.get(name, "") for name in _CREDENTIALS]
        self._used = list(self._given)
        self._patient_until = 0.0
        self._files = [Path(properties[name]) for name in _FILES if name in properties]
        self._stamps = self._stamped()

    def __call__(self, error: KafkaError) -> None:
        if error.code() in _LOGIN and (self._login_again() or time.monotonic() < self._patient_until):
            return
        self._on_error(error)
        if self._stamped() != self._stamps:
            self._on_error(
                KafkaError(KafkaError._FATAL, "the certificate in its file was renewed, which takes a new client")
            )

    def _login_again(self) -> bool:
        now = [resolving.read_again(value, kafka=True) for value in self._given]
        if now == self._used:
            return False
        self._used, self._patient_until = now, time.monotonic() + _STILL_OLD
        # On a thread of its own: a call of a client inside its own callback ends the process.
        threading.Thread(target=self._set, args=now, name="crkafka-credentials", daemon=True).start()
        _log.warning("Kafka refused the login; trying again with the credentials that their file contains now")
        return True

    def _set(self, user: str, password: str) -> None:
        with suppress(RuntimeError):  # closed meanwhile
            if (client := self.client()) is not None:
                client.set_sasl_credentials(user, password)

    def _stamped(self) -> list[tuple[int, int]]:
        stamps = []
        for file in self._files:
            with suppress(OSError):
                status = file.stat()
                stamps.append((status.st_ino, status.st_mtime_ns))
        return stamps


class AdminConnection:
    """An admin client with typed errors, which also have the reason of a refused connection. Safe to use from several threads."""

    def __init__(self, properties: dict[str, str]) -> None:
        self._properties = properties
        self.bootstrap = properties["bootstrap.servers"]
        self._refusal: KafkaError | None = None
        self._lock = threading.Lock()
        self._client = self._new_client()

    def _new_client(self) -> AdminClient:
        return admin(self._properties, self._on_error)

    def _call(self, what: str, call: Callable[[], T], *, raw: bool = False) -> T:
        """Run a call and convert its errors; `raw` passes on a KafkaException that the caller examines."""
        try:
            return call()
        except KafkaException as error:
            if raw:
                raise
            raise self._typed(error, what) from error
        except TimeoutError as error:
            raise KafkaUnavailable(f"Kafka at {self.bootstrap} did not answer {what} in time.") from error

    def _typed(self, error: KafkaException, what: str) -> CrkafkaError:
        """The typed error. A refused client reconnects and times out; only the error callback has the reason."""
        typed = error_of(error, f"{what} at {self.bootstrap}")
        if isinstance(typed, KafkaUnavailable):
            self._client.poll(0)
            with self._lock:
                refusal, self._refusal = self._refusal, None
            if refusal is not None:
                return error_of(refusal, f"{what} at {self.bootstrap}")
        return typed

    def _on_error(self, error: KafkaError) -> None:
        if isinstance(error_of(error, "connecting"), NotAllowed) or "SSL" in error.str():
            with self._lock:
                self._refusal = error
