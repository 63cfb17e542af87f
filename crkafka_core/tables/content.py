"""What belongs in a table of adopted files, by SQL; and what counts of a version that is there (SPEC K6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crkafka_core.control import Reader
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import contents, reading, tables
from crkafka_core.plane.contents import Piece
from crkafka_core.tables import last_commit, places
from crkafka_core.tables.handle import Handle
from crkafka_core.tables.last_commit import Standing
from crkafka_core.tables.log import DataFile, Logs
from crkafka_core.tables.places import SortedFiles
from crkafka_core.tables.stamp import app_of


@dataclass(frozen=True)
class Content:
    """What belongs in a table, by SQL."""

    uid: str
    belongs: Callable[[int], bool]
    pieces: Sequence[Piece]
    forgotten: bool

    def among(self, there: Sequence[DataFile]) -> SortedFiles:
        return places.sort_files(there, self.uid, self.belongs, self.pieces)


def content_of(reader: Reader, row: Region, table: Table) -> Content:
    return Content(
        row.uid,
        contents.belonging(reader, row, table),
        contents.pieces(reader, row, contents.live_in(reader, row, table)),
        contents.forgotten(reader, row),
    )


@dataclass(frozen=True)
class View:
    """What of a version of the table counts, for who reads it while something in it has to leave."""

    uid: str
    at: str
    """The state of the table that was looked at, as a reader names it."""
    wrong: list[int]
    """Checkpoints whose files do not."""
    ranges: list[reading.KafkaRange]
    """Offsets that do not, in files that name no checkpoint."""


def visible(region: Handle, table: Table, logs: Logs) -> View | None:
    """What of the table counts at this moment; None: there are no rows."""
    snapshot = logs(region, table).snapshot()
    if snapshot is None or not snapshot.at:
        return None
    uid = region.plane.read(lambda _, row: row.uid)
    if table.version == str(snapshot.version) and not table.owes_fence:
        return View(uid, snapshot.at, [], [])

    def ask(reader: Reader, row: Region) -> tuple[Content, list[Piece]]:
        now, facts = tables.of(reader, table.name), snapshot.facts(app_of(row.uid, table.name))
        shown = facts.holds if last_commit.standing(reader, now, facts) is Standing.UNACKNOWLEDGED else 0
        return content_of(reader, row, now), contents.pieces(reader, row, contents.leaving(reader, row, now, shown))

    content, gone = region.plane.read(ask)
    there, left = snapshot.files(), {piece.checkpoint for piece in gone}
    wrong = sorted({c for c, _ in content.among(there).wrong})
    inside = places.sort_files(there, content.uid, lambda c: c in left, gone).pieces
    return View(content.uid, snapshot.at, wrong, [r for piece in inside if piece.rows > 0 for r in piece.ranges])
