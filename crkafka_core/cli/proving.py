"""`verify`: reads back segments and tables, and judges every invariant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from crkafka_core.cli.call import json_option, with_config
from crkafka_core.cli.output import note, plain, print_json, progress
from crkafka_core.config import RegionConfig
from crkafka_core.model.plural import plural
from crkafka_core.model.visible import visible
from crkafka_core.plane import lateness
from crkafka_core.region import Region

if TYPE_CHECKING:
    from crkafka_core.verify.verdict import Verdict


def verify(config: RegionConfig, *, kafka: bool = True, ledger: Path | None = None, quiet: bool = False) -> Verdict:
    """Judge segments and tables by SQL and Kafka; changes nothing. `quiet`: committed offsets must equal the head."""
    from crkafka_core.verify.ledger import Ledger
    from crkafka_core.verify.verify import verify as judge

    with Region.open(config) as region:
        return judge(region, Ledger.load(ledger) if ledger else None, kafka=kafka, quiet=quiet)


def late(config: RegionConfig) -> list[str]:
    """Sentences on declared tables that are late (SPEC K6)."""
    with Region.open(config) as region:
        return region.plane.read(lateness.late)


@click.command("verify")
@with_config
@click.option("--kafka/--no-kafka", default=True, show_default=True, help="Compare with the records in Kafka.")
@click.option(
    "--ledger",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The ledger of the generator that produced the records.",
)
@click.option("--quiet", is_flag=True, help="The region is at rest: committed offsets must equal the head.")
@json_option
def _verify(config: RegionConfig, kafka: bool, ledger: Path | None, quiet: bool, as_json: bool) -> int:
    """Read back what landed, and the declared tables, and name the first record that breaks an invariant; then exit code 1.

    Changes nothing; the region may run meanwhile.
    """
    with progress("verifying", quiet=as_json) as say:
        say("reading what landed")
        verdict = verify(config, kafka=kafka, ledger=ledger, quiet=quiet)
        waiting = late(config)
    ok = verdict.ok and not waiting
    if as_json:
        print_json({**plain(verdict), "ok": ok, "late": waiting})
    else:
        print(visible(str(verdict)))
        for text in waiting:
            print(visible(text))
        if verdict.orphans:
            one = verdict.orphans == 1
            note(
                f"{plural(verdict.orphans, 'orphaned file')}, invisible to readers; `crkafka retire` collects "
                f"{'it' if one else 'them'} once the head is past where {'it' if one else 'they'} began"
            )
        for text in verdict.notes:
            note(text)
    return 0 if ok else 1


COMMANDS: dict[str, Any] = {"verify": _verify}
