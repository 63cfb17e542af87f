"""Fills the environment: packages from the lock file, Java, jars, Chromium; a second run finds all of it and is quick.

Needs the standard library only, and runs inside `.venv`. Each step that cannot be done ends with one sentence that says
what to install.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
CACHE = ROOT / ".cache"
STAMP = Path(sys.prefix) / ".packages"
EDGE = ROOT / "crkafka_core" / "kafka" / "native" / "edge.c"
PROMTOOL = CACHE / "promtool"
GO = CACHE / "go"
CHART_TOOLS = ("helm.sh/helm/v3/cmd/helm@v3.22.0", "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0")
CHART_SCHEMAS = ("sigs.k8s.io/kubectl-validate@v0.0.4", "github.com/prometheus-operator/prometheus-operator@v0.85.0")
"""Modules that hold the schemas of Kubernetes and of PodMonitor as files."""
JAVA_PACKAGES = ("openjdk-21-jre-headless", "openjdk-17-jre-headless", "default-jre-headless")


class CannotPrepare(Exception):
    """Something is missing that only the person can install; the text says what."""


def packages() -> None:
    """Exactly what the lock file says, and the project itself, editable; its native edge is built if a compiler is to be had."""
    sources = [ROOT / "requirements.lock", ROOT / "pyproject.toml", EDGE]
    key = hashlib.sha256(b"\0".join([sys.version.encode(), str(ROOT).encode(), *(p.read_bytes() for p in sources)]))
    if STAMP.is_file() and STAMP.read_text() == key.hexdigest():
        return
    # Built without isolation, so that what builds a package is what the lock file names.
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-deps"]
    pip += ["--no-build-isolation", "--no-cache-dir"]
    locked = [*pip, "--require-hashes", "-r"]
    builders = CACHE / "builders.txt"
    builders.write_text(locked_entry("setuptools", (ROOT / "requirements.lock").read_text()))
    step("packages: what builds the others", [*locked, str(builders)])
    step("packages: about 150 from requirements.lock (500 MB)", [*locked, str(ROOT / "requirements.lock")])
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        apt_install("a C compiler", ("build-essential", "gcc"))
    step("packages: crkafka itself", [*pip, "--editable", str(ROOT)])
    STAMP.write_text(key.hexdigest())


def locked_entry(package: str, lock: str) -> str:
    """The lines of one package in a lock file: its version, and the hashes of its files."""
    found = re.search(rf"^{re.escape(package)}==[^\n]*(?:\n    --hash=[^\n]*)+\n", lock, re.MULTILINE)
    if found is None:
        raise CannotPrepare(f"requirements.lock does not name {package} with hashes; `make lock` writes it anew.")
    return found.group()


def java() -> None:
    """Java 17 or newer: the one that is there, else from the package manager."""
    from crkafka_core.dev.errors import ServiceFailed
    from crkafka_core.dev.find_java import find_java

    try:
        find_java()
    except ServiceFailed as missing:
        if not apt_install("Java", JAVA_PACKAGES):
            raise CannotPrepare(str(missing)) from missing
        find_java()


def jars() -> None:
    """Kafka's jars, and those of Spark's extras; and what lets a node of Kafka start in half the time."""
    from crkafka_core.dev import class_archive
    from crkafka_core.dev.jars import ALL

    for jar_set in ALL:
        if not jar_set.complete:
            with Said(f"jars: {jar_set.name}"):
                jar_set.jars()
    if not class_archive.archive().is_file():
        with Said("Kafka's classes"):
            class_archive.make()


def chromium() -> None:
    """A Chromium for the browser tests: the one that is there, else from the package manager, else Playwright's."""
    from tests.rigs.chromium import browsers_folder

    if has_chromium() or (apt_install("Chromium", ("chromium",)) and has_chromium()):
        return
    command = [sys.executable, "-m", "playwright", "install", "chromium"]
    try:
        step("Chromium, from Playwright", command, env={"PLAYWRIGHT_BROWSERS_PATH": str(browsers_folder())})
    except CannotPrepare as failed:
        raise CannotPrepare(
            "Chromium is needed for the browser tests and could not be brought; install it, for example "
            f"`sudo apt-get install chromium`. {failed}"
        ) from failed


def has_chromium() -> bool:
    from crkafka_core.dev.errors import ServiceFailed
    from tests.rigs.chromium import find_chromium

    try:
        find_chromium()
    except ServiceFailed:
        return False
    return True


def promtool() -> None:
    """Prometheus' own judge of alert rules: the one that is there, else out of Debian's package, whose server is not installed."""
    if shutil.which("promtool") or PROMTOOL.is_file():
        return
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        shell = f"cd {folder} && apt-get -q download prometheus && dpkg -x prometheus_*.deb . && mv usr/bin/promtool {PROMTOOL}"
        try:
            step("promtool: out of the package prometheus", ["sh", "-c", shell])
        except CannotPrepare as failed:
            raise CannotPrepare(
                f"promtool judges the alert rules and could not be brought; install prometheus. {failed}"
            ) from failed


def charts() -> None:
    """Helm and kubeconform, built by Go, and the schemas that the chart is held to: Go as installed, else from the package manager."""
    if (
        all((GO / "pkg" / "mod" / module).is_dir() for module in CHART_SCHEMAS)
        and (GO / "bin" / "kubeconform").is_file()
    ):
        return
    if not shutil.which("go") and not apt_install("Go", ("golang-go",)):
        raise CannotPrepare(
            "Go builds Helm, which checks the chart; install it, for example `sudo apt-get install golang-go`."
        )
    env = {"GOBIN": str(GO / "bin"), "GOPATH": str(GO), "GOFLAGS": "-modcacherw"}
    step("Kubernetes' schemas", ["go", "mod", "download", *CHART_SCHEMAS], env=env)
    for tool in CHART_TOOLS:
        step(f"{tool.rpartition('/')[2]}, which may take some minutes", ["go", "install", tool], env=env)


def apt_install(what: str, candidates: tuple[str, ...]) -> bool:
    """Install the first of these packages that there is; False if that is not allowed or none could be installed."""
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if not shutil.which("apt-get") or (sudo and subprocess.run([*sudo, "true"], capture_output=True).returncode != 0):
        return False
    apt = [*sudo, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]
    with contextlib.suppress(CannotPrepare):  # what is listed already may be enough
        step(f"{what}: the list of packages", [*apt, "update"])
    for package in candidates:
        if subprocess.run(["apt-cache", "show", package], capture_output=True).returncode != 0:
            continue
        try:
            step(f"{what}: {package}", [*apt, "install", "-y", "--no-install-recommends", package])
        except CannotPrepare:
            continue
        return True
    return False


class Said:
    """Says what is being done, and how long it took."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        self.began = time.monotonic()
        print(f"preparing {self.what} ...", end="", flush=True)

    def __exit__(self, kind: object, *_: object) -> None:
        print(f" {time.monotonic() - self.began:.0f} s" if kind is None else " failed", flush=True)


def step(what: str, command: list[str], *, env: dict[str, str] | None = None) -> None:
    """Run a command quietly; when it fails, its output is in a log that the error names, with the last lines."""
    CACHE.mkdir(exist_ok=True)
    log = CACHE / "prepare.log"
    with Said(what), log.open("wb") as output:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
        )
        if done.returncode != 0:
            tail = "\n".join("  " + line for line in log.read_text(errors="replace").splitlines()[-8:])
            raise CannotPrepare(f"`{' '.join(command[:6])} ...` failed; its output is in {log} and ends:\n{tail}")


STEPS = {
    "packages": packages,
    "java": java,
    "jars": jars,
    "chromium": chromium,
    "promtool": promtool,
    "charts": charts,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in STEPS]
    if unknown:
        print(f"unknown: {' '.join(unknown)}; there is: {' '.join(STEPS)}", file=sys.stderr)
        return 2
    CACHE.mkdir(exist_ok=True)
    sys.path.insert(0, str(ROOT))
    with (CACHE / "prepare.lock").open("w") as turn:  # two `make`s at once take turns
        fcntl.flock(turn, fcntl.LOCK_EX)
        for name in names:
            try:
                STEPS[name]()
            except Exception as failed:
                print(f"\n{failed}", file=sys.stderr)
                return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
