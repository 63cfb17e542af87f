"""What README and docs say about configuration and command line is true: keys, verbs, examples, links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from crkafka_core.cli.main import VERBS, cli
from crkafka_core.config import RegionConfig

ROOT = Path(__file__).parents[2]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def yaml_blocks(text: str) -> list[str]:
    return [b for b in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "region:" in b and "attributes:" not in b]


def test_every_key_is_in_the_table_of_the_configuration() -> None:
    table = OPERATIONS.split("## The configuration")[1].split("## The command line")[0]
    assert [k for k in RegionConfig.model_fields if f"`{k}`" not in table] == []


def test_every_verb_is_in_the_table_of_the_command_line() -> None:
    table = OPERATIONS.split("## The command line")[1].split("## Running it")[0]
    assert [v for v in VERBS if f"`crkafka {v}" not in table] == []


def test_every_verb_and_option_that_is_mentioned_exists() -> None:
    mentioned = re.findall(r"crkafka (?:-c \S+ )?([a-z]+)((?: [\w.:/-]+)*)", OPERATIONS + README)
    used = [(verb, re.findall(r"--([a-z-]+)", rest)) for verb, rest in mentioned if verb in VERBS]
    assert len(used) > 40
    for verb, options in used:
        command = cli.get_command(None, verb)  # type: ignore[arg-type]
        commands = [command, *getattr(command, "commands", {}).values()]
        known = {o.lstrip("-") for c in commands for p in c.params for o in (*p.opts, *p.secondary_opts)}
        assert set(options) <= known, f"crkafka {verb}: {options}"


@pytest.mark.parametrize("block", yaml_blocks(README) + yaml_blocks(OPERATIONS))
def test_every_example_is_a_good_configuration(block: str, tmp_path: Path) -> None:
    file = tmp_path / "region.yaml"
    file.write_text(block)
    config = RegionConfig.load(file)
    assert config.region == yaml.safe_load(block)["region"]


def test_there_are_examples() -> None:
    assert len(yaml_blocks(README)) >= 1
    assert len(yaml_blocks(OPERATIONS)) >= 1


@pytest.mark.parametrize("page", ["README.md", "docs/operations.md"])
def test_links_and_anchors_lead_somewhere(page: str) -> None:
    file = ROOT / page
    text = file.read_text(encoding="utf-8")
    anchors = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"(?m)^#+ (.*)$", text)}
    for target in re.findall(r"\]\(([^)]+)\)", text):
        path, _, anchor = target.partition("#")
        if path:
            assert (file.parent / path).exists(), target
        else:
            assert anchor in anchors, target
