"""Finds a Java that is new enough for Kafka and Spark (docs/clients.md C-P1)."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from crkafka_core.dev.errors import ServiceFailed

OLDEST = 17


@functools.cache
def find_java() -> Path:
    """The first `java` of JAVA_HOME, PATH, or a usual place that is Java 17 or newer."""
    seen: list[str] = []
    for candidate in _candidates():
        version = java_version(candidate)
        if version is None:
            continue
        if version >= OLDEST:
            return candidate
        seen.append(f"{candidate} is Java {version}")
    existing = "; ".join(seen) or "none was found in JAVA_HOME, PATH or /usr/lib/jvm"
    raise ServiceFailed(
        "java",
        f"Java {OLDEST} or newer is needed ({existing})",
        hint="Install it, for example `sudo apt-get install openjdk-17-jre-headless`, or set JAVA_HOME.",
    )


def java_version(java: Path) -> int | None:
    """The major version; None if the program does not run as Java."""
    try:
        text = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)
    for root in ("/usr/lib/jvm", "/opt", "/Library/Java/JavaVirtualMachines"):
        yield from sorted(Path(root).glob("*/bin/java"))
        yield from sorted(Path(root).glob("*/Contents/Home/bin/java"))
