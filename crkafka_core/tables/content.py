"""What belongs in a table of adopted files, by SQL; and what counts of a version that is there (SPEC K6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crkafka_core.control import Reader
from crkafka_core.lake.handle import Handle
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import contents, reading, tables
from crkafka_core.plane.contents import Piece
from crkafka_core.tables import last_commit, places
from crkafka_core.tables.log import DataFile, Logs
from crkafka_core.tables.places import SortedFiles
from crkafka_core.tables.stamp import app_of


@dataclass(frozen=True)
class Content:
    """What belongs in a table, by SQL."""

    uid: str
    belongs: Callable[[int], bool]
    pieces: Sequence[Piece]
    gone: Sequence[Piece]
    """What leaves with a fence."""
    forgotten: bool
    """SQL does not know the beginning of the line any more."""

    def among(self, there: Sequence[DataFile]) -> SortedFiles:
        return places.sort_files(there, self.uid, self.belongs, self.pieces)

    def gone_inside(self, there: Sequence[DataFile]) -> Sequence[Piece]:
        """What leaves, with its rows in files that name no checkpoint."""
        gone = {piece.checkpoint for piece in self.gone}
        return places.sort_files(there, self.uid, gone.__contains__, self.gone).pieces


def content_of(reader: Reader, row: Region, table: Table, shown: int | None = None) -> Content:
    """`shown`: up to which checkpoint the table shows what is not acknowledged; None: nobody asks what leaves."""
    return Content(
        row.uid,
        contents.belonging(reader, row, table),
        contents.pieces(reader, row, contents.live_in(reader, row, table)),
        () if shown is None else contents.pieces(reader, row, contents.leaving(reader, row, table, shown)),
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

    def ask(reader: Reader, row: Region) -> Content:
        now, facts = tables.of(reader, table.name), snapshot.facts(app_of(row.uid, table.name))
        return content_of(reader, row, now, last_commit.shown(facts, last_commit.standing(reader, now, facts)))

    content, there = region.plane.read(ask), snapshot.files()
    wrong = sorted({c for c, _ in content.among(there).wrong})
    inside = (piece for piece in content.gone_inside(there) if piece.rows > 0)
    return View(content.uid, snapshot.at, wrong, [r for piece in inside for r in piece.ranges])
