"""Settings of an embedded Kafka node: small, quick to rebalance, and with short sessions allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class NodeAddress:
    """One combined broker and controller."""

    id: int
    port: int
    controller_port: int


SHORT_WAITS = {
    # Tests wait for rebalances, for lost members and for retention: each as short as the broker allows.
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "1000",
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.session.timeout.ms": "6000",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    # A killed node is detected within seconds, and leaders move.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.election.backoff.max.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1500",
}
SMALL = {
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "num.recovery.threads.per.data.dir": "2",
}


def server_properties(
    node: NodeAddress, nodes: Sequence[NodeAddress], data: Path, extra: Mapping[str, str] | None = None
) -> str:
    """The text of `server.properties` for one of the nodes; `extra` may use `{id}`, `{port}` and `{controller_port}`."""
    copies = str(min(3, len(nodes)))
    enough = str(max(1, min(3, len(nodes)) - 1))
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(node.id),
        "controller.quorum.voters": ",".join(f"{n.id}@127.0.0.1:{n.controller_port}" for n in nodes),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{node.port},CONTROLLER://127.0.0.1:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{node.port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "delete.topic.enable": "true",
        "default.replication.factor": copies,
        "min.insync.replicas": "1",
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": enough,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": enough,
        **SHORT_WAITS,
        **SMALL,
        "leader.imbalance.check.interval.seconds": "3600",
        "auto.leader.rebalance.enable": "false",
        "controlled.shutdown.enable": "true" if len(nodes) > 1 else "false",
        **{key: _with_ports(value, node) for key, value in (extra or {}).items()},
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _with_ports(value: str, node: NodeAddress) -> str:
    named = {"{id}": node.id, "{port}": node.port, "{controller_port}": node.controller_port}
    for name, number in named.items():
        value = value.replace(name, str(number))
    return value


LOG4J = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="warn">
  <Appenders>
    <Console name="out" target="SYSTEM_OUT"><PatternLayout pattern="%d{ISO8601} %-5p %m (%c{1})%n"/></Console>
  </Appenders>
  <Loggers>
    <Root level="info"><AppenderRef ref="out"/></Root>
    <Logger name="org.apache.kafka.common.config" level="warn"/>
    <Logger name="kafka.server.KafkaConfig" level="warn"/>
    <Logger name="state.change.logger" level="warn"/>
  </Loggers>
</Configuration>
"""
