"""A pytest plugin: real Kafka and PostgreSQL, and a server of S3's protocol, as fixtures; each started once, when first asked for.

Every pytest process has services of its own, so that parallel runs do not meet; topics and databases are new for each
test. A leash ends the services and removes their folder even if pytest is killed. `CRKAFKA_KEEP_SERVICES=1` keeps the
folder, to read the logs.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.leash import Leash
from crkafka_core.dev.postgres import Postgres
from crkafka_core.testing.mock_broker import MockBroker

_started: list[KafkaCluster | Postgres] = []


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A node that an earlier test killed or froze is back before the next test."""
    for service in _started:
        service.heal()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on three nodes come last: nodes that nobody asks anything take a sixth of a core, and stay for the session."""
    items.sort(key=lambda item: "kafka3" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def services_folder() -> Iterator[Path]:
    """Data and logs of this session's services; short, since Unix sockets have short names."""
    folder = Path(tempfile.mkdtemp(prefix="crk-"))
    folder.chmod(0o755)
    yield folder
    if not os.environ.get("CRKAFKA_KEEP_SERVICES"):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def kafka(services_folder: Path) -> Iterator[KafkaCluster]:
    """A real Kafka of one node. A test may kill or freeze it: the next test finds it healed."""
    yield from _cluster(services_folder / "kafka1", nodes=1)


@pytest.fixture(scope="session")
def kafka3(services_folder: Path) -> Iterator[KafkaCluster]:
    """A real Kafka of three nodes. A test may kill or freeze some: the next test finds them healed."""
    yield from _cluster(services_folder / "kafka3", nodes=3)


@pytest.fixture(scope="session")
def postgres(services_folder: Path) -> Iterator[Postgres]:
    """A real PostgreSQL server. A test may kill, freeze or stop it: the next test finds it healed."""
    folder = services_folder / "postgres"
    leash = _leash(folder)
    server = Postgres(folder, leash=leash, durable=False)
    try:
        server.start()
        _started.append(server)
        yield server
    finally:
        if server in _started:
            _started.remove(server)
        leash.release()


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    """The SQLAlchemy URL of a database that only this test has."""
    name = unique("t").replace("-", "_")
    yield postgres.url(name)
    postgres.heal()
    postgres.drop(name)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """A server that speaks S3's protocol; its endpoint."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def s3_options(s3_server: str) -> dict[str, str]:
    """What reaches it, as `storage_options`."""
    return {"endpoint": s3_server, "region": "us-east-1", "access_key": "AKIATEST", "secret_key": "geheim"}


@pytest.fixture
def bucket(s3_options: dict[str, str]) -> str:
    """A bucket of this test."""
    import boto3  # type: ignore[import-untyped]

    name = unique("b")
    client = boto3.client(
        "s3",
        endpoint_url=s3_options["endpoint"],
        region_name="us-east-1",
        aws_access_key_id=s3_options["access_key"],
        aws_secret_access_key=s3_options["secret_key"],
    )
    client.create_bucket(Bucket=name)
    return name


@pytest.fixture
def mock_broker() -> Iterator[MockBroker]:
    """Three mock brokers that fail on demand; new for each test."""
    with MockBroker(3) as broker:
        yield broker


@pytest.fixture
def new_topic(kafka: KafkaCluster) -> Callable[..., str]:
    """Makes a topic of the one-node Kafka with a name of its own: `new_topic(partitions=4, name="orders")`."""

    def make(partitions: int = 4, *, name: str = "t", config: dict[str, str] | None = None) -> str:
        return kafka.topics.create(unique(name), partitions, config=config)

    return make


@pytest.fixture
def group_id() -> str:
    """A group id that no other test uses."""
    return unique("g")


def unique(name: str) -> str:
    """The name with something after it that nothing else has."""
    return f"{name}-{uuid.uuid4().hex[:10]}"


def _cluster(folder: Path, *, nodes: int) -> Iterator[KafkaCluster]:
    leash = _leash(folder)
    cluster = KafkaCluster(folder, nodes, leash=leash)
    try:
        cluster.start()
        _started.append(cluster)
        yield cluster
    finally:
        if cluster in _started:
            _started.remove(cluster)
        leash.release()


def _leash(folder: Path) -> Leash:
    return Leash(folder, remove=not os.environ.get("CRKAFKA_KEEP_SERVICES"))
