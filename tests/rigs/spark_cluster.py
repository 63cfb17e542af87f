"""A standalone Spark cluster of real processes on this machine: a master, some workers, and a Connect server when asked for."""

from __future__ import annotations

import importlib.util
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from crkafka_core.dev.find_java import find_java
from crkafka_core.dev.leash import Leash
from crkafka_core.dev.ports import free_ports, is_free
from crkafka_core.dev.processes import RecordedProcess

_START = 60.0


class SparkCluster:
    """`with SparkCluster(folder) as cluster: … SparkSession.builder.master(cluster.master)`; ends with the process that made it."""

    def __init__(self, folder: Path, *, workers: int = 2, cores: int = 3, memory: str = "1g") -> None:
        """`cores` of each worker: task slots, not processors."""
        self.folder = folder.absolute()
        self.workers, self.cores, self.memory = workers, cores, memory
        self._leash = Leash(self.folder)
        self._port, self._connect_port = free_ports(2)
        spec = importlib.util.find_spec("pyspark")
        assert spec is not None and spec.origin is not None
        self._home = Path(spec.origin).parent

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    @property
    def connect(self) -> str:
        """The address of the Connect server, once started."""
        return f"sc://127.0.0.1:{self._connect_port}"

    def __enter__(self) -> Self:
        self._leash.hold(self.folder)
        try:
            self._start(
                "master", "deploy.master.Master", *f"--host 127.0.0.1 --port {self._port} --webui-port 0".split()
            )
            self._serving(self._port, "the Spark master")
            for number in range(self.workers):
                self.start_worker(number)
        except BaseException:
            self._leash.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_connect()
        for name in (*(f"worker-{i}" for i in range(self.workers)), "master"):
            self._process(name).stop(patience=5.0)
        self._leash.release()

    def start_worker(self, number: int) -> int:
        """Start a worker, or start it again; its process id, once it is registered."""
        work = self.folder / f"worker-{number}"
        work.mkdir(parents=True, exist_ok=True)
        process = self._process(f"worker-{number}")
        before = process.log.read_text(errors="replace").count(_REGISTERED) if process.log.exists() else 0
        options = f"--host 127.0.0.1 --webui-port 0 --cores {self.cores} --memory {self.memory} --work-dir".split()
        pid = self._start(f"worker-{number}", "deploy.worker.Worker", *options, str(work), self.master)
        self._until(
            lambda: process.log.read_text(errors="replace").count(_REGISTERED) > before,
            f"worker {number} of Spark",
            process.log,
        )
        return pid

    def start_connect(self, jars: list[Path] | None = None, *, token: str = "", **conf: str) -> str:
        """A Connect server on this cluster; its address.

        `token`: it serves nobody without it, and clients send it without TLS to `localhost` alone.
        """
        settings = {
            "spark.connect.grpc.binding.port": str(self._connect_port),
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.pyspark.python": sys.executable,
            **({"spark.jars": ",".join(map(str, jars))} if jars else {}),
            **conf,
        }
        flags = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        server = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        # For this class the first outranks spark.driver.memory; the second is how it is told a token without showing it.
        env = {"SPARK_DAEMON_MEMORY": "1g"} | ({"SPARK_CONNECT_AUTHENTICATE_TOKEN": token} if token else {})
        self._start("connect", "deploy.SparkSubmit", "--master", self.master, *flags, *server, **env)
        self._serving(self._connect_port, "the Spark Connect server")
        return self.connect.replace("127.0.0.1", "localhost") if token else self.connect

    def stop_connect(self) -> None:
        """End the Connect server, if there is one: it keeps its slots as long as it lives."""
        self._process("connect").stop(patience=5.0)

    def kill_worker(self, number: int) -> None:
        """SIGKILL to a worker process; its executors end with it."""
        self._process(f"worker-{number}").send(signal.SIGKILL)

    def executors(self) -> dict[int, int]:
        """Process ids of executors, each with the number of its worker."""
        pids = {}
        ours = re.compile(re.escape(f"{self.folder}/worker-") + r"(\d+)")
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                command = (entry / "cmdline").read_bytes()
                match = ours.match(str((entry / "cwd").readlink()))
            except OSError:
                continue
            if match and b"CoarseGrainedExecutorBackend" in command:
                pids[int(entry.name)] = int(match.group(1))
        return pids

    def _process(self, name: str) -> RecordedProcess:
        return RecordedProcess(name, self.folder / "pids" / f"{name}.pid", self.folder / "logs" / f"{name}.log")

    def _start(self, name: str, of: str, *arguments: str, **env: str) -> int:
        command = [str(self._home / "bin" / "spark-class"), f"org.apache.spark.{of}", *arguments]
        return self._process(name).start(command, env=self._env() | env, cwd=self.folder)

    def _env(self) -> dict[str, str]:
        return {
            "SPARK_HOME": str(self._home),
            "JAVA_HOME": str(find_java().resolve().parents[1]),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }

    def _serving(self, port: int, what: str) -> None:
        self._until(lambda: not is_free(port), what, self.folder / "logs")

    def _until(self, condition: Callable[[], bool], what: str, log: Path) -> None:
        end = time.monotonic() + _START
        while not condition():
            if time.monotonic() > end:
                raise RuntimeError(f"{what} does not serve after {_START:.0f} s; see {log}")
            time.sleep(0.1)


_REGISTERED = "Successfully registered with master"
