"""What README and docs say about configuration and command line is true: keys, verbs, examples, links."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import crkafka_core
from crkafka_core.cli.main import MOVED, VERBS, cli
from crkafka_core.config import RegionConfig
from crkafka_core.config.sections import TableConfig

ROOT = Path(__file__).parents[2]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
STARTER = Path(crkafka_core.__file__).parent / "starter"
PAGES = [ROOT / "README.md", STARTER / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EVERYTHING = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def yaml_blocks(text: str) -> list[str]:
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    return [b for b in blocks if re.search(r"(?m)^region: ", b) and "attributes:" not in b and "# refused" not in b]


def test_every_key_is_in_the_table_of_the_configuration() -> None:
    table = OPERATIONS.split("## The configuration")[1].split("## The command line")[0]
    models = (RegionConfig, TableConfig)
    known = [field.alias or name for model in models for name, field in model.model_fields.items()]
    assert [k for k in known if f"`{k}`" not in table] == []


def test_install_names_the_versions_of_python_that_there_are_tests_for() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    *others, last = re.findall(r"Python :: (3\.\d+)", "\n".join(classifiers))
    assert f"Python {', '.join(others)} or {last}" in README.split("## Install")[1]


def test_every_verb_is_in_the_table_of_the_command_line() -> None:
    table = OPERATIONS.split("## The command line")[1].split("## Running it")[0]
    assert [v for v in VERBS if f"`crkafka {v}" not in table] == []


def test_every_verb_and_option_that_is_mentioned_exists() -> None:
    mentioned = re.findall(r"crkafka (?:-c \S+ )?([a-z]+)((?: [\w.:/-]+)*)", EVERYTHING)
    used = [(verb, re.findall(r"--([a-z-]+)", rest)) for verb, rest in mentioned if verb in VERBS]
    assert len(used) > 40
    assert [verb for verb, _ in mentioned if verb in MOVED] == []
    for verb, options in used:
        command = cli.get_command(None, verb)  # type: ignore[arg-type]
        commands = [command, *getattr(command, "commands", {}).values()]
        known = {o.lstrip("-") for c in commands for p in c.params for o in (*p.opts, *p.secondary_opts)}
        assert set(options) <= known, f"crkafka {verb}: {options}"


def test_every_command_that_a_message_names_exists() -> None:
    rooms = ("crkafka_core", "dagster_project", "checkpoints_db", "deploy", "examples", "docs")
    files = [
        f for room in rooms for f in (ROOT / room).rglob("*") if f.suffix in {".py", ".sql", ".yaml", ".md", ".txt"}
    ]
    named = {
        command for f in files for command in re.findall(r"`crkafka ((?:tables |dev )?[a-z]+)", f.read_text("utf-8"))
    }
    groups = {name: cli.get_command(None, name).commands for name in ("tables", "dev")}  # type: ignore[arg-type, union-attr]
    known = {*VERBS, *(f"{group} {sub}" for group, subs in groups.items() for sub in subs)}
    assert "tables undeclare" in named and named <= known


@pytest.mark.parametrize("block", yaml_blocks(EVERYTHING))
def test_every_example_is_a_good_configuration(block: str, tmp_path: Path) -> None:
    file = tmp_path / "region.yaml"
    file.write_text(block)
    (tmp_path / "order.schema.json").write_text((STARTER / "order.schema.json").read_text())  # which some of them name
    config = RegionConfig.load(file)
    assert config.region == yaml.safe_load(block)["region"]


def test_the_region_of_the_readme_has_a_typed_table_with_dead_letters_beside_the_raw_one() -> None:
    raw, typed = yaml.safe_load(yaml_blocks(README)[0])["tables"]
    assert "typed" not in raw
    assert (typed["on_bad_record"], list(typed["typed"])) == ("dead_letter", ["json"])


def test_each_claim_about_others_has_a_link() -> None:
    """What is told of another system in the comparison, cell by cell; what it needs is its name."""
    page = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in page.splitlines() if line.startswith("| [")
    ]
    assert len(rows) == 5
    for name, exactly_once, back, _, better in rows:
        assert [cell for cell in (name, exactly_once, back, better) if "](http" not in cell] == []


def test_there_are_examples() -> None:
    assert len(yaml_blocks(README)) >= 1
    assert len(yaml_blocks(OPERATIONS)) >= 1
    assert len(yaml_blocks(EVERYTHING)) >= 6
