"""Brings this project's code to the executors, once per session, without an install there (SPEC K1).

Its dependencies (confluent-kafka, pyarrow, pydantic …) have to be in the Python of the workers: `spark.pyspark.python`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import tempfile
import threading
import zipfile
from importlib import metadata
from pathlib import Path

from pyspark.sql import SparkSession

from crkafka_core.spark import location

PACKAGES = ("crkafka", "crkafka_core", "checkpoints_db")
_lock = threading.Lock()
_shipped: set[str] = set()


def ship(spark: SparkSession) -> None:
    """Add the packages to the Python path of the session's executors; in local mode they have them."""
    connect = location.is_connect(spark)
    if not connect and location.is_local(spark):
        return
    session = str(getattr(spark, "session_id", "") if connect else spark.sparkContext.applicationId)
    with _lock:
        if session in _shipped:
            return
        archive = package()
        if connect:
            spark.addArtifacts(str(archive), pyfile=True)
        else:
            spark.sparkContext.addPyFile(str(archive))
        _shipped.add(session)


def package() -> Path:
    """A zip of the packages, named by its content."""
    files: list[tuple[Path, str]] = []
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        for root in (spec.submodule_search_locations or ()) if spec else ():
            folder = Path(root)
            kept = (p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
            files += [(path, f"{name}/{path.relative_to(folder).as_posix()}") for path in sorted(kept)]
    distribution = metadata.distribution("crkafka")
    digest = hashlib.blake2b(digest_size=8)
    for path, name in files:
        digest.update(name.encode() + b"\0" + path.read_bytes())
    target = Path(tempfile.mkdtemp(prefix="crkafka-ship-")) / f"crkafka_{digest.hexdigest()}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, name in files:
            archive.writestr(zipfile.ZipInfo(name), path.read_bytes())
        # Its entry points name the control plane.
        info = f"crkafka-{distribution.version}.dist-info"
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: crkafka\nVersion: {distribution.version}\n")
        archive.writestr(f"{info}/entry_points.txt", distribution.read_text("entry_points.txt") or "")
    return target
