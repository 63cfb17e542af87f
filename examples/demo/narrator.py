"""Tells what happens as it happens: steps, the region's own event log, and on a terminal a live view below them."""

from __future__ import annotations

import threading
import time

from rich.console import Console
from rich.live import Live

from crkafka_core.cli.watching import brief, rate_of
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Event, TableCommit
from crkafka_core.plane import events
from crkafka_core.plane.checkpoints import rows_of
from crkafka_core.plane.status import Status
from crkafka_core.region import Region

TOLD = {
    "birth": "where every partition starts is written in SQL",
    "registered": "a member registered",
    "merged": "checkpoint merged",
    "reset": "the region resets",
    "resumed": "the region runs",
    "stopped": "the region STOPPED",
    "idle": "the members leave",
}


class Narrator:
    """Prints with the seconds since the beginning."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self._began = time.monotonic()
        self._step = 0
        self._over = threading.Event()
        self._live: Live | None = None
        self._look: Status | None = None
        self._seq, self._rows = 0, 0
        self._known: set[tuple[str, int]] = set()

    def step(self, text: str) -> None:
        self._step += 1
        self.console.print(f"\n[bold cyan]{self._step}. {text}[/]")

    def say(self, text: str) -> None:
        self.console.print(f"   [dim]{time.monotonic() - self._began:5.1f} s[/]  {text}")

    def follow(self, region: Region) -> None:
        if self.console.is_terminal:
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()
        threading.Thread(target=self._follow, args=(region,), name="narrator", daemon=True).start()

    def end(self) -> None:
        """No more is told; the live view is gone."""
        self._over.set()
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _show(self, region: Region) -> None:
        """Throughput, members, the open cut, and how fresh the tables are."""
        look = region.status()
        if self._live is not None:
            self._live.update(brief(look, rate_of(self._look, look)), refresh=True)
        self._look = look

    def _follow(self, region: Region) -> None:
        while not self._over.wait(0.3):
            self.turn(region)

    def turn(self, region: Region) -> None:
        """Tell what is new since the last time."""
        done = region.plane.read(lambda reader, row: reader.select(TableCommit, ("status", "=", "DONE")))
        for commit in done:
            if commit.rows and (commit.table, commit.number) not in self._known:
                what = f"checkpoint {commit.upto}"
                if commit.after + 1 < commit.upto:
                    what = f"checkpoints {commit.after + 1} to {commit.upto}"
                self.say(f"{commit.table} grew: {plural(commit.rows, 'row')} of {what}")
        self._known = {(commit.table, commit.number) for commit in done}
        for event in region.plane.read(lambda reader, _: events.since(reader, self._seq)):
            self._seq = event.seq
            if event.kind == "merged":
                self._rows += sum(region.plane.read(lambda r, _, id=event.checkpoint: rows_of(r, [id])).values())  # type: ignore[misc]
            self._tell(event)
        if self._live is not None:
            self._show(region)

    def _tell(self, event: Event) -> None:
        if event.kind not in TOLD:
            return
        words = TOLD[event.kind]
        match event.kind:
            case "merged":
                self.say(f"{words}: {event.checkpoint}, {event.text}; {plural(self._rows, 'row')} in all")
            case "registered":
                self.say(f"{words}: {event.member}, {event.text}")
            case "reset":
                self.say(f"[yellow]{words}[/] to checkpoint {event.checkpoint}, epoch {event.epoch}: {event.text}")
            case "resumed":
                self.say(f"[green]{words}[/] in epoch {event.epoch}, {event.text}")
            case "stopped":
                self.say(f"[red]{words}[/]: {event.text}")
            case _:
                self.say(f"{words}: {event.text}")
