"""Rows that are deleted beside a data file: position deletes of format version 2, one file of them for each data file (SPEC K6).

A commit that marks more rows of a file writes all of its marks again and removes the file with the old ones: a reader opens one file of
marks for each data file, however many commits have marked rows. What others wrote is read too: a file of deletes for several data
files, and the deletion vectors of format version 3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from crkafka_core.lake import vectors
from crkafka_core.lake.iceberg import avro, values
from crkafka_core.lake.iceberg.avro import Entry, Manifest
from crkafka_core.lake.iceberg.manifests import Manifests
from crkafka_core.lake.iceberg.metadata import Folder
from crkafka_core.lake.port import CannotCommit, Marks
from crkafka_core.lake.vectors import Positions, as_array
from crkafka_core.segments import rows

_PATH, _POSITION = 2147483546, 2147483545
"""Iceberg's ids of the columns of a file of position deletes."""


def _column(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": str(number)})


_SCHEMA = pa.schema([_column("file_path", pa.string(), _PATH), _column("pos", pa.int64(), _POSITION)])


@dataclass(frozen=True)
class Source:
    """A place where marks of one data file are."""

    path: str
    """Of the file of deletes, as the table has it."""
    of: str
    """The data file, as the table has it."""
    shared: bool
    """It has marks of other data files too."""
    vector: tuple[int, int] | None = None
    """Where in the file a deletion vector is, and its size."""
    sequence: int = field(default=0, compare=False)
    rows: int = field(default=0, compare=False)
    """How many marks the file has."""
    listed: tuple[Manifest, Entry] | None = field(default=None, compare=False, repr=False)

    def read(self, folder: Folder) -> npt.NDArray[np.int64]:
        if self.vector is not None:
            with folder.storage.open_read(folder.name(self.path)) as source:
                source.seek(self.vector[0])
                return vectors.parsed(source.read(self.vector[1]))
        found = [
            batch.column("pos").filter(pc.equal(batch.column("file_path"), self.of)).to_numpy()
            for batch in rows.batches(folder.storage, folder.name(self.path), ["file_path", "pos"], only=True)
        ]
        return np.concatenate(found) if found else np.empty(0, np.int64)


class Deletes:
    """All marks of a snapshot, by the data file that they are of."""

    def __init__(self, folder: Folder, manifests: Manifests) -> None:
        self._folder, self._manifests = folder, manifests

    def of(self, path: str, sequence: int) -> list[Source]:
        """`sequence`: of the data file; older marks are of a file of this name that has left the table."""
        return [source for source in self._by_file.get(path, ()) if source.sequence >= sequence]

    def marks(self, path: str, sequence: int) -> Marks | None:
        sources = self.of(path, sequence)
        if not sources:
            return None
        (first, *others) = sources
        count = None if others or first.shared else first.rows
        stored = {self._folder.name(source.path) for source in sources}
        return Marks(Positions(frozenset(sources), lambda: self._read(sources), count, stored))

    def _read(self, sources: Sequence[Source]) -> npt.NDArray[np.int64]:
        return np.unique(np.concatenate([source.read(self._folder) for source in sources]))

    @cached_property
    def _by_file(self) -> dict[str, list[Source]]:
        found: dict[str, list[Source]] = defaultdict(list)
        for manifest, entry in self._manifests.live(avro.POSITIONS):
            for source in self._sources(manifest, entry):
                found[source.of].append(source)
        return found

    def _sources(self, manifest: Manifest, entry: Entry) -> Iterator[Source]:
        file = entry["data_file"]
        if file["content"] == avro.EQUALITY:
            raise CannotCommit(
                f"The table at {self._folder.location} has equality deletes, which another program wrote.",
                hint="CALL catalog.system.rewrite_data_files(…) in Spark, then the table goes on by itself.",
            )
        path, listed = file["file_path"], (manifest, entry)
        about = {"sequence": entry["sequence_number"], "rows": file["record_count"], "listed": listed}
        if str(file["file_format"]).upper() == "PUFFIN":
            vector = file["content_offset"], file["content_size_in_bytes"]
            yield Source(path, file["referenced_data_file"], False, vector, **about)
        elif (only := _only(file)) is not None:
            yield Source(path, only, False, **about)
        else:
            names: set[str] = set()
            for batch in rows.batches(self._folder.storage, self._folder.name(path), ["file_path"], only=True):
                names |= set(batch.column(0).unique().to_pylist())
            yield from (Source(path, name, True, **about) for name in names)


def _only(file: dict[str, Any]) -> str | None:
    """The one data file that a file of deletes is of; None: there may be several."""
    if file.get("referenced_data_file"):
        return str(file["referenced_data_file"])
    least, most = avro.as_map(file.get("lower_bounds")).get(_PATH), avro.as_map(file.get("upper_bounds")).get(_PATH)
    return least.decode() if least is not None and least == most else None


def write(
    folder: Folder, name: str, path: str, positions: Collection[int], partition: dict[str, Any]
) -> dict[str, Any]:
    """A file of deletes for a data file, as a manifest has it."""
    array = as_array(positions)
    batch = pa.record_batch([pa.repeat(path, len(array)), pa.array(array)], schema=_SCHEMA)
    size = rows.write(folder.storage, name, [batch], compression="zstd")
    ends = [{_PATH: path.encode(), _POSITION: values.to_bytes(int(at), "long")} for at in (array[0], array[-1])]
    return {
        "content": avro.POSITIONS,
        "file_path": folder.uri(name),
        "file_format": "PARQUET",
        "partition": partition,
        "record_count": len(array),
        "file_size_in_bytes": size,
        "lower_bounds": avro.as_pairs(ends[0]),
        "upper_bounds": avro.as_pairs(ends[1]),
        "referenced_data_file": path,
    }
