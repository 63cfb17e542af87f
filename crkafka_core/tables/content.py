"""What belongs in a table of adopted files, by SQL (SPEC K6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crkafka_core.control import Reader
from crkafka_core.model.rows import Region, Table
from crkafka_core.plane import contents
from crkafka_core.plane.contents import Piece
from crkafka_core.tables import places
from crkafka_core.tables.log import DataFile
from crkafka_core.tables.places import SortedFiles


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
