"""Sections of a region's configuration: start, trigger, tables."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import BeforeValidator, Field, StrictBool, StrictInt, StrictStr, field_validator, model_validator

from crkafka_core.config.limit_keys import Seconds, seconds
from crkafka_core.config.location import in_catalog, store_of
from crkafka_core.config.problem import nearest
from crkafka_core.config.shapes import GOOD, RECORDS, SHAPE
from crkafka_core.config.topics import NO_TOPIC, check_pattern, is_topic
from crkafka_core.config.typed import STRICT, Typing

_KAFKAS = {"earliest": "beginning", "latest": "end"}
"""Kafka's name of a position → ours."""


def _refuse_offset(value: Any) -> None:
    """Refuse an offset as a start (SPEC S2): a number, or one of these keys."""
    words = value if isinstance(value, dict) else [str(value).strip().lower()]
    if any(word in ("offset", "offsets") or str(word).lstrip("-").isdigit() for word in words):
        raise ValueError(
            "a specific offset cannot be the start of a group: an offset belongs to one partition, and Kafka assigns those; "
            "use beginning, end, timestamp or default, or `crkafka reset --to` a checkpoint"
        )


def _position(value: Any) -> Any:
    if isinstance(value, list):
        raise ValueError(f"two start positions ({', '.join(map(str, value))}); a region has one: choose")
    _refuse_offset("offset" if isinstance(value, dict) else value)
    if isinstance(value, str) and value in _KAFKAS:
        raise ValueError(f"must be {_KAFKAS[value]}, as {value} is called here")
    return value


def _moment(value: Any) -> Any:
    """Milliseconds since 1970, from ISO 8601 or the number itself; no zone means UTC."""
    if isinstance(value, str):
        try:
            value = int(value) if value.strip().isdecimal() else dt.datetime.fromisoformat(value)
        except ValueError:
            text = f"must be ISO 8601 such as 2026-01-31T08:00:00Z, or milliseconds since 1970, not {value!r}"
            raise ValueError(text) from None
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day)
    if isinstance(value, dt.datetime):
        value = round((value if value.tzinfo else value.replace(tzinfo=dt.UTC)).timestamp() * 1000)
    if isinstance(value, int) and not 0 <= value < 2**63:
        raise ValueError("must not be before 1970" if value < 0 else "is beyond the range of Kafka's timestamps")
    return value


_POSITIONS = ("beginning", "end", "timestamp", "default")
Position = Annotated[Literal["beginning", "end", "timestamp", "default"], BeforeValidator(_position)]


class StartConfig(pydantic.BaseModel):
    """Start of partitions without a checkpoint."""

    model_config = STRICT

    position: Position = "beginning"
    """`beginning`, `end`, `timestamp`, or `default`: the group's committed offset, else `auto_offset_reset`."""
    timestamp: Annotated[StrictInt, BeforeValidator(_moment)] | None = None
    """For `position: timestamp`: ISO 8601 or milliseconds since 1970; past the end means the end."""
    new_partitions: Annotated[Literal["beginning", "end"], BeforeValidator(_position)] = "beginning"
    """Start of partitions that appear after the region's birth; `beginning` loses nothing."""
    auto_offset_reset: Literal["earliest", "latest", "error"] | None = None
    """For `position: default` without a committed offset; by default Kafka's `auto.offset.reset`, else `latest`."""
    adopt: StrictStr | None = None
    """Uid of a deleted region whose committed offsets and tables this one takes over; only with `default`."""

    @model_validator(mode="before")
    @classmethod
    def _shape(cls, value: Any) -> Any:
        _refuse_offset(value)
        if not isinstance(value, str):
            return value
        if (meant := _KAFKAS.get(value, value)) in _POSITIONS:
            raise ValueError(f"write {{position: {meant}}}")
        must = f"must be {{position: …}} with one of {', '.join(_POSITIONS)}"
        raise ValueError(f"{must}.{nearest(value, _POSITIONS)}".rstrip("."))

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.position == "timestamp" and self.timestamp is None:
            raise ValueError("position: timestamp needs a timestamp, such as 2026-01-31T08:00:00Z")
        two = f"two start positions, {self.position} and"
        if self.position != "timestamp" and self.timestamp is not None:
            raise ValueError(f"{two} a timestamp: choose one")
        if self.position != "default" and self.auto_offset_reset is not None:
            raise ValueError(f"{two} auto_offset_reset, which only `default` uses: choose one")
        if self.position != "default" and self.adopt is not None:
            raise ValueError("adopt takes over another region's committed offsets and needs position: default")
        return self


_TRIGGERS = "{period: 60s}, {tuples: 100000} or {manual: true}"


class TriggerConfig(pydantic.BaseModel):
    """Trigger of cuts: a period, a number of tuples (with a period as upper bound), or a person."""

    model_config = STRICT

    period: Seconds | None = None
    """Time since the last completed cut."""
    tuples: StrictInt | None = None
    """Number of submitted tuples since the last cut at which a member asks for one (operator-driven)."""
    manual: StrictBool = False
    """Cuts only by hand or by a bounded run."""

    @model_validator(mode="before")
    @classmethod
    def _shape(cls, value: Any) -> Any:
        if value == "manual":
            raise ValueError("write {manual: true}")
        if isinstance(value, str):
            try:
                seconds(value)
            except ValueError:
                raise ValueError(f"must be {_TRIGGERS}, not {value!r}") from None
            raise ValueError(f"write {{period: {value}}}")
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < inf:
            raise ValueError(f"write {{period: {value}s}} or {{tuples: {value}}}")
        if isinstance(value, int | float):
            raise ValueError(f"must be {_TRIGGERS}, not {value}")
        return value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.manual and (self.period is not None or self.tuples is not None):
            raise ValueError("manual: true goes with neither period nor tuples: choose one")
        if not self.manual and self.period is None and self.tuples is None:
            raise ValueError(f"is empty; write {_TRIGGERS}")
        if self.period is not None and self.period <= 0:
            raise ValueError(f"period must be above 0, not {self.period:g}")
        if self.tuples is not None and self.tuples <= 0:
            raise ValueError(f"tuples must be above 0, not {self.tuples}")
        return self

    @property
    def operator_driven(self) -> bool:
        """Whether members ask for cuts (SPEC V2); nothing is drained then (SPEC D1)."""
        return self.tuples is not None


_TRANSFORMED = re.compile(r"(?:(year|month|day|hour)\(|(bucket|truncate)\((\d{1,6}) *, *)([^()]+)\)")


@dataclass(frozen=True)
class PartitionField:
    """One entry of `partition_by`; `width` is of bucket and truncate."""

    column: str
    transform: str = "identity"
    width: int = 0


def parsed(text: str) -> PartitionField:
    """`day(timestamp)`, `bucket(16, key)`, `truncate(4, name)`, or a column."""
    if match := _TRANSFORMED.fullmatch(text):
        timely, sized, width, column = match.groups()
        if sized and not int(width):
            raise ValueError(f"{text} has no width; write {sized}(16, {column})")
        return PartitionField(column.strip(), timely or sized, int(width or 0))
    if "(" in text or "[" in text:
        write = "write year, month, day or hour of a column, as day(timestamp), bucket(16, key) or truncate(4, name)"
        raise ValueError(f"{text} is no transform; {write}")
    return PartitionField(text)


class ByValue(pydantic.BaseModel):
    """`each` by a value of the record: one of the two."""

    model_config = STRICT

    header: StrictStr | None = Field(None, min_length=1)
    """The value of this header, as text; of several headers of this name the last one counts."""
    field: StrictStr | None = Field(None, min_length=1)
    """The value of this field at the top of the record's JSON: a text, a whole number or a boolean."""


class TableConfig(Typing):
    """A declared table: it holds back retirement and follows resets."""

    name: StrictStr = Field(pattern=r"^([A-Za-z_]|\{topic\}|\{value\})([A-Za-z0-9_]|\{topic\}|\{value\}){0,127}$")
    """Letters, digits and underscores, `{topic}` with `each: topic`, `{value}` with another `each`; unique in the region."""
    each: Literal["topic"] | ByValue | None = None
    """`topic`: a table for each topic that the region reads, now or later. `{header: NAME}` or `{field: NAME}`: a table for each value."""
    most_tables: StrictInt | None = Field(None, ge=1, le=1_000)
    """With `each` by value: tables at most, 100 by default. Records with further values come into `dead_letters`."""
    except_: tuple[StrictStr, ...] | None = Field(None, alias="except", min_length=1)
    """With `each`: topics that have no such table, by name or by a pattern that begins with ^."""
    format: Literal["delta", "iceberg"] = "delta"
    """Format of the table: delta (default) or iceberg."""
    path: StrictStr
    """Folder, or `s3://bucket/prefix`; of Iceberg also its name in a catalog that `host.conf` names, as `main.bronze.orders`. With `each`
    it has `{topic}` or `{value}`."""
    shape: StrictStr | None = Field(default=None, pattern=r"^(arrow:)?[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")
    """`package.module:function`, which makes the table's rows from a checkpoint's as a DataFrame, row by row; used by all writers.
    `arrow:package.module:function` makes an Arrow batch from one, without Spark."""
    output: StrictStr | None = Field(default=None, pattern=r"^[A-Za-z_]\w{0,63}$")
    """Output of the shape for this table, if it has several: `good` (default), `dead`, or a name of its own."""

    mode: Literal["append", "upsert"] = "append"
    """`append`: a row for each record. `upsert`: the last record of each key, in a table with a shape or types."""
    keys: tuple[StrictStr, ...] | None = Field(None, min_length=1)
    """Key columns for `mode: upsert`; in a typed table always `kafka_key`, Kafka's own."""
    partition_by: tuple[StrictStr, ...] | None = Field(None, min_length=1)
    """Columns that the table is partitioned by, in Iceberg also `day(timestamp)`, `bucket(16, key)` and so on; by default none."""
    topics: tuple[StrictStr, ...] | None = Field(None, min_length=1)
    """Topics of the table's records; by default all of the region. With `each` also patterns, which begin with ^."""
    kept_fresh: StrictBool = True
    """Whether the region's host writes each checkpoint to the table at once; if not, your program or Dagster does."""

    @field_validator("format", mode="before")
    @classmethod
    def _format(cls, value: Any) -> Any:
        if value == "parquet":
            raise ValueError(
                'there is no Parquet table: segments are Parquet, and checkpoints(…) and format("crkafka") read them; '
                "a table is delta or iceberg, of Parquet files too, which the host writes without Java"
            )
        return value

    @field_validator("each", mode="before")
    @classmethod
    def _each(cls, value: Any) -> Any:
        if value in (None, "topic") or isinstance(value, ByValue):
            return value
        match {key: of for key, of in value.items() if of is not None} if isinstance(value, dict) else value:
            case ({"header": str(name)} | {"field": str(name)}) as by if name and len(by) == 1:
                return value
        raise ValueError("must be topic, or a value of the record: {header: NAME} or {field: NAME}")

    @model_validator(mode="before")
    @classmethod
    def _no_options(cls, value: Any) -> Any:
        if isinstance(value, dict) and "options" in value:
            raise ValueError(
                f"table {value.get('name', '')} has options of Spark's writer, which writes no table; set a property in the table itself "
                "(ALTER TABLE … SET TBLPROPERTIES), and leave options out"
            )
        return value

    @model_validator(mode="before")
    @classmethod
    def _implied(cls, value: Any) -> Any:
        """Defaults of `mode: upsert`: a typed table's key is Kafka's. The output `good` becomes the unnamed one, which is written last: a
        table with keys cannot be written again, and must not be ahead of the others."""
        if not isinstance(value, dict) or value.get("mode") != "upsert":
            return value
        implied: dict[str, Any] = {}
        if value.get("typed") is not None and value.get("keys") is None:
            implied["keys"] = ("kafka_key",)
        if value.get("output") == GOOD:
            implied["output"] = None
        return {**value, **implied}

    @field_validator("topics", "except_", mode="before")
    @classmethod
    def _one_pattern(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) and value.startswith("^") else value

    @field_validator("topics", "except_")
    @classmethod
    def _patterns(cls, topics: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for topic in topics or ():
            if topic.startswith("^"):
                check_pattern(topic)
            elif not is_topic(topic):
                raise ValueError(f"{topic!r} {NO_TOPIC}")
        return topics

    @model_validator(mode="after")
    def _check_mode(self) -> Self:
        if self.mode == "append":
            if self.keys is not None:
                raise ValueError(f"table {self.name} names keys, which are for mode: upsert")
            return self
        if self.typed is None and self.shape is None:
            raise ValueError(f"table {self.name} is of mode upsert, which is for tables with a shape or types")
        delta = self.format == "delta"
        if (delta and in_catalog(self.path)) or self.partition_by is not None or self.output is not None:
            raise ValueError(
                f"table {self.name} is of mode upsert: it takes the good rows, and has no partition_by; in Delta it lies at a path, "
                "since a rewind takes it back to an older version by its log"
            )
        if delta and not store_of(self.path).puts_new:
            raise ValueError(f"table {self.name} is of mode upsert, which needs a folder or s3://…")
        if self.typed is not None and self.keys not in (None, ("kafka_key",)):
            raise ValueError(
                f"table {self.name} is typed and kept by {', '.join(self.keys or ())}: a tombstone has no value, so that only Kafka's own "
                "key tells what it deletes; leave keys out, or give the table a shape"
            )
        if self.typed is None and self.keys is None:
            raise ValueError(f"table {self.name} is of mode upsert and names no keys; write keys: [id]")
        return self

    @property
    def partition_fields(self) -> tuple[PartitionField, ...]:
        """`partition_by`, understood."""
        return tuple(map(parsed, self.partition_by or ()))

    @model_validator(mode="after")
    def _check_partitions(self) -> Self:
        fields = self.partition_fields
        for field in fields:
            if field.transform != "identity" and self.format == "delta":
                raise ValueError(
                    f"table {self.name} names {field.transform}({field.column}) in partition_by: transforms are for Iceberg; "
                    "a Delta table is partitioned by columns"
                )
            if field.column.lower() == "crkafka_checkpoint":
                raise ValueError(
                    f"table {self.name} would be partitioned by checkpoint: each would be a partition for ever; leave partition_by out, "
                    "rows are found by that column anyway"
                )
            if [(f.column.lower(), f.transform) for f in fields].count((field.column.lower(), field.transform)) > 1:
                raise ValueError(f"table {self.name} names the column {field.column} twice in partition_by")
        return self

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.typed is None:
            for key in ("on_bad_record", "dead_letters"):
                if getattr(self, key) is not None and not (key == "dead_letters" and self.by_value):
                    write = "write typed: {json: schema.json}"
                    raise ValueError(f"table {self.name} has {key}, which is for typed tables; {write}")
        elif self.output is not None or self.shape not in (None, SHAPE + self.name):  # as `expanded` writes it
            raise ValueError(f"table {self.name} is typed and names a shape or its output: choose one")
        elif self.dead_letters is not None and self.on_bad_record not in (None, "dead_letter"):
            text = f"table {self.name} names dead_letters, and on_bad_record: {self.on_bad_record} keeps none"
            raise ValueError(text)
        if self.shape is not None and self.shape.startswith(RECORDS) and self.shape != RECORDS + self.name:
            raise ValueError(f"table {self.name} names a shape of crkafka's own; leave it out, topics is enough")
        if self.most_tables is not None and not self.by_value:
            text = f"table {self.name} names most_tables, which is for each: {{header: NAME}} or {{field: NAME}}"
            raise ValueError(text)
        if self.by_value:
            self._check_by_value()
        elif self.each is not None:
            self._check_template()
        elif "{" in self.name or self.except_ is not None:
            text = f"table {self.name} is one table, and names {{topic}}, {{value}} or except; write each: topic, or each: {{header: NAME}}"
            raise ValueError(text)
        elif any(topic.startswith("^") for topic in self.topics or ()):
            raise ValueError(f"table {self.name} takes topics by name; a pattern goes with each: topic")
        if self.output is not None and self.shape is None:
            write = "write shape: package.module:function"
            raise ValueError(f"table {self.name} names an output and no shape that gives it; {write}")
        return self

    @property
    def by_value(self) -> bool:
        """Whether it is a template of tables by a value of the record."""
        return isinstance(self.each, ByValue)

    def _check_by_value(self) -> None:
        """Refuse what the tables of such a template cannot have."""
        if "{value}" not in self.name or "{value}" not in self.path or "{topic}" in self.name + self.path:
            text = f"the tables of {self.name} need a name and a path each; write {{value}} in both, and no {{topic}}"
            raise ValueError(text)
        if self.except_ is not None or any(topic.startswith("^") for topic in self.topics or ()):
            write = "name topics one by one, and leave except out"
            raise ValueError(f"the tables of {self.name} are by a value of the record; {write}")
        if self.typed is not None or self.shape is not None or self.mode != "append" or not self.kept_fresh:
            raise ValueError(
                f"the tables of {self.name} have records as they are, and are kept fresh by the region's host; "
                "typed, shape, mode and kept_fresh are for other tables"
            )

    def _check_template(self) -> None:
        """Refuse what the tables of a template cannot have."""
        if "{topic}" not in self.name or "{topic}" not in self.path:
            raise ValueError(f"the tables of {self.name} need a name and a path each; write {{topic}} in both")
        if self.dead_letters is not None:
            raise ValueError(f"the tables of {self.name} have dead letters beside them, by their name and _dead")
        if self.shape is not None or self.mode != "append" or not self.kept_fresh:
            raise ValueError(
                f"the tables of {self.name} have records as they are, or typed ones, and are kept fresh by the region's host; "
                "shape, mode and kept_fresh are for tables that are declared one by one"
            )
