"""`init` and `check`: the steps before a region runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from crkafka_core.cli import checks
from crkafka_core.cli.call import COMMANDS, Answer, called, config_options, json_option, register
from crkafka_core.cli.output import note, of_the_machine, print_json
from crkafka_core.config import RegionConfig, redact
from crkafka_core.model.errors import CrkafkaError, ServiceUnavailable
from crkafka_core.model.plural import plural
from crkafka_core.model.visible import visible
from crkafka_core.plane import transact


@dataclass(frozen=True)
class Finding:
    what: str
    ok: bool
    text: str
    exit_code: int = 0


def check(config: RegionConfig, *, offline: bool = False) -> Iterator[Finding]:
    """Check everything that the configuration names, one thing after another; changes and raises nothing."""
    yield Finding("configuration", True, f"region {config.region}, {plural(config.members, 'member')}")
    yield from (Finding("configuration", True, f"warning: {text}") for text in config.warnings())
    known = checks.Stored()
    references = _finding("references", lambda: checks.references(config))
    yield references
    if offline or not references.ok:
        return

    def control_plane() -> str:
        nonlocal known
        known = checks.stored(config)
        return "reached" if known.row else "the region does not exist yet: `crkafka init` makes it"

    yield _finding("control plane", control_plane)
    if known.row is not None:
        yield _finding("region", lambda: checks.region(config, known))
    yield _finding("storage", lambda: checks.storage(config, known))
    kafka = _finding("kafka", lambda: checks.kafka(config, known))
    yield kafka
    if kafka.exit_code != ServiceUnavailable.exit_code:
        group = _finding("group", lambda: checks.group(config, known))
        if group.ok or group.text != kafka.text:  # one failure of both is shown once
            yield group
    if checks.by_registry(config):
        yield _finding("registry", lambda: checks.registry(config))
    if config.tables or config.templates or known.tables:
        yield _finding("tables", lambda: checks.tables(config, known))
    yield _finding("host", lambda: checks.host(config, known))


def _finding(what: str, ask: Callable[[], str]) -> Finding:
    try:
        return Finding(what, True, ask())
    except CrkafkaError as error:
        return Finding(what, False, redact(str(error)), error.exit_code)
    except OSError as error:  # such as a right that this user lacks; the checks after it run all the same
        text = of_the_machine(error)
        if not text:
            raise
        return Finding(what, False, redact(text), ServiceUnavailable.exit_code)


def init(config: RegionConfig) -> Answer:
    """Make or migrate the control plane's tables, and make or update the region, if its storage can be written; safe to repeat."""
    from crkafka_core.region import Region
    from crkafka_core.segments.storage import Storage

    Storage.of(config).check(tables=config.commits_to_storage)  # without it the region could never write a record
    transact.initialise(config.resolved_control_plane())
    known = checks.stored(config)
    if known.row is not None:
        checks.refuse(known.row, config)
    checks.group_is_free(config, known)
    with Region.open(config) as region:
        row = region.init(again=True)
    made, changed = known.row is None, [] if known.row is None else checks.since(known.row, config)
    warning = checks.read_otherwise(changed)
    for text in (*config.warnings(), *filter(None, [warning])):
        note(f"warning: {text}")
    then = f"{'`crkafka check` checks Kafka too, ' if made else ''}`crkafka host` runs its members"
    lines = [f"region {config.region} {'is made' if made else 'exists'} (uid {row.uid}); {then}"]
    lines += [f"changed: {change}" for change in changed]
    notes = []
    if changed:
        notes.append("restart a running host: it keeps the configuration that it started with, also for new tables")
    if not made and row.members_wanted != config.members:
        wanted = plural(row.members_wanted, "member is", "members are")
        notes.append(f"{wanted} wanted, as before; `crkafka scale {config.members}` changes that")
    value = {"region": config.region, "uid": row.uid, "made": made, "changed": list(map(str, changed))}
    return Answer({**value, "members_wanted": row.members_wanted, "warning": warning}, "\n".join(lines), notes)


def _print_schema(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from crkafka_core.config import schema

        click.echo(schema.text(), nl=False)
        context.exit()


@register("check")
@click.option("--offline", is_flag=True, help="Only the configuration itself.")
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON schema of the configuration, for editors, and end.",
)
@json_option
def _check(config: RegionConfig, offline: bool, as_json: bool) -> int:
    """Check the configuration, and that everything it names exists and goes together.

    \b
    An editor completes the keys of region.yaml, if its first line is
      # yaml-language-server: $schema=region.schema.json
    and that file is written by
      crkafka check --schema > region.schema.json
    """
    findings = []
    for finding in check(config, offline=offline):
        findings.append(finding)
        if not as_json:
            print(visible(f"{'ok    ' if finding.ok else 'WRONG '} {finding.what}: {finding.text}"), flush=True)
    if as_json:
        print_json(findings)
    return max(f.exit_code for f in findings)


@click.command("init")
@config_options
@click.option("--roles", "only_roles", is_flag=True, help="Print SQL for psql that makes the roles, and end.")
@json_option
def _init(config_file: Path | None, region_name: str | None, only_roles: bool, as_json: bool) -> None:
    """Make or migrate the control plane's tables, and make the region or update its configuration. Safe to repeat.

    With --roles: print SQL that makes the PostgreSQL roles owner, region, reader and viewer; needs no configuration.
    """
    call = called(config_file, region_name)
    if only_roles:
        print(transact.roles("postgresql:" if call.file is None else call.config().control_plane))
        return
    init(call.config()).give(as_json)


COMMANDS["init"] = _init
