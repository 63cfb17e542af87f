"""`dev up|down|status`: safe to repeat, mends what was killed, leaves nothing running, names the log of a failure."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from crkafka_core.dev.errors import ServiceFailed
from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.leash import end_all
from crkafka_core.dev.ports import free_ports
from crkafka_core.dev.processes import RecordedProcess, process_began
from crkafka_core.dev.sample import Order, orders
from crkafka_core.dev.services import describe, down, status, up
from crkafka_core.model.errors import ConfigError, ServiceUnavailable
from tests.rigs.until import until

pytestmark = pytest.mark.kafka


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_all(tmp_path)


def _processes_of(folder: Path) -> list[str]:
    """Command lines of all live processes that name this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(folder) in line and process_began(int(entry.name)):
                found.append(line)
    return found


def test_kafka_has_the_port_that_was_asked_for_and_each_obstacle_to_its_start_is_a_sentence(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"Port {port} is taken by another program\. Choose another --port"):
            up(folder, port=port)
    (free,) = free_ports(1)
    assert up(folder, port=free).bootstrap_servers == f"127.0.0.1:{free}"
    assert up(folder, port=free).bootstrap_servers == f"127.0.0.1:{free}", "safe to repeat"
    down(folder)
    taken = socket.create_server(("127.0.0.1", free))
    with taken, pytest.raises(ServiceFailed, match="is taken by another program"):
        up(folder)
    properties = folder / "kafka" / "node-1" / "server.properties"
    properties.write_text(properties.read_text() + "log.retention.check.interval.ms=soon\n")
    with pytest.raises(ServiceFailed) as failed:
        up(folder)
    assert str(folder / "logs" / "kafka-1.log") in str(failed.value)
    assert "log.retention.check.interval.ms" in str(failed.value)
    assert isinstance(failed.value, ServiceUnavailable)
    assert _processes_of(folder) == []


def test_up_twice_kill_up_down_down(folder: Path) -> None:
    first = up(folder, postgres=True, topics={"orders": 3}, sample=500)
    assert first.running
    assert first.topics == ("orders",)
    assert [service.name for service in first.services] == ["kafka-1", "postgres"]

    second = up(folder, postgres=True, topics={"orders": 3})
    assert second == first  # same processes, same ports

    for service in first.services:
        assert service.pid is not None
        os.kill(service.pid, signal.SIGKILL)
    _until_dead(folder)
    assert "kafka-1    does not run; log: " in describe(status(folder))

    third = up(folder)  # a PostgreSQL that the folder has is brought back without asking again
    assert third.running
    assert third.bootstrap_servers == first.bootstrap_servers
    assert third.postgres_url == first.postgres_url
    assert third.topics == ("orders",)
    assert _orders(third.bootstrap_servers) == list(orders(500))  # once, although `up` ran three times

    with pytest.raises(ConfigError, match=r"keeps its port\. Leave --port out"):
        up(folder, port=1)

    assert not any(service.running for service in down(folder).services)
    assert _processes_of(folder) == []
    assert not any(service.running for service in down(folder).services)


def _orders(bootstrap: str | None) -> list[Order]:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True})
    reader.assign([TopicPartition("orders", partition, 0) for partition in range(3)])
    found, ends = [], 0
    while ends < 3:
        for message in reader.consume(1000, 0.2):
            error = message.error()
            ends += error is not None and error.code() == KafkaError._PARTITION_EOF
            if error is None:
                found.append(Order(**json.loads(message.value() or b"")))
    reader.close()
    return sorted(found, key=lambda order: order.order)


def _until_dead(folder: Path) -> None:
    until(lambda: not any(service.running for service in status(folder).services))


@pytest.mark.soak
def test_what_a_killed_up_left_behind_is_cleaned_by_down(folder: Path) -> None:
    script = f"""
import os, signal
from pathlib import Path
from crkafka_core.dev.kafka import KafkaCluster
cluster = KafkaCluster(Path({str(folder)!r}))
cluster._create()
cluster._start_node(cluster._node(1))
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", script], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(_processes_of(folder)) == 1
    assert not status(folder).services[0].running or status(folder).services[0].pid
    down(folder)
    assert _processes_of(folder) == []


@pytest.mark.soak
def test_removing_the_folder_of_running_services_leaves_none_behind(folder: Path) -> None:
    inside = folder / "dev"
    up(inside, postgres=True)
    shutil.rmtree(inside)
    down(inside)
    assert _processes_of(inside) == []


def test_services_on_a_leash_end_with_their_process_and_so_does_their_folder(folder: Path) -> None:
    inside = folder / "leashed"
    script = f"""
import os, sys, time
from pathlib import Path
from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.leash import Leash
folder = Path({str(inside)!r})
KafkaCluster(folder, leash=Leash(folder, remove=True)).start()
child = os.fork()
if child == 0:  # keeps the leash's pipe open
    os.close(0), os.close(1)
    time.sleep(60)
print(child, flush=True)
sys.stdin.read()
"""
    holder = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    assert any("kafka.Kafka" in line for line in _processes_of(inside))
    holder.kill()
    holder.communicate()
    assert process_began(child)
    until(lambda: not inside.exists() and all("sys.stdin" in line for line in _processes_of(inside)))
    os.kill(child, signal.SIGKILL)


def test_a_reused_pid_is_not_killed(folder: Path) -> None:
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        pid_file = folder / "pids" / "kafka-1.pid"
        pid_file.parent.mkdir(parents=True)
        pid_file.write_text(f"{bystander.pid} 12345\n")
        assert not RecordedProcess("kafka-1", pid_file, folder / "log").alive
        down(folder)
        assert bystander.poll() is None
        assert not pid_file.exists()
    finally:
        bystander.kill()
        bystander.wait()


def test_another_number_of_brokers_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="has 1 or 3"):
        up(folder, brokers=2)


def test_nothing_started_is_said(folder: Path) -> None:
    assert describe(status(folder)) == f"nothing has been started in {folder}"
    with pytest.raises(ServiceFailed, match="Start one first"):
        _ = KafkaCluster(folder).bootstrap
