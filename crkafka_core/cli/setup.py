"""`init` and `check`: what comes before a region runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from crkafka_core.cli.call import json_option, with_config
from crkafka_core.cli.output import note, print_json
from crkafka_core.cli.plane import control_plane
from crkafka_core.config import RegionConfig, redact
from crkafka_core.config.location import sqlite_file
from crkafka_core.model.errors import CrkafkaError, NoSuchRegion
from crkafka_core.plane import stores


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    ok: bool
    text: str
    exit_code: int = 0


def check(config: RegionConfig, *, offline: bool = False) -> list[Finding]:
    """Look at everything that the configuration names; nothing is changed, nothing raised."""
    found = [Finding("configuration", True, f"region {config.region}, {config.members} members")]
    found += [Finding("configuration", True, f"warning: {text}") for text in config.warnings()]
    looks: list[tuple[str, Callable[[RegionConfig], str]]] = [("references", _references)]
    if not offline:
        looks += [("control plane", _control_plane), ("storage", _storage), ("kafka", _kafka), ("host", _host)]
    for what, look in looks:
        try:
            found.append(Finding(what, True, look(config)))
        except CrkafkaError as error:
            found.append(Finding(what, False, redact(str(error)), error.exit_code))
    return found


def _references(config: RegionConfig) -> str:
    config.resolve()
    return "all resolved in this process"


def _control_plane(config: RegionConfig) -> str:
    if (file := sqlite_file(config.resolved_control_plane())) is not None and not file.exists():
        return f"{file} is not there yet: `crkafka init` makes it"
    with control_plane(config) as plane:
        try:
            region = plane.read(lambda reader, row: row)
        except NoSuchRegion:
            return "reached; the region is not there yet: `crkafka init` makes it"
        return f"reached; the region is {region.phase}"


def _storage(config: RegionConfig) -> str:
    from crkafka_core.segments.storage import Storage

    Storage.open(config.storage, config.resolve().storage_options).check()
    return f"{redact(config.storage)} can be written, read and deleted"


def _kafka(config: RegionConfig) -> str:
    from crkafka_core.kafka.admin import KafkaAdmin
    from crkafka_core.model.errors import ConfigError

    admin = KafkaAdmin(config.resolved_kafka(), timeout=5.0)
    cluster = admin.cluster_id()
    topics = admin.topics(config.topics or (), pattern=config.pattern)
    missing = sorted(set(config.topics or ()) - set(topics))
    if missing:
        raise ConfigError(f"Kafka has no topic {', '.join(missing)}.", hint="Create it, or mend topics.")
    partitions = sum(len(t.partitions) for t in topics.values())
    return f"cluster {cluster}: {len(topics)} topics with {partitions} partitions"


def _host(config: RegionConfig) -> str:
    from crkafka_core.dev.java import find_java

    if config.host.spark is None:
        return "local processes"
    if config.host.connect:
        return f"{config.host.spark} (Spark Connect)"
    return f"{config.host.spark}, with {find_java()}"


def init(config: RegionConfig) -> str:
    """Make or migrate the control plane's tables, and make the region; safe to repeat. The region's uid."""
    from crkafka_core.region import Region

    stores.initialise(config.resolved_control_plane())
    return Region.open(config).init().uid


@click.command("check")
@with_config
@click.option("--offline", is_flag=True, help="Only the configuration itself.")
@json_option
def _check(config: RegionConfig, offline: bool, as_json: bool) -> int:
    """Is the configuration right, and is everything there that it names?"""
    found = check(config, offline=offline)
    if as_json:
        print_json(found)
    else:
        for finding in found:
            print(f"{'ok    ' if finding.ok else 'WRONG '} {finding.what}: {finding.text}")
    return max(f.exit_code for f in found)


@click.command("init")
@with_config
@json_option
def _init(config: RegionConfig, as_json: bool) -> None:
    """Make the control plane's tables, and the region. Safe to repeat."""
    uid = init(config)
    for text in config.warnings():
        note(f"warning: {text}")
    if as_json:
        print_json({"region": config.region, "uid": uid})
    else:
        print(f"region {config.region} is there (uid {uid}); `crkafka host` runs its members")


COMMANDS: dict[str, Any] = {"check": _check, "init": _init}
