"""Writes artifacts/sbom.json (CycloneDX) from the lock file and the list of jars, then asks pip-audit for known holes.

The list needs no network. A package about which the vulnerability service says nothing is not taken for one without holes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
JARS = ROOT / "crkafka_core" / "dev" / "jars.sha256"
SBOM = ROOT / "artifacts" / "sbom.json"
AUDITOR = "pip-audit>=2.7,<3"
HOLES, NO_ANSWER = 1, 3


def bill(lock: str, jars: str, version: str) -> dict[str, Any]:
    """Everything that the lock file and the list of jars name, with its hashes and, if it is installed here, its license."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "metadata": {"component": {"type": "application", "name": "crkafka", "version": version}},
        "components": [*_packages(lock), *_jars(jars)],
    }


def _packages(lock: str) -> Iterator[dict[str, Any]]:
    for found in re.finditer(r"^([\w.-]+)==([^\s;]+)[^\n]*((?:\n    --hash=[^\n]*)+)", lock, re.MULTILINE):
        name, version = found[1], found[2]
        yield {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name}@{version}",
            "hashes": [_sha256(value) for value in re.findall(r"sha256:([0-9a-f]{64})", found[3])],
            **_license(name),
        }


def _jars(listed: str) -> Iterator[dict[str, Any]]:
    for found in re.finditer(r"^([0-9a-f]{64})  ([^/\n]+)/([^\n]+?)(?:-(\d[^\n]*?))?\.jar$", listed, re.MULTILINE):
        yield {
            "type": "library",
            "name": found[3],
            "version": found[4] or "",
            "hashes": [_sha256(found[1])],
            "properties": [{"name": "crkafka:jars", "value": found[2]}],
        }


def _sha256(value: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": value}


def _license(name: str) -> dict[str, Any]:
    try:
        said = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return {}
    if expression := said.get("License-Expression"):
        return {"licenses": [{"expression": expression}]}
    names = [c.rpartition(" :: ")[2] for c in said.get_all("Classifier") or () if c.startswith("License :: ")]
    names = names or [line for line in (said.get("License") or "").splitlines()[:1] if line]
    return {"licenses": [{"license": {"name": each}} for each in names]} if names else {}


def verdict(answer: Mapping[str, Any]) -> tuple[int, str]:
    """What pip-audit's JSON means: an exit code, and sentences."""
    packages = answer.get("dependencies", [])
    silent = [p for p in packages if "skip_reason" in p]
    holes = [
        f"{p['name']} {p['version']}: {hole['id']}, mended in {', '.join(hole['fix_versions']) or 'no version yet'}"
        for p in packages
        for hole in p.get("vulns", ())
    ]
    said = [f"{len(packages) - len(silent)} packages were looked up: {len(holes)} known holes.", *holes]
    if silent or not packages:
        why = f" The first: {silent[0]['skip_reason']}." if silent else ""
        said.append(
            f"{len(silent)} packages were NOT looked up: the vulnerability service cannot be reached from here, or does not know them."
            f"{why} Nothing is known about their holes. Run `make audit` where it can be reached."
        )
    return HOLES if holes else NO_ANSWER if silent or not packages else 0, "\n".join(said)


def ask() -> tuple[int, str]:
    """pip-audit, in an environment of its own, about the lock file."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = f"{folder}/bin/python"
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", AUDITOR]
        audit = [
            python,
            "-m",
            "pip_audit",
            "--require-hashes",
            "--disable-pip",
            "--progress-spinner",
            "off",
            "-f",
            "json",
        ]
        for command in (install, [*audit, "-r", str(LOCK)]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if not done.stdout.startswith("{") and (done.returncode or command is not install):
                last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
                return NO_ANSWER, f"Known holes were NOT looked up: {' '.join(command[2:5])} … said: {last}"
        return verdict(json.loads(done.stdout))


def main() -> int:
    SBOM.parent.mkdir(parents=True, exist_ok=True)
    found = bill(LOCK.read_text(), JARS.read_text(), metadata.version("crkafka"))
    SBOM.write_text(json.dumps(found, indent=1))
    print(f"{SBOM.relative_to(ROOT)}: {len(found['components'])} packages and jars.", flush=True)
    code, said = ask()
    print(said)
    print("Jars are in the list, but nobody is asked about their holes.")
    return code


if __name__ == "__main__":
    sys.exit(main())
