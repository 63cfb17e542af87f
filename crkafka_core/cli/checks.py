"""The checks of `crkafka check`, one function each: it returns a finding or raises the error, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from crkafka_core import maven
from crkafka_core.cli.call import control_plane
from crkafka_core.config import BadConfiguration, RegionConfig, catalogs, redact
from crkafka_core.config.changes import Change, changes
from crkafka_core.config.location import in_catalog, is_local, sqlite_file
from crkafka_core.config.resolving import resolve
from crkafka_core.config.typed import TypedConfig
from crkafka_core.control import Place
from crkafka_core.kafka.properties import DEFAULTS, RECEIVED_BESIDE, RECEIVED_BYTES, client_properties
from crkafka_core.member.outside_sql import refuse_anothers, refuse_anothers_now
from crkafka_core.model.errors import ConfigError, DataLoss, NoControlPlane, Refused, WentBack, WrongRegion
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Group, Initial, Region, Table
from crkafka_core.plane import alarms, life, restored, starts
from crkafka_core.plane import tables as plane_tables
from crkafka_core.region.availability import check_topics, unusable
from crkafka_core.region.redeclared import refuse_other_keys, refuse_other_templates, refuse_storage_without_segments

_PATIENCE = 4.0


@dataclass(frozen=True)
class Stored:
    """The region's rows in the control plane, from one read."""

    row: Region | None = None
    groups: tuple[Group, ...] = ()
    """The groups of all regions."""
    initials: tuple[Initial, ...] = ()
    tables: tuple[Table, ...] = ()
    place: Place | None = None
    """Address of the control plane."""


def stored(config: RegionConfig) -> Stored:
    """Read the rows; empty without a control plane."""
    if (file := sqlite_file(config.resolved_control_plane())) is not None and not file.exists():
        _can_be_made(file, f"The file {file} cannot be made", "control_plane")
        return Stored()
    try:
        with control_plane(config) as plane, plane.store.read(config.region) as reader:
            groups, tables = tuple(life.all_groups(reader)), tuple(life.tables_of(reader))
            initials = tuple(starts.known(reader).values())
            return Stored(reader.get(Region), groups, initials, tables, plane.store.place())
    except NoControlPlane:  # a database without our tables
        return Stored()


def _can_be_made(file: Path, refused: str, key: str) -> None:
    """Refuse a file that this user cannot make, with the folders above it, as `init` or a writer would."""
    try:
        with TemporaryDirectory(dir=next(folder for folder in file.parents if folder.exists())):
            pass
    except OSError as error:
        raise ConfigError(f"{refused}: {error.strerror}.", hint=f"Choose another path in {key}.") from None


def references(config: RegionConfig) -> str:
    config.resolve()
    if (registry := config.registry) is not None:
        for key, value in {"url": registry.url, "user.password": registry.user, **registry.headers}.items():
            resolve(value, f"registry.{key}")
    return "every ${env:…} and ${file:…} has a value here"


def region(config: RegionConfig, stored: Stored) -> str:
    """The region's phase, and changes of the configuration since the last `init`."""
    row = stored.row
    if row is None:
        return "does not exist yet: `crkafka init` makes it"
    changed = since(row, config)
    refuse(row, config)
    parts = [str(row.phase)]
    if changed:
        parts.append(
            f"changed since `crkafka init`: {'; '.join(map(str, changed))}. Run it again, then restart the host"
        )
    if otherwise := read_otherwise(changed):
        parts.append(otherwise)
    if row.members_wanted != config.members:
        parts.append(
            f"`crkafka scale` wants {plural(row.members_wanted, 'member')}, the configuration {config.members}"
        )
    return "; ".join(parts)


def since(row: Region, config: RegionConfig) -> list[Change]:
    """Changes of the configuration since the last `init`."""
    if not row.config_json:
        return []
    try:
        return changes(RegionConfig.from_json(row.config_json), config)
    except BadConfiguration:  # an older version accepted it
        return [Change("the whole", "a configuration that this version refuses", "the file")]


def read_otherwise(before: Iterable[Change]) -> str:
    """The consequence of another `isolation.level`; empty if it did not change."""
    level, usual = "isolation.level", DEFAULTS["isolation.level"]
    if not any(each.key == f"kafka.{level}" and (each.before or usual) != (each.after or usual) for each in before):
        return ""
    return (
        f"{level} has changed: checkpoints with retired segments and records of aborted transactions cannot be read from Kafka again: "
        "that read is refused. Let the tables catch up first, or restore the old value"
    )


def refuse(row: Region, config: RegionConfig) -> None:
    """Refuse another group or index than the region's own: its members would be refused (SPEC G1)."""
    if row.group_id not in ("", config.group_id):
        text = f"The region's group is {row.group_id!r}, the configuration has {config.group_id!r}: its members would be refused."
        raise ConfigError(text, hint="Restore the old group.id, or make another region.")
    if row.region_index != config.region_index:
        raise ConfigError(
            f"The region has region_index {row.region_index}, the configuration {config.region_index}: "
            "its members would be refused.",
            hint="Restore the old one.",
        )


def storage(config: RegionConfig, stored: Stored) -> str:
    """Access to the storage, and its owner: a copy or an older state of the control plane is refused (SPEC T3, G10)."""
    from crkafka_core.segments import owner
    from crkafka_core.segments.storage import Storage

    segments = Storage.of(config)
    row, mark = stored.row, None
    if row is not None and stored.place is not None:
        mark = owner.check(segments, row.uid, stored.place, region=row.name)
    if row is not None and mark is not None and (mark.epoch > row.epoch or mark.checkpoint > row.opened):
        raise WentBack(
            f"The control plane has issued epoch {row.epoch} and opened checkpoint {row.opened}, and the storage has seen epoch "
            f"{mark.epoch} and checkpoint {mark.checkpoint}. Was a backup restored?",
            hint=restored.HINT,
        )
    segments.check(tables=config.commits_to_storage)
    if row is not None:
        with control_plane(config) as plane:
            refuse_storage_without_segments(plane, config, row.config_json)
    return f"{redact(config.storage)} can be written, read and deleted"


def kafka(config: RegionConfig, stored: Stored) -> str:
    """The cluster, its topics and their sizes; a deleted or recreated topic is refused (SPEC S4)."""
    from crkafka_core.kafka import clients
    from crkafka_core.kafka.admin import KafkaAdmin

    given = config.resolved_kafka()
    admin = KafkaAdmin(given, timeout=_PATIENCE)
    # Refuses a property that the client does not know.
    clients.consumer(client_properties(given, config.limits(), client_id="crkafka-check")).close()
    cluster = admin.cluster_id()
    topics = check_topics(admin, config)
    if clashes := config.clashes(topics):
        raise ConfigError(f"Templates of tables clash: {clashes[0]}.", hint="Mend tables; nothing was changed.")
    if gone := next(unusable(topics, stored.initials), ""):
        raise DataLoss(gone, hint=starts.FORGET)
    # A record that exceeds what the client accepts would block its partition for good (SPEC X9).
    accepted = int(given.get("receive.message.max.bytes", RECEIVED_BYTES))
    for topic, most in sorted(admin.largest_messages(topics).items()):
        if most + RECEIVED_BESIDE > accepted:
            raise ConfigError(
                f"Topic {topic} accepts messages of up to {most} bytes (max.message.bytes), the client responses of up to {accepted}.",
                hint=f"kafka: set `receive.message.max.bytes` to {most + RECEIVED_BESIDE} or more; memory of a member grows with it.",
            )
    partitions = sum(len(t.partitions) for t in topics.values())
    return f"cluster {cluster}: {plural(len(topics), 'topic')} with {plural(partitions, 'partition')}"


def group(config: RegionConfig, stored: Stored) -> str:
    """The owner of the group, and its consumers (SPEC G1, G8)."""
    from crkafka_core.kafka.admin import KafkaAdmin

    admin = KafkaAdmin(config.resolved_kafka(), timeout=_PATIENCE)
    cluster, name = admin.cluster_id(), config.group_id
    clients = set(admin.client_ids(name))
    for bound in stored.groups:
        if (bound.cluster_id, bound.group_id) == (cluster, name):
            _belongs(config, name, bound)
    uid = stored.row.uid if stored.row is not None else ""
    refuse_anothers(admin, config, uid)
    if stored.row is not None and stored.row.cluster_id not in ("", cluster):
        text = f"The region reads from the cluster {stored.row.cluster_id}, and this one is {cluster}."
        raise ConfigError(text, hint="Correct bootstrap.servers, or make another region.")
    if foreign := sorted(c for c in clients if alarms.is_foreign(uid, config.region, c)):
        raise Refused(
            f"Group {name!r} has consumers that are not members of this region: {', '.join(foreign)}.",
            hint="End them, or give the region a group.id of its own: partitions that they hold would not be read.",
        )
    return f"{name}, {plural(len(clients), 'member')} of this region in it"


def group_is_free(config: RegionConfig, stored: Stored) -> None:
    """Refuse another region's group before this region is made; asks Kafka only if a group of this name is known (SPEC G1)."""
    from crkafka_core.kafka.admin import KafkaAdmin

    others = [g for g in stored.groups if g.group_id == config.group_id and g.region != config.region]
    if others:
        with closing(KafkaAdmin(config.resolved_kafka(), timeout=_PATIENCE)) as admin:
            cluster = admin.cluster_id()
        for bound in others:
            if bound.cluster_id == cluster:
                _belongs(config, config.group_id, bound)
    if stored.row is None or not stored.row.head:
        refuse_anothers_now(config, stored.row.uid if stored.row is not None else "")


def _belongs(config: RegionConfig, name: str, bound: Group) -> None:
    if (bound.region, bound.region_index) != (config.region, config.region_index):
        text = f"Group {name!r} belongs to region {bound.region} (index {bound.region_index}); members of {config.region} are refused."
        raise WrongRegion(text, hint="Give this region a group.id of its own.")


def registry(config: RegionConfig) -> str:
    """The schema registry, and the subjects of the typed tables in it."""
    from crkafka_core.decode.registry import Registry

    assert config.registry is not None  # a table names it
    asked = Registry(config.registry.url, config.registry.user, config.registry.headers, patience=_PATIENCE)
    subjects = []
    for typed in by_registry(config):
        asked.of_table(typed)
        subjects.append(str(typed.subject))
    return f"has {', '.join(subjects)}"


def by_registry(config: RegionConfig) -> list[TypedConfig]:
    """The `typed` sections of tables whose schema is in the registry."""
    of_topics = (t for topic in config.topics or () for section in config.of_topic(topic) for t in section.own[:1])
    return [t.typed for t in (*config.tables, *of_topics) if t.typed is not None and t.typed.registered]


_LOG = {"delta": "_delta_log", "iceberg": "metadata"}
"""Subfolder that makes a folder a table; a failed write to a deleted table leaves the folder without it."""


def tables(config: RegionConfig, stored: Stored) -> str:
    """The declared tables against those in SQL, and whether local ones still exist."""
    known = {t.name: t for t in stored.tables}
    _packages(config)
    for declared in config.tables:
        config.check_place(declared)
        row = known.get(declared.name)
        if row is not None and (row.format, row.path) != (declared.format, declared.path):
            raise Refused(
                f"Table {row.name} is declared as {row.format} at {row.path}, in the file as {declared.format} at {declared.path}.",
                hint=f"Give the new one a name of its own, or `crkafka tables undeclare {row.name}` first.",
            )
        if (row is None or not row.version) and is_local(declared.path) and not in_catalog(declared.path):
            _can_be_made(
                Path(declared.path.removeprefix("file://"), "x"),
                f"Table {declared.name} cannot be made at {declared.path}",
                "tables",
            )
        if declared.shape:
            plane_tables.refuse_taken(known.values(), declared.name, declared.shape, declared.output or "")
    if stored.row is not None:
        refuse_other_keys(stored.row.config_json, config, stored.tables)
        refuse_other_templates(config, stored.tables)
    for row in known.values():
        here = is_local(row.path) and not in_catalog(row.path)
        if row.version and here and not Path(row.path.removeprefix("file://"), _LOG.get(row.format, "")).is_dir():
            raise DataLoss(
                f"Table {row.name} has rows up to checkpoint {row.acknowledged}, but the files in its folder {row.path} are gone.",
                hint=f"Restore it; or `crkafka tables undeclare {row.name}`, and declare it at another path.",
            )
    templates = f", {plural(len(config.templates), 'template')}" if config.templates else ""
    return f"{len(config.tables)} declared{templates}, {len(known)} known to the region"


def host(config: RegionConfig, stored: Stored) -> str:
    """What runs the members: slots, Java, and versions that go together (docs/clients.md C-P11)."""
    from crkafka_core.dev.find_java import find_java

    by_spark = [t.name for t in config.tables if t.kept_fresh and not config.without_spark(t)]
    if config.host.spark is None:
        _packages(config)
        if not by_spark:
            return "local processes"
        versions(config)
        return f"local processes; PySpark {metadata.version('pyspark')} for {', '.join(by_spark)}, {find_java()}"
    members = max(config.members, stored.row.members_wanted if stored.row is not None else 0)
    config.host.check_slots(members)
    versions(config)
    if config.host.connect:
        return f"{config.host.spark} (Spark Connect), PySpark {metadata.version('pyspark')}"
    if by_spark and config.host.local_slots == members:
        text = f"All task slots of {config.host.spark} go to {plural(members, 'member')}; none is left to write {', '.join(by_spark)}."
        raise ConfigError(text, hint=f"Write local[{members + 1}].")
    return f"{config.host.spark}, PySpark {metadata.version('pyspark')}, {find_java()}"


def versions(config: RegionConfig) -> None:
    """Refuse a PySpark of another version than the jars that are fetched for it."""
    formats = {t.format for t in config.tables}
    own = {"spark.jars", "spark.jars.packages"} & set(config.host.conf)
    if not formats or own or config.host.connect:
        return
    version = metadata.version("pyspark")
    if not version.startswith(f"{maven.SPARK}."):
        raise ConfigError(
            f"PySpark {version} is installed; the jars for {' and '.join(sorted(formats))} are for Spark {maven.SPARK}.",
            hint=f"pip install 'pyspark=={maven.SPARK}.*', or name other jars by spark.jars.packages in host.conf.",
        )


def _packages(config: RegionConfig) -> None:
    """Refuse a missing package that writes tables without Spark."""
    tables = (*config.tables, *config.templates)
    if any(t.format == "delta" for t in tables):
        _installed("deltalake", "delta")
    adopting = [t for t in tables if t.format == "iceberg" and config.on_road(t)]
    if adopting:
        _installed("fastavro", "iceberg")
    if any(
        in_catalog(t.path) and catalogs.warehouse(t.path.partition(".")[0], config.host.conf) is None for t in adopting
    ):
        _installed("pyiceberg", "iceberg-catalogs")


def _installed(package: str, extra: str) -> None:
    if find_spec(package) is None:
        raise ConfigError(f"{package} is not installed.", hint=f"pip install 'crkafka[{extra}]'.")
