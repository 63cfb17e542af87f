"""Hooks of mkdocs: pages that are made from the code, the README as first page, and state diagrams without a script.

`make docs` builds the site into `artifacts/docs`; it opens from the disk, without a server and without a network.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
PYTHON_API = {
    "crkafka": [
        "Region",
        "RegionConfig",
        "initialise",
        "consume",
        "prometheus",
        "open_session",
        "hosted",
        "checkpoints",
        "held",
        "decode",
        "original_records",
        "Json",
        "Avro",
        "Protobuf",
        "Decoder",
    ],
    "crkafka.tables": ["advance", "rewrite", "read_table", "look", "mend"],
    "crkafka.source": ["register"],
    "dagster_project": [
        "consistent_region",
        "checkpointed",
        "ConsistentRegion",
        "RegionResource",
        "SparkSessionResource",
    ],
}
"""What programs use, by module."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Anchors are those of GitHub, where the same pages are read."""
    config["mdx_configs"].setdefault("toc", {})["slugify"] = anchor
    return config


def anchor(heading: str, separator: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", separator)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages that are made here."""
    from mkdocs.structure.files import File

    made = {
        "index.md": readme(),
        "changelog.md": _from_root((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")),
        "contributing.md": _from_root((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")),
        "reference/configuration.md": configuration(),
        "reference/commands.md": commands(),
        "reference/views.md": views(),
        "reference/metrics.md": metrics(),
        "reference/python.md": python_api(),
    }
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links into the tree become names of files; a state diagram becomes the table that it is."""
    markdown = re.sub(r"\[([^\]]+)\]\(\.\./(?!README|CHANGELOG|CONTRIBUTING)[^)]+\)", r"`\1`", markdown)
    markdown = markdown.replace("(../README.md", "(index.md").replace("(../CHANGELOG.md", "(changelog.md")
    markdown = markdown.replace("(../CONTRIBUTING.md", "(contributing.md")
    return re.sub(r"```mermaid\nstateDiagram-v2\n(.*?)```", lambda m: transitions(m[1]), markdown, flags=re.DOTALL)


def on_post_build(config: MkDocsConfig) -> None:
    """The one script that the theme would fetch from elsewhere is here: it lets the search work from the disk."""
    site = Path(config.site_dir)
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        here = "../" * (len(page.relative_to(site).parts) - 1) + "assets/iframe-worker.js"
        page.write_text(text.replace("https://unpkg.com/iframe-worker/shim", here), encoding="utf-8")


def transitions(diagram: str) -> str:
    """From each state: to which, and by what."""
    found: dict[str, list[str]] = {}
    for state, to, event in re.findall(r"^\s+(\S+) --> (\w+)(?:: (\w+))?$", diagram, re.MULTILINE):
        found.setdefault("(begin)" if state == "[*]" else state, []).append(f"{to} ({event})" if event else to)
    rows = [f"| `{state}` | {', '.join(targets)} |" for state, targets in found.items()]
    return "\n".join(["| state | leads to |", "|---|---|", *rows, ""])


def readme() -> str:
    return _from_root((ROOT / "README.md").read_text(encoding="utf-8"))


def _from_root(text: str) -> str:
    """Links of a page of the root, for one in docs."""
    text = (
        text.replace("(docs/", "(")
        .replace("(CONTRIBUTING.md", "(contributing.md")
        .replace("(CHANGELOG.md", "(changelog.md")
    )
    return re.sub(r"\[([^\]]+)\]\((?:LICENSE|examples[^)]*|tests[^)]*)\)", r"`\1`", text)


def configuration() -> str:
    """Every key, from the model's own schema."""
    from crkafka_core.config.schema import schema as region_schema
    from dagster_project.options import Options

    schema = region_schema()
    out = [
        "# Configuration: every key",
        "",
        "Made from the model. [How to write it](../operations.md#the-configuration).",
    ]
    out += ["", *_keys(schema)]
    for name, part in sorted(schema.get("$defs", {}).items()):
        if part.get("properties"):
            out += ["", f"## {name}", "", part.get("description", "").split("\n")[0], "", *_keys(part)]
    out += ["", "## Options of Dagster", "", "Under `dagster` in a component, keywords of `consistent_region`.", ""]
    out += _keys(Options.model_json_schema())
    return "\n".join(out) + "\n"


def _keys(schema: dict[str, Any]) -> list[str]:
    needed = set(schema.get("required", []))
    rows = ["| key | type | default | |", "|---|---|---|---|"]
    for name, part in schema.get("properties", {}).items():
        default = "required" if name in needed else f"`{json.dumps(part['default'])}`" if "default" in part else ""
        rows.append(f"| `{name}` | {_type(part)} | {default} | {_cell(part.get('description', ''))} |")
    return rows


def _type(part: dict[str, Any]) -> str:
    if "$ref" in part:
        return str(part["$ref"]).rpartition("/")[2]
    if "enum" in part:
        return ", ".join(f"`{value}`" for value in part["enum"])
    if "const" in part:
        return f"`{part['const']}`"
    for key in ("anyOf", "oneOf", "allOf"):
        if key in part:
            return " or ".join(dict.fromkeys(_type(p) for p in part[key]))
    if part.get("type") == "array":
        return f"list of {_type(part.get('items', {}))}"
    return str(part.get("type", "any"))


def commands() -> str:
    """Every verb with its help, from the command line itself."""
    import click

    from crkafka_core.cli.main import VERBS, cli

    out = ["# Command line: every verb", "", "Made from `crkafka VERB --help`."]
    top = click.Context(cli, info_name="crkafka", max_content_width=100, terminal_width=100)

    def tell(command: click.Command, context: click.Context, depth: str) -> None:
        said = re.sub(r"(?m)^Usage: ", "", command.get_help(context))
        out.extend(["", f"{depth} {context.command_path}", "", "```text", said.rstrip(), "```"])
        for name, sub in getattr(command, "commands", {}).items():
            tell(sub, click.Context(sub, info_name=name, parent=context), depth + "#")

    for verb in VERBS:
        command = cli.get_command(top, verb)
        assert command is not None
        tell(command, click.Context(command, info_name=verb, parent=top), "##")
    return "\n".join(out) + "\n"


def views() -> str:
    """The views of the control plane and their columns, from a database made anew."""
    import tempfile

    from sqlalchemy import create_engine
    from sqlalchemy import inspect as look

    from checkpoints_db import initialise

    out = ["# SQL views", "", "Made from a fresh control plane. [Examples](../format.md)."]
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/crkafka.db"
        initialise(url)
        engine = create_engine(url)
        found = look(engine)
        for view in sorted(found.get_view_names()):
            columns = ", ".join(f"`{column['name']}`" for column in found.get_columns(view))
            out += ["", f"## {view}", "", columns]
        engine.dispose()
    return "\n".join(out) + "\n"


def metrics() -> str:
    """Every metric and what it says, from the text that a region without members gives."""
    import tempfile

    from checkpoints_db import initialise
    from crkafka_core.config import RegionConfig
    from crkafka_core.region import Region
    from crkafka_core.region.metrics import prometheus

    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/crkafka.db"
        initialise(url)
        kafka = {"bootstrap.servers": "localhost:9092", "group.id": "g"}
        config = RegionConfig.of(region="r", control_plane=url, storage=folder, topics=["t"], kafka=kafka)
        with Region.open(config) as region:
            region.init()
            text = prometheus(region)
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    rows = [
        f"| `{name}` | {kinds.get(name, '')} | {_cell(said)} |"
        for name, said in re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE)
    ]
    return "\n".join(
        [
            "# Metrics",
            "",
            "Made from what a region gives to Prometheus.",
            "",
            "| metric | type | |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def python_api() -> str:
    """Signatures and first paragraphs of what programs use."""
    out = ["# Python API", "", "Made from the code. [Spark](../spark.md) and [Dagster](../dagster.md) have examples."]
    for module, names in PYTHON_API.items():
        package, *inside = module.split(".")
        found = functools.reduce(getattr, inside, importlib.import_module(package))
        out += ["", f"## {module}"]
        for name in names:
            out += _documented(getattr(found, name), name, "###")
    return "\n".join(out) + "\n"


def _documented(thing: Any, name: str, depth: str) -> list[str]:
    out = ["", f"{depth} {name}", "", "```python", f"{name}{_signature(thing)}", "```", "", _paragraph(thing)]
    if inspect.isclass(thing):
        for method, member in vars(thing).items():
            member = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if not method.startswith("_") and inspect.isfunction(member) and member.__doc__:
                out += ["", f"- `{method}{_signature(member)}`  ", f"  {_paragraph(member)}"]
    return out


def _signature(thing: Any) -> str:
    try:
        said = re.sub(r"<[^<>]*(?:<[^<>]*>[^<>]*)*>", "…", str(inspect.signature(thing)))
        return re.sub(r"(: |-> )'([^']*)'", r"\1\2", said).replace("<lambda>", "…")
    except (TypeError, ValueError):
        return "(…)"


def _paragraph(thing: Any) -> str:
    doc = inspect.getdoc(thing) or ""
    return " ".join(doc.split("\n\n")[0].split())


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
