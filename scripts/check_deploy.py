"""Checks deploy/: the chart by Helm, Kubernetes' schemas, the command line and the configuration; the image against the tree."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
CHART = ROOT / "deploy" / "chart"
PAGE = (ROOT / "docs" / "deploy" / "kubernetes.md").read_text()
GO = ROOT / ".cache" / "go"
KUBERNETES = "1.30"
EVERYTHING = [
    "metrics.podMonitor.enabled=true",
    "networkPolicy.enabled=true",
    "podLabels.team=shop",
    "podAnnotations.note=x",
    "init=false",
]


def run(tool: str, *arguments: str) -> str:
    done = subprocess.run([str(GO / "bin" / tool), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{tool} {' '.join(arguments)}\n{done.stdout}{done.stderr}")
    return done.stdout


def rendered(*settings: str) -> list[dict[str, Any]]:
    options = [part for setting in settings for part in ("--set", setting)]
    return template(*options)


def template(*options: str) -> list[dict[str, Any]]:
    text = run("helm", "template", "orders", str(CHART), "--kube-version", KUBERNETES, *options)
    return [each for each in yaml.safe_load_all(text) if each]


def from_the_page() -> list[dict[str, Any]]:
    """What docs/deploy/kubernetes.md has one install; every file of the Secret that its region names is in the command that makes it."""
    (values,) = re.findall(r"^```yaml\n(region:\n.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (command,) = re.findall(r"^kubectl create secret generic .*?\n```", PAGE, re.MULTILINE | re.DOTALL)
    given = {Path(file).name for file in re.findall(r"--from-file=([^\s=]+)", command)}
    assert set(re.findall(r"/secrets/([\w.-]+)", values)) == given, given
    assert f"generic {yaml.safe_load(values)['secret']} " in command
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(values)
        file.flush()
        return template("-f", file.name)


def check_page(objects: list[dict[str, Any]]) -> None:
    """Its image, its names and its commands are those of the chart and of the command line; its table has every value, with its default."""
    from crkafka_core.cli.main import VERBS

    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    (host,) = deployment["spec"]["template"]["spec"]["containers"]
    built = set(re.findall(r"(?:-t|docker push) (\S+:\S+)", PAGE))
    assert built == {host["image"]}, built ^ {host["image"]}
    text = PAGE + (CHART / "templates" / "NOTES.txt").read_text()
    named = set(re.findall(r"\bdeploy/([\w{][^\n]*?)(?= -|$)", text, re.MULTILINE)) - {"Dockerfile", "chart"}
    assert named == {deployment["metadata"]["name"], '{{ include "crkafka.name" . }}'}, named
    verbs = set(re.findall(r"(?:`|-- )crkafka ([a-z]+)", text))
    assert verbs and verbs <= VERBS.keys(), verbs - VERBS.keys()
    table = PAGE.partition("| value |")[2].partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table]
    told = {name: default.strip("`") for names, _, default in rows for name in re.findall(r"`([\w.]+)`", names)}
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    documented = {name.partition(".")[0] for name in told}
    assert documented == values.keys(), documented ^ values.keys()
    for name, default in told.items():
        value: Any = values
        for part in name.split("."):
            value = value[part]
        assert isinstance(value, dict | list) or default == str(value).lower(), (name, default, value)


def check_typos() -> None:
    """A value that the chart does not know is refused by Helm."""
    for wrong in ("metrics.podmonitor.enabled=true", "secrets=x", "networkPolicy.enabled=yes", "region.region="):
        command = [
            str(GO / "bin" / "helm"),
            "template",
            "orders",
            str(CHART),
            "--kube-version",
            KUBERNETES,
            "--set",
            wrong,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode and "schema" in done.stderr, (wrong, done.stdout, done.stderr)


def strict(schema: Any) -> Any:
    """The schema, with unknown keys refused wherever it names the known ones."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {} if "properties" not in schema or "additionalProperties" in schema else {"additionalProperties": False}
    return {key: strict(value) for key, value in schema.items()} | closed


def schema_of(kind: str, version: str) -> dict[str, Any]:
    """The schema of an object: of Kubernetes, as kubectl-validate holds it, or of the Prometheus operator."""
    if kind == "PodMonitor":
        (file,) = GO.glob("pkg/mod/github.com/prometheus-operator/*/example/prometheus-operator-crd/*_podmonitors.yaml")
        (crd,) = yaml.safe_load(file.read_text())["spec"]["versions"]
        return crd["schema"]["openAPIV3Schema"]
    (builtins,) = GO.glob(f"pkg/mod/sigs.k8s.io/kubectl-validate@*/pkg/openapiclient/builtins/{KUBERNETES}")
    group = f"apis/{version}" if "/" in version else f"api/{version}"
    components = json.loads((builtins / f"{group}.json").read_text())["components"]
    (name,) = (n for n in components["schemas"] if n.startswith("io.k8s.api.") and n.endswith(f".{kind}"))
    return {"$ref": f"#/components/schemas/{name}", "components": components}


def check_schemas(objects: list[dict[str, Any]]) -> None:
    """Each object is one that the API server would take."""
    with tempfile.TemporaryDirectory() as folder:
        for each in objects:
            schema = strict(schema_of(each["kind"], each["apiVersion"]))
            (Path(folder) / f"{each['kind'].lower()}.json").write_text(json.dumps(schema))
        manifest = Path(folder) / "objects.yaml"
        manifest.write_text(yaml.safe_dump_all(objects))
        run("kubeconform", "-strict", "-schema-location", f"{folder}/{{{{.ResourceKind}}}}.json", str(manifest))


def check_host(objects: list[dict[str, Any]]) -> None:
    """The pod runs a command that exists, with probes that the host answers, on a configuration without warnings."""
    from crkafka_core.cli.main import cli
    from crkafka_core.config import RegionConfig
    from crkafka_core.region import probes

    of = {each["kind"]: each for each in objects}
    pod = of["Deployment"]["spec"]["template"]["spec"]
    (host,) = pod["containers"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "region.yaml"
        file.write_text(of["ConfigMap"]["data"]["region.yaml"])
        region = RegionConfig.load(file)
    assert region.warnings() == [], region.warnings()
    for container in [host, *pod.get("initContainers", [])]:
        outer = cli.make_context("crkafka", list(container["args"]))
        name, command, rest = cli.resolve_command(outer, [*outer._protected_args, *outer.args])
        assert command is not None and name == container["name"]
        command.make_context(name, list(rest), parent=outer)
    assert {host[p]["httpGet"]["path"] for p in ("livenessProbe", "readinessProbe", "startupProbe")} == {
        "/livez",
        "/readyz",
    }
    alive = host["livenessProbe"]
    assert alive["periodSeconds"] * alive["failureThreshold"] >= probes.SILENT
    assert pod["terminationGracePeriodSeconds"] == 2 * region.drain_timeout + 120
    assert {mount["name"] for mount in host["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def check_image() -> None:
    """What the image copies is in the tree and let through by .dockerignore, and holds every package that the project has."""
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    copied = {
        name
        for line in text.splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for name in line.split()[1:-1]
    }
    assert [name for name in copied if not (ROOT / name).exists()] == []
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied == allowed, copied ^ allowed
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {pattern.rstrip("*") for pattern in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert packages <= copied, packages - copied
    chart, version = yaml.safe_load((CHART / "Chart.yaml").read_text()), project["project"]["version"]
    assert chart["version"] == chart["appVersion"] == version and f"crkafka:{version} " in text
    assert text.count("--require-hashes") == 2 and "USER 10001:10001" in text


def main() -> None:
    check_image()
    run("helm", "lint", "--strict", str(CHART))
    usual, everything = rendered(), rendered(*EVERYTHING)
    assert {o["kind"] for o in usual} == {"ConfigMap", "Deployment", "PodDisruptionBudget"}
    assert {o["kind"] for o in everything} == {
        "ConfigMap",
        "Deployment",
        "PodDisruptionBudget",
        "PodMonitor",
        "NetworkPolicy",
    }
    check_typos()
    check_page(from_the_page())
    for objects in (usual, everything, from_the_page()):
        check_schemas(objects)
        check_host(objects)
    print("deploy/: the chart is linted, rendered and valid; the image copies what there is")


if __name__ == "__main__":
    main()
