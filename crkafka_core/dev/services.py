"""`up`, `down` and `status`: Kafka and PostgreSQL in one folder, for a first look.

Each may be repeated. A killed service is detected by its pid file and restarted on its old port; `down` ends everything that runs in
the folder, also services of another process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crkafka_core.dev import ports
from crkafka_core.dev.cache import exclusively
from crkafka_core.dev.jars import KAFKA
from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.postgres import Postgres
from crkafka_core.dev.processes import end_strays, recorded_in
from crkafka_core.dev.sample import produce_orders
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.plural import plural

DEFAULT_FOLDER = Path("var/dev")
BOOTSTRAP = "bootstrap.servers"
"""File in the folder with its Kafka's address, for `${file:var/dev/bootstrap.servers}` in a configuration."""


Say = Callable[[str], None]


@dataclass(frozen=True)
class ServiceState:
    """State of a process of the folder, for people."""

    name: str
    """`kafka-1` … `kafka-3`, or `postgres`."""
    running: bool
    pid: int | None
    address: str
    log: str


@dataclass(frozen=True)
class Status:
    """Services of a folder, and their addresses."""

    folder: str
    services: tuple[ServiceState, ...]
    bootstrap_servers: str | None
    """The value for Kafka's `bootstrap.servers`; None if there is no Kafka in this folder."""
    postgres_url: str | None
    """A SQLAlchemy URL; None if PostgreSQL does not run."""
    topics: tuple[str, ...] = ()

    @property
    def running(self) -> bool:
        """Whether all services of the folder run."""
        return bool(self.services) and all(service.running for service in self.services)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "running": self.running}


def up(
    folder: Path = DEFAULT_FOLDER,
    *,
    brokers: int = 1,
    postgres: bool = False,
    port: int = 0,
    topics: Mapping[str, int] | None = None,
    sample: int = 0,
    progress: Say | None = None,
) -> Status:
    """Start the services that do not run: Kafka with one or three nodes, and PostgreSQL if wanted; make missing topics.

    `topics` maps names to numbers of partitions; each new topic gets `sample` orders. `progress` is called with each step in a few words.
    """
    if brokers not in (1, 3):
        raise ConfigError(f"{brokers} brokers were asked for.", hint="A Kafka in one folder has 1 or 3.")
    say = progress or (lambda _: None)
    folder = Path(folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with exclusively(folder / ".lock"):
        cluster = _start_kafka(folder, brokers, port, say)
        if topics:
            _make_topics(cluster, topics, sample, say)
        server = Postgres(folder)
        if postgres or server.exists:
            say("PostgreSQL")
            server.heal()
            server.url()  # makes the database
        return status(folder)


def _start_kafka(folder: Path, brokers: int, port: int, say: Say) -> KafkaCluster:
    cluster = KafkaCluster(folder, brokers, port=port)
    present = len(cluster.alive())
    if not present:
        end_strays(folder)
    if present and present != brokers:
        raise ConfigError(
            f"{folder} has a Kafka of {plural(present, 'node')}, and {plural(brokers, 'was', 'were')} asked for.",
            hint="Use another folder, or remove this one after `crkafka dev down`.",
        )
    if port:
        _check_port(cluster, port)
    if not KAFKA.complete:
        say("Kafka's jars, about 45 MB, once from Maven Central")
        KAFKA.jars()
    say(f"Kafka, {plural(brokers, 'node')}")
    for node in cluster.node_ids if present else []:
        cluster.resume(node)
    cluster.start()
    (folder / BOOTSTRAP).write_text(f"{cluster.bootstrap}\n")
    return cluster


def _make_topics(cluster: KafkaCluster, topics: Mapping[str, int], sample: int, say: Say) -> None:
    """Make the missing topics, each with `sample` orders."""
    existing = cluster.topics.names()
    for name, partitions in topics.items():
        if name not in existing:
            say(f"topic {name} with {plural(partitions, 'partition')}")
            cluster.topics.create(name, partitions, replication=len(cluster.node_ids))
            if sample:
                say(f"{plural(sample, 'sample order')} in {name}")
                produce_orders(cluster.bootstrap, name, sample)


def _check_port(cluster: KafkaCluster, port: int) -> None:
    """Refuse a port that is not the one of the folder's Kafka, and one that another program listens on."""
    address = cluster.bootstrap if cluster.exists else ""
    if address and not address.partition(",")[0].endswith(f":{port}"):
        raise ConfigError(
            f"The Kafka in {cluster.folder} is at {address}, and keeps its port.",
            hint="Leave --port out, or use another --folder.",
        )
    if not any(cluster.alive().values()) and not ports.is_free(port):
        raise ConfigError(f"Port {port} is taken by another program.", hint="Choose another --port, or leave it out.")


def down(folder: Path = DEFAULT_FOLDER, *, progress: Say | None = None) -> Status:
    """Stop all services in the folder, also those of a killed `up`; the data stays."""
    say = progress or (lambda _: None)
    folder = Path(folder).absolute()
    if folder.is_dir():
        with exclusively(folder / ".lock"):
            if Postgres(folder).alive:
                say("ending PostgreSQL")
                Postgres(folder).stop()
            cluster = KafkaCluster(folder)
            if any(cluster.alive().values()):
                say("ending Kafka")
                cluster.stop()
            for process in recorded_in(folder):
                process.stop()
            end_strays(folder)
    else:
        end_strays(folder)
    return status(folder)


def status(folder: Path = DEFAULT_FOLDER) -> Status:
    """State of the folder's services; starts nothing."""
    folder = Path(folder).absolute()
    services: list[ServiceState] = []
    cluster = KafkaCluster(folder)
    alive = cluster.alive()
    for node, address in zip(alive, cluster.bootstrap.split(",") if alive else [], strict=True):
        process = cluster.process(node)
        services.append(ServiceState(process.name, alive[node], process.pid, address, str(process.log)))
    server = Postgres(folder)
    if server.exists:
        process, address = server.process, str(server.socket)
        services.append(ServiceState(process.name, process.alive, process.pid, address, str(process.log)))
    return Status(
        folder=str(folder),
        services=tuple(services),
        bootstrap_servers=cluster.bootstrap if alive else None,
        postgres_url=server.address() if server.alive else None,
        topics=tuple(sorted(_topics(cluster))) if any(alive.values()) else (),
    )


def _topics(cluster: KafkaCluster) -> list[str]:
    try:
        return [name for name in cluster.topics.names(within=3) if not name.startswith("__")]
    except Exception:  # a node runs and does not answer: its state and its log are shown
        return []


def describe(state: Status) -> str:
    """The status as text for a terminal."""
    if not state.services:
        return f"nothing has been started in {state.folder}"
    lines = [f"in {state.folder}:"]
    for service in state.services:
        what = f"runs (pid {service.pid}) at {service.address}" if service.running else "does not run"
        lines.append(f"  {service.name:<10} {what}; log: {service.log}")
    if any(service.running for service in state.services):
        lines.append(f"bootstrap.servers: {state.bootstrap_servers}")
        if state.postgres_url:
            lines.append(f"PostgreSQL:        {state.postgres_url}")
        if state.topics:
            lines.append(f"topics:            {', '.join(state.topics)}")
    return "\n".join(lines)


def as_json(state: Status) -> str:
    return json.dumps(state.to_json(), indent=2)
