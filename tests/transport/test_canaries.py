"""A secret of each kind through a region as a person runs it: nothing that is left behind has it, and no process shows it (SPEC U2)."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import boto3  # type: ignore[import-untyped]
import fastavro
import pytest
import yaml
from confluent_kafka import Producer

from crkafka_core.dev.ports import free_ports
from crkafka_core.dev.postgres import Postgres
from crkafka_core.testing.pytest_services import unique
from tests.rigs.schema_registry import FakeRegistry
from tests.rigs.spark_cluster import SparkCluster
from tests.transport.conftest import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]
ROOT = Path(__file__).parents[2]
BY_ENVIRONMENT = "CANARY_KAFKA"
"""The others are in files."""
SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
RUNS = """
import sys
import dagster as dg
from crkafka_core.config import RegionConfig
from tests.dagster import reconstructed

with dg.DagsterInstance.get() as instance:
    for file, works in (("region.yaml", True), ("broken.yaml", False)):
        try:
            done = reconstructed.execute(RegionConfig.load(file), "cut", instance, {}).success
        except dg.DagsterError:
            done = False
        assert done is works, file
"""


class Watch(threading.Thread):
    """Looks at the command line and the environment of every process on this machine, again and again.

    `tasks`: a variable that `spark.executorEnv` gives to the tasks of Spark, and to no other process.
    """

    def __init__(self, secrets: dict[str, str], tasks: str = "") -> None:
        super().__init__(daemon=True)
        self._secrets = {name: value.encode() for name, value in secrets.items()}
        self._given = f"{BY_ENVIRONMENT}={secrets[BY_ENVIRONMENT]}".encode()
        self._of_tasks = tasks.encode()
        self._of_server = f"SPARK_CONNECT_AUTHENTICATE_TOKEN={secrets.get('TOKEN')}".encode()
        """How a Connect server that is not ours is told whom to let in."""
        self._end = threading.Event()
        self.found: set[str] = set()
        self.looked = 0
        self.inherited = 0
        """Processes that were seen with the one secret that was given to them by their environment."""
        self.tasks = 0
        """Tasks of Spark that were seen with theirs."""

    def run(self) -> None:
        while not self._end.wait(0.1):
            self.look()

    def look(self) -> None:
        self.looked += 1
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command, environment = ((entry / what).read_bytes() for what in ("cmdline", "environ"))
                shown = environment.split(b"\0")
                self.inherited += self._given in shown
                meant = {self._given}
                if b"org.apache.spark.sql.connect.service.SparkConnectServer" in command:
                    meant.add(self._of_server)
                if b"pyspark.worker" in command.split(b"\0") and self._of_tasks in shown:
                    self.tasks += 1
                    meant.add(self._of_tasks)
                others = b"\0".join(each for each in shown if each not in meant)
                for name, value in self._secrets.items():
                    for what, text in (("command line", command), ("environment", others)):
                        if value in text:
                            self.found.add(f"{name} in the {what} of {command[:80]!r}")

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self.join(10)

    def __enter__(self) -> Watch:
        self.start()
        return self


class Run:
    """A folder with a configuration whose secrets are all canaries, and the programs that run in it."""

    def __init__(
        self, folder: Path, broker: Broker, postgres: Postgres, s3: dict[str, str] | None = None, **keys: Any
    ) -> None:
        """`s3`: where the segments lie; else in a folder."""
        self.folder, self.postgres, self.s3 = folder, postgres, s3
        self.database = unique("canary").replace("-", "_")
        self.topic = unique("orders")
        self.bucket = unique("b")
        self.said: list[str] = []
        kinds = (BY_ENVIRONMENT, "POSTGRES", "S3_KEY", "S3_SECRET", "REGISTRY", "SPARK", "EXECUTOR", "TOKEN")
        self.secrets = {kind: f"canary-{kind.lower()}-{os.urandom(6).hex()}" for kind in kinds}
        for kind, value in self.secrets.items():
            (folder / f"{kind}.secret").write_text(value)
        for made in ("tmp", "dagster"):
            (folder / made).mkdir()
        broker.cluster.topics.create(self.topic, 2)
        broker.password(self.secrets[BY_ENVIRONMENT])
        socket = postgres.url(self.database).partition("@")[2]
        self.config = {
            "region": "orders",
            "control_plane": f"postgresql+psycopg://postgres:{self.file('POSTGRES')}@{socket}",
            "storage": "segments",
            "kafka": {
                **broker.properties("SCRAM"),
                "sasl.password": f"${{env:{BY_ENVIRONMENT}}}",
                "group.id": self.topic,
                "session.timeout.ms": 6_000,
            },
            "topics": [self.topic],
            "members": 2,
            "start_grace": "15s",
            "trigger": {"manual": True},
            **keys,
        }
        if s3 is not None:
            self._client(s3).create_bucket(Bucket=self.bucket)
            options = {**s3, "access_key": self.file("S3_KEY"), "secret_key": self.file("S3_SECRET")}
            self.config |= {"storage": f"s3://{self.bucket}/segments", "storage_options": options, **keys}
        (folder / "region.yaml").write_text(yaml.safe_dump(self.config))
        broken = {**self.config, "control_plane": f"postgresql+psycopg://u:{self.file('POSTGRES')}@127.0.0.1:9/x"}
        (folder / "broken.yaml").write_text(yaml.safe_dump(broken))
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(folder / "tmp"),
            "DAGSTER_HOME": str(folder / "dagster"),
            BY_ENVIRONMENT: self.secrets[BY_ENVIRONMENT],
            "CRKAFKA_LOG": "DEBUG",
            "CRKAFKA_DEBUG": "1",
            "PYTHONUNBUFFERED": "1",
        }
        self.producer = Producer({"bootstrap.servers": broker.cluster.bootstrap})

    def configure(self, **keys: Any) -> None:
        for file in ("region.yaml", "broken.yaml"):
            said = yaml.safe_load((self.folder / file).read_text())
            (self.folder / file).write_text(yaml.safe_dump({**said, **keys}))

    def file(self, kind: str) -> str:
        return f"${{file:{self.folder}/{kind}.secret}}"

    def produce(self, count: int, value: bytes = b"row") -> None:
        for _ in range(count):
            self.producer.produce(self.topic, value)
        assert self.producer.flush(30) == 0

    def cli(self, *words: str, config: str = "region.yaml", code: int | None = 0) -> str:
        """One call; what it printed is looked at later."""
        return self.python("-m", "crkafka_core.cli.main", "-c", config, *words, code=code)

    def python(self, *words: str, code: int | None = 0) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        self.said.append(done.stdout + done.stderr)
        assert code is None or done.returncode == code, self.said[-1]
        return done.stdout

    @contextlib.contextmanager
    def hosted(self, *words: str) -> Iterator[None]:
        """`crkafka host`, until a last cut."""
        with (self.folder / "host.log").open("w") as log:
            host = subprocess.Popen(
                [sys.executable, "-m", "crkafka_core.cli.main", "--log-format=json", "host", "--logs=logs", *words],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        try:
            self.until(lambda: host.poll() is not None or self.sql("SELECT phase FROM crkafka.region") == "RUNNING")
            assert host.poll() is None, self.host_log()
            yield
            host.send_signal(signal.SIGTERM)
            assert host.wait(120) == 0, self.host_log()
        finally:
            host.kill()
            host.wait()

    def until(self, condition: Callable[[], bool], seconds: float = 150) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.host_log()
            time.sleep(0.2)

    def sql(self, question: str) -> str:
        return self.postgres.sql(question, database=self.database).strip()

    def host_log(self) -> str:
        return (self.folder / "host.log").read_text(errors="replace")[-6_000:]

    def left(self) -> dict[str, bytes]:
        """Everything that is left: files, rows, objects, and what was printed."""
        secrets = set(self.folder.glob("*.secret"))
        found = {str(p): p.read_bytes() for p in self.folder.rglob("*") if p.is_file() and p not in secrets}
        tables = self.sql("SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname = 'crkafka'").split()
        found |= {f"table {table}": self.sql(f"SELECT * FROM {table}").encode() for table in tables}
        if self.s3 is not None:
            client = self._client(self.s3)
            for each in client.list_objects_v2(Bucket=self.bucket).get("Contents", ()):
                object_ = client.get_object(Bucket=self.bucket, Key=each["Key"])
                found[f"object {each['Key']}"] = object_["Body"].read()
        return {**found, **{f"printed {n}": text.encode() for n, text in enumerate(self.said)}}

    def is_clean(self, watch: Watch) -> dict[str, bytes]:
        assert watch.looked > 20 and watch.inherited, "processes were looked at"
        assert watch.found == set()
        left = self.left()
        has = {
            (name, kind)
            for name, data in left.items()
            for kind, value in self.secrets.items()
            if value.encode() in data
        }
        assert has == set()
        return left

    def _client(self, s3: dict[str, str]) -> Any:
        keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
        return boto3.client("s3", endpoint_url=s3["endpoint"], region_name=s3["region"], **keys)


@pytest.fixture
def s3(s3_server: str) -> dict[str, str]:
    return {"endpoint": s3_server, "region": "us-east-1"}


@pytest.fixture(autouse=True)
def password_of_others(broker: Broker) -> Iterator[None]:
    yield
    broker.password("first-word")


@pytest.mark.timeout(240)
def test_processes_files_and_sql_have_no_secret(tmp_path: Path, broker: Broker, postgres: Postgres) -> None:
    run = Run(tmp_path, broker, postgres)
    run.produce(50)
    with Watch(run.secrets) as watch:
        run.cli("init")
        with run.hosted():
            pass
        run.cli("show", config="broken.yaml", code=3)
    left = run.is_clean(watch)
    assert any(name.endswith(".parquet") for name in left) and b"merge" in left["table crkafka.event"]
    assert "127.0.0.1" in run.said[-1], "an error that names what was tried"
    assert {str(tmp_path / name) for name in ("logs/orders-0.log", "host.log")} <= left.keys()


def test_the_watch_sees_a_secret_on_a_command_line_and_in_an_environment() -> None:
    """It can fail."""
    secrets = {BY_ENVIRONMENT: "canary-given", "OTHER": "canary-other"}
    watch = Watch(secrets)
    given = {**os.environ, BY_ENVIRONMENT: "canary-given", "ANOTHER": "has canary-other"}
    watch._of_tasks = b"ANOTHER=has canary-other"  # which this process, no task of Spark, should not have
    command = [sys.executable, "-c", "import time; time.sleep(60)", "--password=canary-given"]
    with subprocess.Popen(command, env=given) as process:
        end = time.monotonic() + 20
        while len(watch.found) < 2 and time.monotonic() < end:
            watch.look()
        process.kill()
    assert watch.inherited
    assert {each.partition(" of ")[0] for each in watch.found} == {
        f"{BY_ENVIRONMENT} in the command line",
        "OTHER in the environment",
    }


def _avro(number: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), {"id": number})
    return b"\0" + struct.pack(">I", 1) + out.getvalue()


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    fake = FakeRegistry()
    yield fake
    fake.close()


def _typed(run: Run, registry: FakeRegistry) -> None:
    """What the registry says, and records by it."""
    text = json.dumps(SCHEMA)
    registry.answers["/schemas/ids/1"] = [(200, {"schema": text})]
    latest = {"subject": f"{run.topic}-value", "id": 1, "version": 1, "schema": text}
    for version in ("1", "latest"):
        registry.answers[f"/subjects/{run.topic}-value/versions/{version}"] = [(200, latest)]
    run.produce(20, _avro(7))


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_spark_dagster_a_registry_and_an_object_store_have_no_secret(
    kind: str, tmp_path: Path, broker: Broker, postgres: Postgres, s3: dict[str, str], registry: FakeRegistry
) -> None:
    (ui,) = free_ports(1)
    with contextlib.ExitStack() as stack:
        keys: dict[str, Any] = {
            "registry": {"url": registry.url, "user": f"me:${{file:{tmp_path}/REGISTRY.secret}}"},
            "tables": [{"name": "typed", "format": "delta", "path": "typed", "typed": {"avro": "registry"}}],
        }
        if kind == "classic":
            (tmp_path / "events").mkdir()
            keys["host"] = {
                "spark": "local[4]",
                "conf": {
                    "spark.hadoop.fs.s3a.secret.key": f"${{file:{tmp_path}/SPARK.secret}}",
                    "spark.ui.port": str(ui),
                    "spark.executorEnv.DB_PASSWORD": f"${{file:{tmp_path}/EXECUTOR.secret}}",
                    "spark.eventLog.enabled": "true",
                    "spark.eventLog.dir": (tmp_path / "events").as_uri(),
                    "spark.eventLog.compress": "false",
                },
            }
        else:
            keys["host"] = {"spark": f"sc://127.0.0.1:{ui}/;token=${{file:{tmp_path}/TOKEN.secret}}"}
        run = Run(tmp_path, broker, postgres, s3, **keys)
        if kind == "connect":
            cluster = stack.enter_context(SparkCluster(tmp_path / "cluster", workers=1, cores=4))
            address = cluster.start_connect(token=run.secrets["TOKEN"], **{"spark.executor.memory": "512m"})
            # The server's executors do not have our environment.
            kafka = {**run.config["kafka"], "sasl.password": run.file(BY_ENVIRONMENT)}
            run.configure(host={"spark": f"{address}/;token={run.file('TOKEN')}"}, kafka=kafka)
        _typed(run, registry)
        watch = stack.enter_context(Watch(run.secrets, f"DB_PASSWORD={run.secrets['EXECUTOR']}"))
        run.cli("init")
        with run.hosted("--no-drive"):
            run.cli("cut")
            run.python("-c", RUNS)
            run.until(lambda: registry.asked != [])
            pages = urlopen(f"http://127.0.0.1:{ui}/environment/", timeout=60).read() if kind == "classic" else b""
            watch.look()
    left = {**run.is_clean(watch), "the environment page": pages}
    assert not [kind for kind, value in run.secrets.items() if value.encode() in pages]
    assert registry.asked[-1][1] is not None and registry.asked[-1][1].startswith("Basic ")
    assert any(name.startswith("object ") for name in left) and any("/dagster/" in name for name in left)
    assert kind == "connect" or watch.tasks
    assert kind == "connect" or (b"spark.app.name" in pages and any("/events/" in name for name in left))
