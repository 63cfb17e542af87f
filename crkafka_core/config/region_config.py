"""The configuration of a region (SPEC U3): one frozen model for YAML, Python and a Dagster component alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import AfterValidator, Field, StrictBool, StrictInt, StrictStr, field_validator, model_validator

from crkafka_core.config import address, catalogs, kafka_section, location, reference, secret, template, typed_tables
from crkafka_core.config.host_section import HostConfig
from crkafka_core.config.kafka_section import Scalar
from crkafka_core.config.limit_keys import MOST, LimitKeys, Seconds, Size
from crkafka_core.config.problem import BadConfiguration, KeyedError, Problem, problems_of
from crkafka_core.config.resolving import Resolved, resolve
from crkafka_core.config.sections import StartConfig, TableConfig, TriggerConfig
from crkafka_core.config.shapes import by_value, on_frames, topic_of
from crkafka_core.config.template import OfTopic
from crkafka_core.config.topics import checked_names, checked_pattern
from crkafka_core.config.typed import RegistryConfig
from crkafka_core.config.warnings import warnings
from crkafka_core.model.limits import MOST_MEMBERS, Limits

BATCH_TIMEOUT = 900.0
"""Seconds for one batch of records: far more than honest work takes, which only a person can tell from a function that hangs."""


class RegionConfig(LimitKeys):
    """A region's configuration, with absolute paths and references for secrets. Made with `load`, `parse` or `of`."""

    region: Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    """Name of the region."""
    region_index: StrictInt = Field(0, ge=-(2**31), lt=2**31)
    """The same for all members of a group; another one is refused."""
    control_plane: StrictStr
    """Database of the region: `sqlite:///var/crkafka.db` or `postgresql+psycopg://user:${env:PASSWORD}@host/db`."""
    storage: StrictStr
    """Where segments are stored: a folder, `s3://bucket/prefix`, `abfss://…` (Azure), `gs://…` (Google) or `hdfs://…`."""
    storage_options: dict[str, StrictStr] = Field(default_factory=dict)
    """Options of an object store, such as `endpoint` or `region`."""
    kafka: dict[str, Scalar]
    """`bootstrap.servers`, `group.id` and any other property of the client."""
    topics: Annotated[tuple[StrictStr, ...] | None, AfterValidator(checked_names)] = None
    """Topics by name; this or `pattern`."""
    pattern: Annotated[StrictStr | None, AfterValidator(checked_pattern)] = None
    """Topics by regular expression, beginning with ^; includes matching topics that are made later."""
    members: StrictInt = Field(1, ge=1, le=MOST_MEMBERS)
    """Wanted number of members."""
    # Defaults are not validated: that would build the model of each section besides that of the whole.
    start: StartConfig = StartConfig.model_construct()
    """Start of partitions that the region has not consumed yet."""
    trigger: TriggerConfig = TriggerConfig.model_construct(period=60.0)
    """When checkpoints are made."""
    commit: Literal["drain", "consistent"] = "drain"
    """When offsets are committed to Kafka: with the cut (`drain`), or after its merge (`consistent`)."""
    drain: Literal["flow", "stop"] = "flow"
    """Whether members go on while a cut is open, or stop until it is merged; with `trigger: {tuples: …}` they always stop."""
    data_loss: Literal["stop", "gap"] = "stop"
    """If Kafka no longer has needed records: stop the region, or record the gap and go on."""
    static_membership: StrictBool = True
    """A restarted member takes its partitions back without a rebalance."""
    registry: RegistryConfig | None = None
    """Schema registry of typed tables."""
    tables: tuple[TableConfig, ...] = ()
    """Tables that hold back retirement and follow resets."""
    host: HostConfig = HostConfig.model_construct(processes=True)
    """Who runs the members."""
    max_poll_records: StrictInt = Field(500, ge=1, le=1_000_000)
    """A hundredth of the records that the message queue holds at most."""
    queue_bytes: Size = Field(64 * 2**20, ge=2**16)
    """Bytes that the message queue holds at most."""
    segment_bytes: Size = Field(256 * 2**20, ge=2**16)
    """Size from which a member begins another segment."""
    batch_timeout: Seconds = Field(BATCH_TIMEOUT, gt=0)
    """Time for one batch of a table's records; a process that takes longer is ended, and the record looked for that holds it up."""
    ui_history: StrictInt = Field(20_000, ge=1, le=MOST)
    """Checkpoints that are kept as partitions in Dagster."""
    _templates: tuple[TableConfig, ...] = pydantic.PrivateAttr(())

    @classmethod
    def load(cls, path: Path | str, *, region: str | None = None) -> Self:
        """From a YAML file: the keys themselves, or a Dagster component's file; `region` chooses among several."""
        from crkafka_core.config import yaml_file  # not needed by members, which read JSON

        file = Path(path)
        document = yaml_file.chosen(file, region)
        return cls._read(document.value, location.project_of(file), str(file), document.lines)

    @classmethod
    def parse(cls, mapping: Mapping[str, Any], *, base: Path | str | None = None, source: str = "") -> Self:
        """From a mapping; paths are relative to `base`, by default the current folder."""
        return cls._read(mapping, Path.cwd() if base is None else Path(base).absolute(), source, {})

    @classmethod
    def of(cls, *, base: Path | str | None = None, **keys: Any) -> Self:
        return cls.parse(keys, base=base)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """From the text of `to_json`."""
        source = "the configuration in the control plane"
        return cls._read(json.loads(text), Path.cwd(), source, {}, files=False)

    @classmethod
    def _read(
        cls, value: Any, base: Path, source: str, lines: Mapping[tuple[str | int, ...], int], *, files: bool = True
    ) -> Self:
        """`files`: check files that the configuration names, which need not exist where members run."""
        if not isinstance(value, Mapping):
            text = "must be a mapping of keys to values, one a line, such as `region: orders`."
            raise BadConfiguration([Problem("", text)], source)
        given = {k: v for k, v in value.items() if v is not None}
        try:
            return cls.model_validate(given, context={"base": base, "files": files})
        except pydantic.ValidationError as error:
            raise BadConfiguration(problems_of(error, cls, lines), source) from None

    def to_json(self) -> str:
        """JSON for SQL and other processes, with references and never their values."""
        dumped = self.model_dump(mode="json", exclude_none=True, by_alias=True)
        return json.dumps(dumped, ensure_ascii=False, sort_keys=True)

    @pydantic.model_serializer(mode="wrap")
    def _written(self, handler: Any) -> dict[str, Any]:
        """Templates are among the tables."""
        whole = self.model_copy(update={"tables": (*self.tables, *self._templates)}) if self._templates else self
        dumped: dict[str, Any] = handler(whole)
        return dumped

    def limits(self) -> Limits:
        """Time limits and counts, stored with the region."""
        return self._limits(int(self.kafka.get("session.timeout.ms", 45_000)) / 1000)

    @property
    def group_id(self) -> str:
        """The Kafka consumer group, resolved in this process."""
        return resolve(str(self.kafka["group.id"]), "kafka.group.id")

    @property
    def start_fallback(self) -> str:
        """For `position: default` without a committed offset: earliest, latest or error (SPEC S2)."""
        if self.start.auto_offset_reset is not None:
            return self.start.auto_offset_reset
        return kafka_section.FALLBACKS[str(self.kafka.get("auto.offset.reset", "latest")).lower()]

    @property
    def cuts_flow(self) -> bool:
        """Whether a cut is a mark, behind which members go on (SPEC D5)."""
        return self.drain == "flow" and not self.trigger.operator_driven

    def member_name(self, number: int) -> str:
        """Operator name of the member with this number."""
        return f"{self.region}/{number}"

    @property
    def templates(self) -> tuple[TableConfig, ...]:
        """Entries of `tables` with `each`: tables of topics that may come later."""
        return self._templates

    def of_topic(self, topic: str) -> list[OfTopic]:
        return [
            template.of_topic(each, topic, self.registry) for each in self._templates if template.takes(each, topic)
        ]

    def template_of(self, shape: str) -> TableConfig | None:
        """The template whose tables, each for a value of the record, have this shape."""
        by_value = (each for each in self._templates if each.by_value)
        return next((each for each in by_value if typed_tables.without_value(each).shape == shape), None)

    def clash(self, table: TableConfig, taken: Mapping[str, str]) -> str:
        """Why a topic cannot have its table beside others, by name and path; empty if it can."""
        return template.clash(table, taken, [("the storage", self.storage), *((t.name, t.path) for t in self.tables)])

    def clashes(self, topics: Iterable[str]) -> list[str]:
        """Why some of these topics cannot all have their tables."""
        taken, clashes = dict[str, str](), list[str]()
        for table in (t for topic in sorted(topics) for of in self.of_topic(topic) for t in of.own):
            if why := self.clash(table, taken):
                clashes.append(f"{why}; write it under `except`, or another name")
            taken.setdefault(table.name, table.path)
        return clashes

    @property
    def left_to_others(self) -> frozenset[str]:
        """Tables that the region's host does not feed."""
        return frozenset(t.name for t in self.tables if not t.kept_fresh)

    @property
    def commits_to_storage(self) -> bool:
        """Whether a table lies at a path in the kind of store that the segments lie in: its commits are files there."""
        kind = location.store_of(self.storage)
        return any(location.has_log(t.path) and location.store_of(t.path) is kind for t in self.tables)

    def without_spark(self, table: TableConfig) -> bool:
        """Whether a declared table is written without a Spark session: of records as they are, typed, or of Arrow."""
        return self.on_road(table) and not on_frames(table.shape or "")

    def on_road(self, table: TableConfig) -> bool:
        """Whether a declared table, with all of its shape, takes files by a commit of its own log."""
        family = [each for each in (*self.tables, table) if each.shape == table.shape] if table.shape else [table]
        return all(catalogs.has_log(each, self.host.conf) for each in family)

    def check_place(self, table: TableConfig) -> None:
        """ConfigError for a table whose log cannot be reached: only Spark knows its storage or catalog."""
        catalogs.check_place(table, self.host.conf)

    def table(self, name: str, shape: str = "", value: str = "") -> TableConfig | None:
        """The declared table of this name; `shape`: of its row, which names the topic or the template of a template's table.

        `value`: the output of its row, for the place of a table by value.
        """
        if by_value(shape):
            of = self.template_of(shape)
            if of is not None and value:
                return template.of_value(of, value.removeprefix(template.OF_VALUE))
            return next((t.model_copy(update={"name": name}) for t in self.tables if t.shape == shape), None)
        topic = topic_of(shape)
        declared = (t for of in self.of_topic(topic) for t in (*of.own, of.unplaced)) if topic else self.tables
        return next((t for t in declared if t.name == name and (not topic or t.shape == shape)), None)

    def resolve(self) -> Resolved:
        """The configuration with its references resolved; a missing variable or file is a ConfigError."""
        return Resolved(
            control_plane=self.resolved_control_plane(),
            storage=resolve(self.storage, "storage"),
            storage_options={k: resolve(v, f"storage_options.{k}") for k, v in self.storage_options.items()},
            kafka=self.resolved_kafka(),
            spark=None if self.host.spark is None else resolve(self.host.spark, "host.spark"),
            spark_conf={k: resolve(v, f"host.conf.{k}") for k, v in self.host.conf.items()},
        )

    def resolved_control_plane(self) -> str:
        """URL of the database, with its password."""
        return resolve(self.control_plane, "control_plane")

    def resolved_kafka(self) -> dict[str, str]:
        """The user's properties of the Kafka client, resolved; `kafka/properties.py` adds the others."""
        given = {name: str(value) for name, value in self.kafka.items() if name not in kafka_section.FORCED}
        resolved = {name: resolve(value, f"kafka.{name}") for name, value in given.items()}
        kafka_section.check_resolved(resolved)
        return resolved

    def warnings(self) -> list[str]:
        """Settings that work, but not as written or not safely; one sentence each."""
        return [*warnings(self)]

    @field_validator("control_plane")
    @classmethod
    def _control_plane(cls, url: str, info: pydantic.ValidationInfo) -> str:
        return address.control_plane(url, _base(info))

    @field_validator("storage")
    @classmethod
    def _storage(cls, path: str, info: pydantic.ValidationInfo) -> str:
        if not path.strip():
            raise ValueError("must name a folder or a URL")
        secret.check_none("storage", path)
        location.check_store(path)
        return reference.anchor(location.absolute(path, _base(info)), _base(info))

    @field_validator("storage_options")
    @classmethod
    def _options(cls, options: dict[str, str], info: pydantic.ValidationInfo) -> dict[str, str]:
        try:
            secret.check_no_login("endpoint", options.get("endpoint", ""))
        except ValueError as error:
            raise KeyedError("endpoint", str(error)) from None
        return _checked(options, _base(info))

    @field_validator("kafka", mode="before")
    @classmethod
    def _kafka(cls, properties: Any, info: pydantic.ValidationInfo) -> Any:
        if not isinstance(properties, Mapping):
            return properties
        given = kafka_section.normal({str(k): v for k, v in properties.items()})
        for name, value in given.items():
            if isinstance(value, str):
                # `probe` lets the client search the system's authorities.
                is_path = name.endswith((".location", ".file", ".keytab")) and value not in ("", "probe")
                given[name] = reference.anchor(location.absolute(value, _base(info)) if is_path else value, _base(info))
        return given

    @field_validator("tables")
    @classmethod
    def _tables(cls, tables: tuple[TableConfig, ...], info: pydantic.ValidationInfo) -> tuple[TableConfig, ...]:
        if "registry" not in info.data or "topics" not in info.data:
            return tables  # the problem is reported at those keys
        for each in tables:
            if each.each == "topic":  # ValueError where its types come from a registry, and none is named
                template.of_topic(each, "topic", info.data["registry"])
        placed = typed_tables.checked(tables, info.data["topics"], info.data["registry"], _base(info))
        if info.context is None or info.context.get("files", True):
            typed_tables.check_schemas([t for t in placed if t.each is None])
        return placed

    @field_validator("host")
    @classmethod
    def _host(cls, host: HostConfig, info: pydantic.ValidationInfo) -> HostConfig:
        if host.spark is not None:
            secret.check_no_login("host.spark", host.spark)
        for key, value in host.conf.items():
            if key.endswith("JavaOptions") and next(secret.secrets_in(value), None):
                why = "has a secret, and becomes a command line, which every user of the machine can read"
                raise KeyedError(key, why)
        return host.model_copy(update={"conf": _checked(host.conf, _base(info))})

    @model_validator(mode="wrap")
    @classmethod
    def _parted(cls, value: Any, handler: Callable[[Any], Self]) -> Self:
        """Tables that are declared one by one, and templates of others."""
        read = handler(value)
        templates = tuple(t for t in read.tables if t.each is not None)
        if not templates:
            return read
        template.check(read.tables, read.storage, read.topics)
        parted = read.model_copy(update={"tables": tuple(t for t in read.tables if t.each is None)})
        parted._templates = templates
        for each in templates:
            of_value = template.of_value(each, "v") if each.by_value else None
            if not parted.without_spark(of_value or template.of_topic(each, "t", read.registry).own[0]):
                raise ValueError(
                    f"the tables of {each.name} would be written by Spark: each is for a folder, s3://… or a catalog that is "
                    "written without it"
                )
        if clashes := parted.clashes(read.topics or ()):
            raise ValueError(clashes[0])
        return parted

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.topics is None and self.pattern is None:
            raise ValueError('name topics: [orders], or a pattern: "^shop\\\\..*"')
        if self.topics is not None and self.pattern is not None:
            raise ValueError("topics and pattern are both given: choose one")
        position, fallback = self.start.position, self.start.auto_offset_reset
        if "auto.offset.reset" in self.kafka and (position != "default" or fallback is not None):
            chosen = "start.auto_offset_reset" if fallback else f"start.position: {position}"
            text = f"two start positions, {chosen} and kafka's auto.offset.reset: choose one; the latter goes with position: default"
            raise ValueError(text)
        places = [(f"table {t.name}", t.path) for t in self.tables if not location.in_catalog(t.path)]
        places.insert(0, ("storage", self.storage))
        location.check_apart(places)
        self.host.check_reach(self.control_plane, places)
        return self


def _base(info: pydantic.ValidationInfo) -> Path:
    return Path(info.context["base"]) if info.context else Path.cwd()


def _checked(options: dict[str, str], base: Path) -> dict[str, str]:
    for key, value in options.items():
        try:
            secret.check(key, value)
        except ValueError as error:
            raise ValueError(f'"{key}" {error}') from None
    return {k: reference.anchor(v, base) for k, v in options.items()}
