"""Tells what happens as it happens: steps, and the region's own event log."""

from __future__ import annotations

import threading
import time

from rich.console import Console

from crkafka_core.model.rows import Event, TableCommit
from crkafka_core.plane import events
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

    def step(self, text: str) -> None:
        self._step += 1
        self.console.print(f"\n[bold cyan]{self._step}. {text}[/]")

    def say(self, text: str) -> None:
        self.console.print(f"   [dim]{time.monotonic() - self._began:5.1f} s[/]  {text}")

    def follow(self, region: Region) -> None:
        threading.Thread(target=self._follow, args=(region,), name="narrator", daemon=True).start()

    def end(self) -> None:
        self._over.set()

    def _follow(self, region: Region) -> None:
        seq, total, taken = 0, 0, 0
        while not self._over.wait(0.3):
            done = region.plane.read(
                lambda reader, row: reader.select(TableCommit, ("region", "=", row.name), ("status", "=", "DONE"))
            )
            for commit in done[taken:]:
                self.say(
                    f"the table grew: {commit.rows} rows of checkpoints {commit.after + 1} to {commit.upto}, by a Spark run"
                )
            taken = len(done)
            for event in region.plane.read(lambda reader, row, s=seq: events.since(reader, row.name, s)):  # type: ignore[misc]
                seq = event.seq
                if event.kind == "merged":
                    total += int(event.text.split()[0])
                self._tell(event, total)

    def _tell(self, event: Event, total: int) -> None:
        if event.kind not in TOLD:
            return
        words = TOLD[event.kind]
        match event.kind:
            case "merged":
                self.say(f"{words}: {event.checkpoint}, {event.text}; {total} rows in all")
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
