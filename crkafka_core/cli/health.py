"""`health`: one question for probes and scripts: is there something that somebody should look at? (SPEC X6, X8)"""

from __future__ import annotations

from dataclasses import dataclass

import click

from crkafka_core.cli.call import json_option, with_config
from crkafka_core.cli.output import print_json
from crkafka_core.cli.plane import control_plane
from crkafka_core.config import RegionConfig
from crkafka_core.model.visible import visible
from crkafka_core.plane.status import status_of


@dataclass(frozen=True)
class Health:
    """The answer; from SQL alone."""

    healthy: bool
    phase: str
    alarm: str
    """What somebody should look at; empty when all is well."""


def health(config: RegionConfig) -> Health:
    """Whether the region is stopped, merges nothing, or does not settle."""
    with control_plane(config) as plane:
        status = plane.read(status_of)
        away = "" if status.kafka_away in status.alarm else status.kafka_away
        alarm = " ".join(filter(None, (status.alarm, away))) if status.alarm else ""
        return Health(not alarm, status.region.phase, alarm)


@click.command("health")
@with_config
@json_option
def _health(config: RegionConfig, as_json: bool) -> int:
    """Is there something that somebody should look at? Exit code 0: no, 1: yes."""
    answer = health(config)
    if as_json:
        print_json(answer)
    else:
        print(visible(answer.alarm or f"{answer.phase}: nothing to look at"))
    return 0 if answer.healthy else 1


COMMANDS = {"health": _health}
