"""A real Apache Kafka (KRaft) as local processes: one node, or three, each of which can be killed, frozen and restarted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient

from crkafka_core.dev import class_archive
from crkafka_core.dev.errors import ServiceFailed
from crkafka_core.dev.find_java import find_java
from crkafka_core.dev.jars import KAFKA
from crkafka_core.dev.kafka_config import LOG4J, NodeAddress, server_properties
from crkafka_core.dev.kafka_topics import KafkaTopics
from crkafka_core.dev.leash import Leash
from crkafka_core.dev.ports import free_ports, is_free
from crkafka_core.dev.processes import RecordedProcess
from crkafka_core.model.plural import plural

_QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


@dataclass(frozen=True)
class _ClusterState:
    """Identity and ports, which stay the same at the next start."""

    cluster_id: str
    nodes: tuple[NodeAddress, ...]
    settings: dict[str, str]


class KafkaCluster:
    """A cluster with its data, pid files and logs in one folder; the same folder is the same cluster, also in another process.

    With a `leash` the nodes end with this process, however it ends; without, they run until `stop`. A node starts quickly and runs
    slowly, except with `full_speed`, for measurements. `node_options` are options of Java. `port` is the first node's port in a new
    cluster, by default a free one.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int = 1,
        *,
        leash: Leash | None = None,
        full_speed: bool = False,
        node_options: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        port: int = 0,
    ) -> None:
        self._wanted_port = port
        self.folder = Path(folder).absolute()
        self._wanted_nodes = nodes
        self._wanted_settings = dict(settings or {})
        self._leash = leash
        self._full_speed = full_speed
        self._node_options = tuple(node_options)
        self._admin: AdminClient | None = None

    # --- what it is ---

    @property
    def exists(self) -> bool:
        """Whether the folder has a cluster."""
        return self._state_file.exists()

    @property
    def node_ids(self) -> list[int]:
        return [node.id for node in self._state.nodes]

    @property
    def bootstrap(self) -> str:
        """The value for `bootstrap.servers`."""
        return ",".join(f"127.0.0.1:{node.port}" for node in self._state.nodes)

    @property
    def cluster_id(self) -> str:
        return self._state.cluster_id

    @property
    def admin(self) -> AdminClient:
        """One admin client of this process for the cluster."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, **_QUICK_RECONNECT})
        return self._admin

    @property
    def topics(self) -> KafkaTopics:
        return KafkaTopics(self.admin)

    def process(self, node: int) -> RecordedProcess:
        name = f"kafka-{node}"
        return RecordedProcess(name, self.folder / "pids" / f"{name}.pid", self.folder / "logs" / f"{name}.log")

    def alive(self) -> dict[int, bool]:
        """Whether each node runs, by id."""
        return {node: self.process(node).alive for node in self.node_ids} if self._state_file.exists() else {}

    # --- the whole cluster ---

    def start(self, *, within: float = 60.0) -> KafkaCluster:
        """Start the nodes that do not run, and wait until the cluster serves."""
        if self._leash is not None:
            self._leash.hold(self.folder)
        fresh = not self._state_file.exists()
        if fresh:
            self._create()
        try:
            for node in self._state.nodes:
                self._start_node(node)
            self.wait_until_serving(within=within)
        except ServiceFailed as failed:
            # Another program took a port between its choice and its use: choose others, unless these are known already.
            if not fresh or self._wanted_port or "Address already in use" not in str(failed):
                raise
            self.destroy()
            return self.start(within=within)
        return self

    def heal(self) -> None:
        """Undo a test's faults: resume frozen nodes, restart dead ones."""
        for node in self.node_ids:
            self.resume(node)
        if not all(self.alive().values()):
            self.start()

    def stop(self, *, patience: float = 10.0) -> None:
        """Stop all nodes; the data stays. All get the signal at once: the last one of a quorum could not shut down."""
        if self._state_file.exists():
            for node in self.node_ids:
                self.process(node).send(signal.SIGCONT)
                self.process(node).send(signal.SIGTERM)
            for node in self.node_ids:
                self.process(node).stop(patience=patience)
        self._admin = None

    def destroy(self) -> None:
        """Kill every node and remove the data."""
        if self._state_file.exists():
            for node in self.node_ids:
                self.process(node).stop(first=signal.SIGKILL)
        self.stop()
        shutil.rmtree(self.folder / "kafka", ignore_errors=True)

    def wait_until_serving(self, *, nodes: int | None = None, within: float = 60.0) -> None:
        """Wait until the cluster knows `nodes` brokers (default: all)."""
        wanted = len(self.node_ids) if nodes is None else nodes
        deadline = time.monotonic() + within
        while True:
            seen = self._brokers_seen()
            if seen >= wanted:
                return
            self._raise_if_dead(all_needed=wanted == len(self.node_ids))
            if time.monotonic() > deadline:
                first = self.process(self.node_ids[0])
                raise ServiceFailed(
                    "kafka",
                    f"only {seen} of {plural(wanted, 'broker')} served within {within:.0f} s ({self.bootstrap})",
                    log=first.log,
                )
            time.sleep(0.05)

    # --- one node ---

    def kill(self, node: int = 1) -> None:
        """End a node with SIGKILL."""
        self.process(node).stop(first=signal.SIGKILL)

    def stop_node(self, node: int = 1, *, patience: float = 20.0) -> None:
        """Shut a node down cleanly; its leaders move first."""
        self.process(node).stop(patience=patience)

    def start_node(self, node: int = 1, *, wait: bool = True) -> None:
        """Start a node again, on its old ports."""
        self._start_node(self._node(node))
        if wait:
            self.wait_until_serving(nodes=sum(self.alive().values()))

    def restart(self, node: int = 1) -> None:
        """Shut a node down cleanly and start it again."""
        self.stop_node(node)
        self.start_node(node)

    def pause(self, node: int = 1) -> None:
        """Freeze a node (SIGSTOP): its connections stay open, and nothing answers."""
        self.process(node).send(signal.SIGSTOP)

    def resume(self, node: int = 1) -> None:
        """Let a frozen node go on."""
        self.process(node).send(signal.SIGCONT)

    # --- inside ---

    @property
    def _state_file(self) -> Path:
        return self.folder / "kafka" / "cluster.json"

    @property
    def _state(self) -> _ClusterState:
        try:
            read = json.loads(self._state_file.read_text())
        except FileNotFoundError as missing:
            raise ServiceFailed("kafka", f"there is no cluster in {self.folder}", hint="Start one first.") from missing
        nodes = tuple(NodeAddress(**node) for node in read["nodes"])
        return _ClusterState(read["cluster_id"], nodes, read["settings"])

    def _node(self, number: int) -> NodeAddress:
        for node in self._state.nodes:
            if node.id == number:
                return node
        raise ServiceFailed("kafka", f"there is no node {number}", hint=f"There are {self.node_ids}.")

    def _create(self) -> None:
        ports = free_ports(2 * self._wanted_nodes)
        ports[0] = self._wanted_port or ports[0]
        nodes = tuple(NodeAddress(i + 1, ports[2 * i], ports[2 * i + 1]) for i in range(self._wanted_nodes))
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")
        state = _ClusterState(cluster_id, nodes, self._wanted_settings)
        self._state_file.parent.mkdir(parents=True, exist_ok=True)
        (self._state_file.parent / "log4j2.xml").write_text(LOG4J)
        formatting = []
        for node in nodes:
            home = self._home(node)
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir()
            text = server_properties(node, nodes, home / "data", state.settings)
            (home / "server.properties").write_text(text)
            formatting.append((node, self._format(node, cluster_id)))
        for node, process in formatting:
            if process.wait() != 0:
                raise ServiceFailed(self.process(node.id).name, "could not format its data", log=self._log(node))
        new = self._state_file.with_suffix(".new")
        new.write_text(json.dumps(asdict(state), indent=2))
        new.replace(self._state_file)

    def _format(self, node: NodeAddress, cluster_id: str) -> subprocess.Popen[bytes]:
        self._log(node).parent.mkdir(parents=True, exist_ok=True)
        properties = str(self._home(node) / "server.properties")
        command = [*self._java("128m"), "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", properties]
        with self._log(node).open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def _start_node(self, node: NodeAddress) -> None:
        process = self.process(node.id)
        if not process.alive:
            for port in (node.port, node.controller_port):
                if not is_free(port, within=2):
                    raise ServiceFailed(
                        process.name,
                        f"its port {port} is taken by another program: Address already in use",
                        hint=f"End that program, or remove {self.folder / 'kafka'} (the data) for a new start.",
                    )
            properties = str(self._home(node) / "server.properties")
            command = [*self._java("384m", *self._node_options), "kafka.Kafka", properties]
            process.start(command, cwd=self._home(node))

    def _java(self, heap: str, *more: str) -> list[str]:
        log4j = self._state_file.parent / "log4j2.xml"
        classpath = os.pathsep.join(str(jar) for jar in KAFKA.jars())
        quick = [] if self._full_speed else [*_QUICK_START, *class_archive.options()]
        options = [f"-Xmx{heap}", *quick, *more, f"-Dlog4j2.configurationFile={log4j}"]
        return [str(find_java()), *options, "-cp", classpath]

    def _home(self, node: NodeAddress) -> Path:
        return self._state_file.parent / f"node-{node.id}"

    def _log(self, node: NodeAddress) -> Path:
        return self.process(node.id).log

    def _raise_if_dead(self, *, all_needed: bool) -> None:
        dead = [node for node, runs in self.alive().items() if not runs]
        if dead and (all_needed or len(dead) == len(self.node_ids)):
            process = self.process(dead[0])
            raise ServiceFailed(process.name, "ended during its start", log=process.log)

    def _brokers_seen(self) -> int:
        # A plain connection first: librdkafka would log each refused connection, and back off.
        if not any(_listens(node.port) for node in self._state.nodes):
            return 0
        try:
            return len(self.admin.list_topics(timeout=2).brokers)
        except Exception:  # not ready yet; the caller has a deadline
            return 0


_QUICK_RECONNECT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0
