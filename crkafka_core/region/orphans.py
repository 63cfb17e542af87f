"""Files in storage that nobody names any more, removed with each retirement (SPEC T3)."""

from __future__ import annotations

from collections.abc import Iterable

from crkafka_core.control import Tx
from crkafka_core.model.rows import Region
from crkafka_core.model.segment_name import SegmentName
from crkafka_core.plane import restored
from crkafka_core.plane import retire as rules
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.segments.storage import Storage


def collect_orphans(plane: ControlPlane, storage: Storage, region: Region, files: Iterable[str]) -> int:
    """Remove files that no contribution names and none can name any more: those of numbers up to the head (SPEC T3).

    They are left by killed members and aborted cuts, or are of retired checkpoints whose deletion was interrupted. A file of a number
    above the head stays: it may be open, or a newer state of this control plane may name it. `region` is as it was right after
    `files` were listed, the names are read after that, so that what a cut names meanwhile is kept.
    """

    def over(path: str) -> bool:
        name = SegmentName.parse(path)
        return name is not None and name.epoch <= region.epoch and name.number <= region.head

    storage.end_uploads(region.uid, over)
    old = [path for path in files if over(path)]
    if not old:
        return 0

    def named(tx: Tx) -> set[str]:
        restored.same(tx, region)
        return rules.named(tx)

    kept = plane.do(named)
    return sum(storage.each(storage.delete, [path for path in old if path not in kept]))
