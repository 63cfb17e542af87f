"""Client of a Confluent-compatible schema registry, for executors. A registry without an answer is an outage, never a bad record
(fault 80)."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, unquote, urlsplit

from crkafka_core.config.resolving import remember, resolve
from crkafka_core.config.secret import Url
from crkafka_core.config.typed import TypedConfig
from crkafka_core.model.errors import ConfigError, ServiceUnavailable

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

TIMEOUT = 10.0
"""Seconds to wait for the next bytes of an answer."""
LONGEST, SLOWEST = 16 << 20, 30.0
"""Most bytes of an answer, and seconds for a whole request: for all its connections, headers and redirects too."""
PATIENCE = 30.0
"""Seconds of retries without an answer before the write fails."""
_NO_SUCH_SUBJECT, _NO_SUCH_VERSION, _NO_SUCH_SCHEMA = 40401, 40402, 40403


class UnknownSchema(LookupError):
    """The registry answers, and has no schema with this id."""


class RegistryAway(ServiceUnavailable):
    """The registry gives no answer, or not a registry's. Reaction: the write fails and is retried; no record counts as bad."""


@dataclass(frozen=True)
class Schema:
    """A schema in the registry."""

    text: str
    kind: str = "AVRO"
    references: tuple[tuple[str, str, int], ...] = ()
    """(name, subject, version) of the schemas that it refers to."""
    version: int = 0
    """Version of its subject; 0 if it was read by its id."""

    def file(self) -> FileDescriptorProto:
        """The Protobuf file of a serialized schema; ValueError if it is none."""
        from google.protobuf import descriptor_pb2
        from google.protobuf.message import DecodeError

        try:
            return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(self.text, validate=True))
        except DecodeError as error:
            raise ValueError(str(error)) from error


@dataclass(frozen=True)
class Registry:
    """URL and credentials of a registry. References (`${env:NAME}`, `${file:path}`) are resolved by the process that connects."""

    url: str
    user: str = ""
    """`name:password`."""
    headers: Mapping[str, str] = field(default_factory=dict)
    patience: float = PATIENCE

    def schema(self, number: int, *, serialized: bool = False) -> Schema:
        """A schema by its id. `serialized`: as in `version`."""
        return self._get(f"/schemas/ids/{number}{'?format=serialized' if serialized else ''}")

    def version(self, subject: str, version: int | str, *, serialized: bool = False, deleted: bool = False) -> Schema:
        """A schema by subject and version, or `latest`. `serialized`: Protobuf as a descriptor in base64, not as source text.

        `deleted`: also a softly deleted one, which other schemas may still refer to.
        """
        asked = [*(["format=serialized"] if serialized else ()), *(["deleted=true"] if deleted else ())]
        return self._get(
            f"/subjects/{quote(subject, safe='')}/versions/{version}{'?' if asked else ''}{'&'.join(asked)}"
        )

    def of_table(self, typed: TypedConfig) -> Schema:
        """The present schema of a typed table."""
        assert typed.subject is not None  # checked with the configuration
        return self.version(typed.subject, typed.version or "latest", serialized=typed.protobuf is not None)

    def _get(self, path: str) -> Schema:
        """The answer, with retries for `patience` seconds."""
        end, wait = time.monotonic() + self.patience, 0.2
        while True:
            try:
                return self._ask(path)
            except RegistryAway:
                if time.monotonic() + wait > end:
                    raise
            time.sleep(wait)
            wait = min(2 * wait, 5.0)

    def _ask(self, path: str) -> Schema:
        url, request = self._request(path)
        with _Deadline(SLOWEST) as deadline:
            try:
                with deadline.opener.open(request, timeout=TIMEOUT) as answer:
                    return _schema(json.loads(_bounded(answer)))
            except urllib.error.HTTPError as error:
                code = _code(error) if error.code == 404 else 0
                # Of a missing subject some registries give the code of a missing schema.
                of_subject = path.startswith("/subjects/")
                if code in (_NO_SUCH_SUBJECT, _NO_SUCH_VERSION) or (of_subject and code == _NO_SUCH_SCHEMA):
                    what = path.partition("?")[0].removeprefix("/subjects/").replace("/versions/", ", version ")
                    raise ConfigError(
                        f"The schema registry at {url} has no subject {what}.",
                        hint="Register the schema, or name another subject or version.",
                    ) from None
                if code == _NO_SUCH_SCHEMA:
                    number = path.partition("?")[0].rpartition("/")[2]
                    raise UnknownSchema(f"the schema registry knows no schema {number}") from None
                raise _away(url, f"{path} gives {error.code} {error.reason}") from None
            except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError) as error:
                late = f"its answer is not complete after {SLOWEST:.0f} s" if deadline.passed else ""
                raise _away(url, f"{path}: {late or f'{type(error).__name__}: {error}'}") from None

    def _request(self, path: str) -> tuple[str, urllib.request.Request]:
        """The registry's URL without a login, which urllib would look up in DNS; and the request."""
        url = Url.of(resolve(self.url, "registry").rstrip("/"))
        pair = resolve(self.user, "registry.user.password") or unquote(url.userinfo.removesuffix("@"))
        place = url.before + url.host + url.path + url.parameters
        sent = {name: resolve(value, name) for name, value in self.headers.items()}
        if pair:
            remember(pair.partition(":")[2])
            sent["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        accept = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        return place, urllib.request.Request(place + path, headers=accept | sent)


class _SameServer(urllib.request.HTTPRedirectHandler):
    """Follows redirects only to the same server: another one would receive the credentials, and its schemas would be used."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        if (before.scheme, before.netloc) != (after.scheme, after.netloc):
            raise OSError(
                f"it redirects to {after.scheme}://{after.hostname}, which is not followed: name that in registry"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Deadline:
    """Ends the connections of one request at its deadline: a timeout of a socket begins again with each byte that comes."""

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._sockets: list[socket.socket] = []
        """Each a second descriptor, since TLS takes the first one over."""
        deadline = self

        class Http(urllib.request.HTTPHandler):
            def http_open(self, req: urllib.request.Request) -> HTTPResponse:
                return self.do_open(deadline._watched(HTTPConnection), req)

        class Https(urllib.request.HTTPSHandler):
            def https_open(self, req: urllib.request.Request) -> HTTPResponse:
                return self.do_open(deadline._watched(HTTPSConnection), req)

        self.opener = urllib.request.build_opener(_SameServer, Http, Https)

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        for each in self._sockets:
            each.close()

    def _watched(self, kind: type[HTTPConnection]) -> Any:
        def made(*args: Any, **options: Any) -> Any:
            connection: Any = kind(*args, **options)
            connection._create_connection = self._connect  # before the handshake of TLS
            return connection

        return made

    def _connect(self, *args: Any, **options: Any) -> socket.socket:
        made = socket.create_connection(*args, **options)
        self._sockets.append(made.dup())
        return made

    def _end(self) -> None:
        self.passed = True
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def _bounded(answer: HTTPResponse) -> bytes:
    """The whole answer, unless it is longer than any schema."""
    got = bytearray()
    while piece := answer.read1(1 << 16):
        got += piece
        if len(got) > LONGEST:
            raise ValueError(f"its answer is longer than {LONGEST >> 20} MiB")
    return bytes(got)


def _away(url: str, what: str) -> RegistryAway:
    return RegistryAway(
        f"The schema registry at {url} does not serve schemas: {what}.",
        hint="Nothing was written and no record was judged. Once it answers, the next write goes on; for 401 or 403 see its credentials.",
    )


def _code(error: urllib.error.HTTPError) -> int:
    try:
        return int(json.loads(error.read(1 << 16))["error_code"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return 0


def _schema(answer: Any) -> Schema:
    references = tuple((r["name"], r["subject"], int(r["version"])) for r in answer.get("references") or ())
    text = answer["schema"]
    if not isinstance(text, str):
        raise TypeError(f"its schema is a {type(text).__name__}, not a text")
    return Schema(text, str(answer.get("schemaType") or "AVRO"), references, int(answer.get("version") or 0))
