"""Java's archive of Kafka's classes, made in one run and kept in the cache: it halves the work of a node's start (docs/clients.md C-E8)."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from crkafka_core.dev.cache import cache_folder
from crkafka_core.dev.find_java import find_java
from crkafka_core.dev.jars import KAFKA


def archive() -> Path:
    """Path of the archive for this Java and for jars at this place. Java ignores an archive that does not fit."""
    java = find_java().resolve()
    what = f"{java} {java.stat().st_mtime_ns} {KAFKA.name} {KAFKA.folder}"
    return cache_folder() / "java-classes" / f"{KAFKA.name}-{hashlib.sha256(what.encode()).hexdigest()[:12]}.jsa"


def options() -> list[str]:
    """Java's options for a Kafka node."""
    path = archive()
    return [f"-XX:SharedArchiveFile={path}"] if path.is_file() else []


def make() -> None:
    """Run a node whose Java writes the archive. Without one, nodes only start more slowly."""
    from crkafka_core.dev.kafka import KafkaCluster
    from crkafka_core.dev.leash import Leash

    path = archive()
    path.parent.mkdir(parents=True, exist_ok=True)
    folder, new = Path(tempfile.mkdtemp(prefix="crk-")), path.with_suffix(".new")
    leash = Leash(folder, remove=True)
    cluster = KafkaCluster(folder, leash=leash, node_options=[f"-XX:ArchiveClassesAtExit={new}"])
    try:
        cluster.start()
        cluster.topics.create("any")
        cluster.stop(patience=60)
    finally:
        leash.release()
    if new.is_file():
        new.replace(path)
