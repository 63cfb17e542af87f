"""What processes of a pool run in tests: decoders that end their process, functions of a user. It imports little: each start counts."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.decode.decoders import Decoder, Json
from crkafka_core.model.errors import ConfigError


@dataclass(frozen=True)
class Deadly(Decoder):
    """JSON, but the value `crash` ends the process, and `slow` is slow."""

    def open(self, kind: pa.DataType) -> Any:
        usual = Json().open(kind)

        def decode(value: bytes, topic: str) -> Mapping[str, Any]:
            if value == b"crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            if value == b"slow":
                time.sleep(30)
            return usual(value, topic)

        return decode


class Unlucky(Deadly):
    """The first two processes that decode the record `crash` are ended: with its batch, and when it is looked for."""

    def open(self, kind: pa.DataType) -> Any:
        usual = Json().open(kind)

        def decode(value: bytes, topic: str) -> Mapping[str, Any]:
            tries = Path(value.decode())
            for name in ("first", "second"):
                if not (tries / name).exists():
                    (tries / name).touch()
                    os.kill(os.getpid(), signal.SIGKILL)
            return usual(b'{"id": 1}', topic)

        return decode


def odd_and_even(records: pa.RecordBatch) -> Mapping[str, pa.RecordBatch]:
    odd = pc.equal(pc.bit_wise_and(records.column("offset"), 1), 1)
    return {"odd": records.filter(odd).select(["offset"]), "even": records.filter(pc.invert(odd)).select(["offset"])}


def ends(records: pa.RecordBatch) -> pa.RecordBatch:
    if records.num_rows > 1:
        os._exit(7)
    return records


def hangs(records: pa.RecordBatch) -> pa.RecordBatch:
    if records.num_rows > 1:
        time.sleep(60)
    return records


def tells_a_secret(records: pa.RecordBatch) -> pa.RecordBatch:
    if records.num_rows:
        raise ConfigError("no " + "canary-of-" + "a-worker", hint="nor " + "canary-of-" + "a-worker")
    return records
