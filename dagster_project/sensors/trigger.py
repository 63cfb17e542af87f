"""Due cuts: a thread of the code server opens each when it is due, and a tick launches the run that follows it (SPEC V1, V2).

No cut waits for the daemon's loop, a queue or a process to start (docs/clients.md C-D1, C-D2).
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import dagster as dg

from crkafka_core.control import Reader
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.rows import Checkpoint, CheckpointStatus, Region
from crkafka_core.plane import checkpoints, cuts, leases
from crkafka_core.region.lease import DriverLease
from dagster_project.names import CHECKPOINT, CUT, TRIGGER
from dagster_project.resources import RegionResource
from dagster_project.sensors.shared import Cursor, SensorSetup, on_its_way, read_or_skip, run_key

NEVER = 60.0

AFTER_TICK_S = 20.0
"""Seconds after a tick for which cuts are opened: ticks come every five, on a busy machine every fifteen (docs/clients.md C-D1)."""

PAUSE_S = 0.5
"""Seconds until the next try after a cut could not be opened."""

OPEN_FOR_S = 1.0
"""Seconds after which a cut that is still open gets a run: one that finds nothing new is over by then, and gets none."""

RECENT = 20
"""Checkpoints among which the latest cut of the trigger is sought."""


@dataclass(frozen=True)
class Due:
    """The next cut, from one snapshot of the control plane."""

    region: Region
    after: float
    """Seconds until it is due; at most 0 when it is."""
    cause: str
    driver: str
    """Holder of the driver's lease; no cut is opened beside that one's."""

    @property
    def now(self) -> bool:
        return self.after <= 0 and bool(self.cause) and not self.driver


def next_cut(reader: Reader, region: Region, *, period: float | None, counted: bool) -> Due:
    at = cuts.due_at(region, period=period, counted=counted)
    held = leases.held(reader, leases.DRIVER)
    cause = cuts.why_due(reader, region, period=period, counted=counted)
    return Due(region, NEVER if at is None else at - reader.now(), cause, held[0].holder if held else "")


def token_of(region: Region) -> str:
    """Of the cut that the trigger opens next: by it the run finds the cut that it follows."""
    return f"{TRIGGER} {region.epoch}:{region.filling}"


class Opener:
    """Opens the due cuts of one region, by a thread that ends when no tick has come for a while."""

    def __init__(self, region: RegionResource) -> None:
        self._region = region
        self._lock = threading.Lock()
        self._until = 0.0
        self._running = False
        self.failure = ""
        """Why the latest due cut could not be opened; empty once one was."""

    def go_on(self, seconds: float = AFTER_TICK_S) -> None:
        """Open cuts for so long from now."""
        with self._lock:
            self._until = time.monotonic() + seconds
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="cuts", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                left = self._until - time.monotonic()
                self._running = left > 0
            if left <= 0:
                return
            try:
                self._turn(left)
            except Exception as error:  # whatever it is: without this thread there would be no cuts
                self.failure = str(error) if isinstance(error, CrkafkaError) else f"{type(error).__name__}: {error}"
                time.sleep(PAUSE_S)

    def _turn(self, patience: float) -> None:
        """Open the cut that is due, or wait for a change or for the time when one is."""
        region, trigger = self._region, self._region.settings.trigger
        due = region.read(
            lambda reader, row: next_cut(reader, row, period=trigger.period, counted=trigger.operator_driven)
        )
        if due.now:
            token = token_of(due.region)
            with DriverLease(region.plane, leases.DRIVER, TRIGGER, token=token) as lease:
                region.open().open_cut(token=token, cause=due.cause, lease=lease.lease, if_new=True)
            self.failure = ""
        else:
            region.plane.wait(due.region.version, min(patience, due.after if due.after > 0 else PAUSE_S))


@dataclass(frozen=True)
class TriggerCursor(Cursor):
    """The latest cut that was given a run."""

    uid: str = ""
    followed: int = 0


def latest(reader: Reader, above: int) -> Checkpoint | None:
    """The latest cut of the trigger above this number that deserves a run: not one that found nothing new."""
    for cut in checkpoints.newest(reader, RECENT):
        if cut.id > above and cut.token.startswith(TRIGGER) and cut.status is not CheckpointStatus.EMPTY:
            open_for = reader.now() - cut.opened_at
            if cut.status is not CheckpointStatus.OPEN or open_for > OPEN_FOR_S:
                return cut
    return None


def sensor(setup: SensorSetup, job: dg.JobDefinition) -> dg.SensorDefinition:
    trigger, opener = setup.region.settings.trigger, Opener(setup.region)

    def look(reader: Reader, row: Region, cursor: TriggerCursor) -> tuple[Due, Checkpoint | None]:
        due = next_cut(reader, row, period=trigger.period, counted=trigger.operator_driven)
        known = cursor if cursor.uid == row.uid else TriggerCursor(row.uid)
        return due, latest(reader, known.followed)

    @dg.sensor(
        name=setup.names.of("trigger"),
        job=job,
        minimum_interval_seconds=1,
        default_status=setup.status,
        description="Opens cuts when they are due, by period or by number of records, and launches a run of the job cut that follows the "
        "latest. A cut without new records gets no run.",
    )
    def follow(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        cursor = TriggerCursor.parse(context.cursor)
        seen = read_or_skip(setup.region, lambda reader, row: look(reader, row, cursor))
        if isinstance(seen, dg.SkipReason):
            return seen
        due, cut = seen
        opener.go_on()
        row = due.region
        if cut is None:
            return dg.SkipReason(opener.failure or _next(due))
        if on_its_way(context.instance, setup.names.tags, job.name, begun=False):
            return dg.SkipReason(f"cut {cut.id} has no run yet: the run of an earlier one has not started")
        tags = {**setup.names.tags, CUT: cut.token, CHECKPOINT: str(cut.id)}
        request = dg.RunRequest(run_key=run_key(row, "cut", checkpoint=cut.id), tags=tags)
        return dg.SensorResult(run_requests=[request], cursor=str(TriggerCursor(row.uid, cut.id)))

    return follow


def _next(due: Due) -> str:
    if due.driver:
        return f"{due.region.phase}: {due.driver} drives a cut"
    return f"{due.region.phase}: " + (f"next cut in {due.after:.1f} s" if 0 < due.after < NEVER else "no cut is due")
