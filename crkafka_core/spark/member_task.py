"""Runs a member inside a Spark task, in the task's Python process (SPEC K1).

An end that needs a restart is raised, so that Spark runs this task again.
"""

from __future__ import annotations

import os
import socket
import time

from pyspark import TaskContext

from crkafka_core import logs
from crkafka_core.config.region_config import RegionConfig
from crkafka_core.hosts.supervisor import STABLE_S, restart_delay
from crkafka_core.member.exit_codes import NO_RESTART
from crkafka_core.member.main import run_member
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.rows import Member
from crkafka_core.plane.transact import open_plane


class MemberEnded(RuntimeError):
    """A member was lost or failed; Spark's next attempt is its next incarnation."""


def be_member(config_json: str, name: str, log_level: str, log_format: str = "text") -> int:
    """Run this member until its clean end; the exit code."""
    logs.begin(log_level, log_format, who=name, force=True)  # Spark reuses Python processes, also of another member
    config = RegionConfig.from_json(config_json)
    context = TaskContext.get()
    _back_off(config, name, context.attemptNumber() if context else 0)
    code = run_member(config, name, host=f"{socket.gethostname()} pid {os.getpid()}")
    if code not in NO_RESTART and code != 0:
        raise MemberEnded(f"Member {name} ended with code {code}; Spark starts it again.")
    return code


def _back_off(config: RegionConfig, name: str, attempt: int) -> None:
    """Wait longer before each try of a member that does not live long: Spark itself tries again at once."""
    if attempt < 2:
        return
    try:
        plane = open_plane(config)
        try:
            lived = plane.read(
                lambda reader, row: reader.now() - getattr(reader.get(Member, name), "registered_at", 0.0)
            )
        finally:
            plane.store.close()
    except CrkafkaError:
        lived = 0.0
    if lived < STABLE_S:
        time.sleep(restart_delay(attempt))
