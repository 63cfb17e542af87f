"""Decoding by a schema registry: an outage is no bad record, and a bad record no outage (faults 46, 80)."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import socket
import socketserver
import struct
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from crkafka_core.decode.batch import Columns
from crkafka_core.decode.decoders import Avro, Decoder, Undecodable
from crkafka_core.decode.registry import Registry, RegistryAway
from crkafka_core.model.errors import ServiceUnavailable
from tests.decode.test_decoding import batch_of, decoded
from tests.rigs.schema_registry import FakeRegistry

SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
VALUE = b"\0" + struct.pack(">I", 7) + b"\x02"
ID = pa.struct([("id", pa.int64())])


@pytest.mark.parametrize(
    "outage",
    [
        (500, {}),
        (503, b"<html>"),
        (401, {}),
        (403, {}),
        (429, {}),
        (404, b"<html>not here"),
        (200, b"<html>login"),
        (200, {"x": 1}),
        (200, []),
        (200, {"schema": None}),
        (200, {"schema": SCHEMA}),
    ],
)
def test_a_registry_that_does_not_serve_is_an_outage_and_no_bad_record(
    registry: FakeRegistry, outage: tuple[int, Any]
) -> None:
    registry.answers["/schemas/ids/7"] = [outage]
    columns = Columns("value", Avro(registry=registry.url, patience=0.8), ID)
    with pytest.raises(RegistryAway, match="does not serve schemas"):
        columns.decode(batch_of([VALUE]))
    assert len(registry.asked) >= 2
    registry.answers["/schemas/ids/7"] = [outage, (200, {"schema": json.dumps(SCHEMA)})]
    result, reasons = Columns("value", Avro(registry=registry.url), ID).decode(batch_of([VALUE, VALUE]))
    assert (result.to_pylist(), reasons) == ([{"id": 1}, {"id": 1}], [None, None])


def test_an_answer_that_is_cut_off_is_an_outage() -> None:
    """As of a proxy that is drained: it names no code, so it says nothing of the schema."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    with server.accept()[0] as asking:
                        asking.recv(65_536)
                        asking.sendall(b'HTTP/1.1 404 Not Found\r\nContent-Length: 60\r\n\r\n{"error_c')

        threading.Thread(target=answer, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(RegistryAway, match="does not serve schemas"):
            Columns("value", Avro(registry=url, patience=0.1), ID).decode(batch_of([VALUE]))


def test_an_id_that_no_registry_can_have_is_a_bad_record_and_not_asked_for(registry: FakeRegistry) -> None:
    """Ids are Java's `int`: for a greater one the answer is the 404 of a page that is not there, as if the registry were away."""
    registry.answers["/schemas/ids/7"] = [(200, {"schema": json.dumps(SCHEMA), "references": None})]
    result, reasons = Columns("value", Avro(registry=registry.url), ID).decode(
        batch_of([VALUE, b"\0\xff\xff\xff\xff\x01"])
    )
    assert result.to_pylist()[0] == {"id": 1}
    assert reasons == [None, "no registry has a schema of the id 4294967295"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("5", "cannot be read as Avro"),
        ("null", "cannot be read as Avro"),
        ('{"type": "record"}', "cannot be read as Avro"),
        ('"string"', "an Avro str, not a record"),
    ],
)
def test_a_schema_that_is_no_record_is_asked_for_once(registry: FakeRegistry, text: str, why: str) -> None:
    registry.answers["/schemas/ids/7"] = [(200, {"schema": text})]
    _, reasons = Columns("value", Avro(registry=registry.url), ID).decode(batch_of([b"\0\0\0\0\7\2x"] * 3))
    assert len(registry.asked) == 1 and len(set(reasons)) == 1 and why in str(reasons[0])


@pytest.mark.parametrize("top", ["x.D", ["x.D"], ["null", "x.D"]])
def test_a_schema_that_is_but_a_reference_decodes(registry: FakeRegistry, top: Any) -> None:
    """Several kinds of events in one topic begin with a union of references."""
    inner = {"type": "record", "name": "D", "namespace": "x", "fields": [{"name": "id", "type": "long"}]}
    registry.answers["/subjects/D/versions/1"] = [(200, {"schema": json.dumps(inner)})]
    registry.answers["/schemas/ids/7"] = [
        (200, {"schema": json.dumps(top), "references": [{"name": "x.D", "subject": "D", "version": 1}]})
    ]
    branch = b"" if isinstance(top, str) else b"\0" if len(top) == 1 else b"\2"
    result, reasons = decoded([VALUE[:5] + branch + b"\2"], Avro(registry=registry.url, reader=json.dumps(inner)), ID)
    assert (result, reasons) == ([{"id": 1}], [None])


def test_what_refers_to_a_schema_that_was_deleted_softly_is_read_all_the_same(registry: FakeRegistry) -> None:
    gone = {"schema": json.dumps({"type": "record", "name": "D", "fields": [{"name": "v", "type": "int"}]})}
    fields = [{"name": "id", "type": "long"}, {"name": "d", "type": "D"}]
    referring = {
        "schema": json.dumps({"type": "record", "name": "Order", "fields": fields}),
        "references": [{"name": "D", "subject": "D", "version": 1}],
    }
    registry.answers["/schemas/ids/7"] = [(200, referring)]
    missing = (404, {"error_code": 40402})
    registry.answers["/subjects/D/versions/1"] = [missing]
    registry.answers["/subjects/D/versions/1?deleted=true"] = [(200, gone)]
    value, decoder = VALUE + b"\2", Avro(registry=registry.url, reader=json.dumps(SCHEMA))
    assert decoded([value], decoder, ID) == ([{"id": 1}], [None])
    registry.answers["/subjects/D/versions/1?deleted=true"] = [missing]  # deleted for good
    (_, (why,)) = decoded([value], decoder, ID)
    assert "refers to is gone" in str(why) and "D, version 1" in str(why)


LONG = "long"
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
MICROS, MILLIS = ({"type": LONG, "logicalType": f"timestamp-{unit}"} for unit in ("micros", "millis"))


@pytest.mark.parametrize(
    ("written", "latest", "raw", "kind", "read"),
    [
        (LONG, MICROS, 157766400000000, pa.timestamp("us", tz="UTC"), dt.datetime(1975, 1, 1, tzinfo=dt.UTC)),
        (LONG, MILLIS, 157766400000, pa.timestamp("us", tz="UTC"), dt.datetime(1975, 1, 1, tzinfo=dt.UTC)),
        (
            ["null", LONG],
            ["null", MICROS],
            157766400000000,
            pa.timestamp("us", tz="UTC"),
            dt.datetime(1975, 1, 1, tzinfo=dt.UTC),
        ),
        (MICROS, LONG, dt.datetime(1975, 1, 1, tzinfo=dt.UTC), pa.int64(), 157766400000000),
        (
            MILLIS,
            MICROS,
            dt.datetime(1975, 1, 1, tzinfo=dt.UTC),
            pa.timestamp("us", tz="UTC"),
            dt.datetime(1975, 1, 1, tzinfo=dt.UTC),
        ),
        ("int", {"type": "int", "logicalType": "date"}, 20_000, pa.date32(), dt.date(2024, 10, 4)),
        ("int", {"type": "int", "logicalType": "time-millis"}, 20_000, pa.string(), "00:00:20"),
        ("bytes", DECIMAL, b"\x04\xd2", pa.decimal128(38, 2), Decimal("12.34")),
        (
            {"type": "array", "items": LONG},
            {"type": "array", "items": MICROS},
            [0],
            pa.list_(pa.timestamp("us", tz="UTC")),
            [dt.datetime(1970, 1, 1, tzinfo=dt.UTC)],
        ),
    ],
)
def test_a_logical_type_that_came_or_went_says_what_older_records_mean(
    registry: FakeRegistry, written: Any, latest: Any, raw: Any, kind: pa.DataType, read: Any
) -> None:
    """To Avro they are the same number or bytes, so a registry lets it pass; a bare number would be taken for milliseconds."""
    writer_schema, now = (
        {"type": "record", "name": "Order", "fields": [{"name": "at", "type": each}]} for each in (written, latest)
    )
    registry.answers["/schemas/ids/7"] = [(200, {"schema": json.dumps(writer_schema)})]
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(writer_schema), {"at": raw})
    decoder = Avro(registry=registry.url, reader=json.dumps(now))
    result, reasons = decoded([VALUE[:5] + out.getvalue()], decoder, pa.struct([("at", kind)]))
    assert (result, reasons) == ([{"at": read}], [None])


def test_a_registry_that_is_away_is_an_outage(registry: FakeRegistry) -> None:
    registry.close()
    with pytest.raises(RegistryAway):
        Columns("value", Avro(registry=registry.url, patience=0.1), ID).decode(batch_of([VALUE]))


def test_an_id_that_the_registry_does_not_know_is_a_bad_record_and_asked_once(registry: FakeRegistry) -> None:
    result, reasons = Columns("value", Avro(registry=registry.url), ID).decode(batch_of([VALUE, VALUE, b"x"]))
    assert result.null_count == 3
    assert reasons[:2] == ["the schema registry knows no schema 7"] * 2 and "wire format" in str(reasons[2])
    assert len(registry.asked) == 1


def test_credentials_are_resolved_where_the_registry_is_asked(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.answers["/schemas/ids/7"] = [(200, {"schema": json.dumps(SCHEMA)})]
    decoder = Avro(registry="${env:REG_URL}", user="me:${env:REG_PASSWORD}")
    monkeypatch.setenv("REG_URL", registry.url)
    monkeypatch.setenv("REG_PASSWORD", "s3cret-word")
    assert "s3cret" not in repr(decoder)
    decoded([VALUE], decoder, ID)
    assert registry.asked == [("/schemas/ids/7", "Basic " + base64.b64encode(b"me:s3cret-word").decode())]
    registry.asked.clear()
    decoded([VALUE], replace(decoder, user="", headers={"Authorization": "Bearer ${env:REG_PASSWORD}"}), ID)
    assert registry.asked == [("/schemas/ids/7", "Bearer s3cret-word")]


def test_a_schema_of_another_kind_is_a_bad_record(registry: FakeRegistry) -> None:
    registry.answers["/schemas/ids/7"] = [(200, {"schema": "syntax = ...", "schemaType": "PROTOBUF"})]
    _, reasons = decoded([VALUE], Avro(registry=registry.url), ID)
    assert reasons == ["the schema of its id is PROTOBUF, not Avro"]


def test_an_outage_inside_a_decoder_of_ones_own_fails_the_write() -> None:
    class Away(Decoder):
        def open(self, kind: pa.DataType) -> Any:
            def decode(value: bytes, _: str) -> dict[str, Any]:
                raise ConnectionResetError("gone") if value == b"x" else Undecodable("bad")

            return decode

    assert decoded([b"y"], Away(), ID)[1] == ["bad"]
    with pytest.raises(ConnectionResetError):
        decoded([b"x"], Away(), ID)


def test_a_login_in_the_url_of_a_registry_is_a_header_and_no_name_of_a_host(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """urllib takes it for a part of the host, and asks the name service for the password."""
    monkeypatch.setenv("CRK_LOGIN", "geheim@wort")
    registry.answers["/schemas/ids/7"] = [(200, {"schema": "x"})]
    url = registry.url.replace("://", "://me:${env:CRK_LOGIN}@")
    assert Registry(url).schema(7).text == "x"
    assert registry.asked[-1][1] == "Basic " + base64.b64encode(b"me:geheim@wort").decode()


def test_a_redirect_to_another_server_gets_no_credentials_and_gives_no_schema(registry: FakeRegistry) -> None:
    """Within the registry it is followed; elsewhere the login would have gone with it."""
    other = FakeRegistry()
    other.answers["/schemas/ids/7"] = registry.answers["/v1/schemas/ids/8"] = [(200, {"schema": "x"})]
    registry.answers["/schemas/ids/7"] = [(302, f"{other.url}/schemas/ids/7")]
    registry.answers["/schemas/ids/8"] = [(302, f"{registry.url}/v1/schemas/ids/8")]
    asked = Registry(registry.url, "me:geheim-1", patience=0)
    with pytest.raises(ServiceUnavailable, match=r"redirects to http://127\.0\.0\.1, which is not followed"):
        asked.schema(7)
    assert other.asked == []
    assert asked.schema(8).text == "x"
    other.close()


def test_an_answer_that_is_longer_than_any_schema_is_an_outage(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.answers["/schemas/ids/7"] = [(200, {"schema": "x" * 100})]
    monkeypatch.setattr(sys.modules[Registry.__module__], "LONGEST", 10)
    with pytest.raises(ServiceUnavailable, match=r"its answer is longer"):
        Registry(registry.url, patience=0).schema(7)


@pytest.mark.parametrize(
    "begins",
    [
        b"HTTP/1.1 200 OK\r\nX-Slow: ",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0",
        b"HTTP/1.1 404 Not Found\r\n\r\n",
        b'HTTP/1.1 200 OK\r\n\r\n{"schema": "',
    ],
    ids=["header", "chunk", "error", "body"],
)
def test_an_answer_of_which_a_byte_comes_now_and_then_is_an_outage(
    monkeypatch: pytest.MonkeyPatch, begins: bytes
) -> None:
    """No wait for the next byte is long; the table stood still for as long as the server liked."""
    monkeypatch.setattr(sys.modules[Registry.__module__], "SLOWEST", 0.3)

    class Dripping(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 16)
            end, byte = time.monotonic() + 5, begins
            with suppress(OSError):
                while time.monotonic() < end:
                    self.request.sendall(byte)
                    time.sleep(0.02)
                    byte = b"0"

    with socketserver.TCPServer(("127.0.0.1", 0), Dripping) as server:
        serving = threading.Thread(target=server.handle_request, daemon=True)
        serving.start()
        began = time.monotonic()
        with pytest.raises(ServiceUnavailable, match=r"its answer is not complete after 0 s|gives 404"):
            Registry(f"http://127.0.0.1:{server.server_address[1]}", patience=0).schema(7)
        assert time.monotonic() - began < 3
        serving.join(10)
