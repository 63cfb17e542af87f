"""`verify`: reads back segments and tables, and judges every invariant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from crkafka_core.cli.call import Answer, verb
from crkafka_core.cli.output import Say, plain
from crkafka_core.config import RegionConfig
from crkafka_core.model.plural import plural
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


@verb("verify", doing="verifying")
@click.option("--kafka/--no-kafka", default=True, show_default=True, help="Compare with the records in Kafka.")
@click.option(
    "--ledger",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The ledger of the generator that produced the records.",
)
@click.option("--quiet", is_flag=True, help="The region is at rest: committed offsets must equal the head.")
def _verify(config: RegionConfig, kafka: bool, ledger: Path | None, quiet: bool, say: Say) -> Answer:
    """Read back what landed, and the declared tables, and name the first record that breaks an invariant; then exit code 1.

    Changes nothing; the region may run meanwhile.
    """
    say("reading what landed")
    verdict = verify(config, kafka=kafka, ledger=ledger, quiet=quiet)
    waiting = late(config)
    ok = verdict.ok and not waiting
    notes = list(verdict.notes)
    if verdict.orphans:
        files = plural(verdict.orphans, "orphaned file")
        it, began = ("it", "it") if verdict.orphans == 1 else ("them", "they")
        notes.insert(
            0,
            f"{files}, invisible to readers; `crkafka retire` collects {it} once the head is past where {began} began",
        )
    return Answer(
        {**plain(verdict), "ok": ok, "late": waiting}, "\n".join([str(verdict), *waiting]), notes, int(not ok)
    )
