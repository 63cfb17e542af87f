"""The columns of a raw table: Kafka's records as they came, each with the number of its checkpoint (SPEC K2, C8)."""

from __future__ import annotations

import pyarrow as pa

from crkafka_core.segments.batch import SEGMENT

RAW = pa.schema([field.with_nullable(True) for field in SEGMENT])
