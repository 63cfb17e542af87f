"""A selection as a condition on rows, in Spark's words (SPEC K3)."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from crkafka_core.model.selection import Selection


def condition(selection: Selection) -> Column | None:
    """The rows that are selected; None: all. Checkpoints are left to the plan, which names files of only those.

    What was erased is told by checkpoint: where there is such a record, Arrow reads.
    """
    found: list[Column] = []
    if selection.topics is not None:
        found.append(F.col("topic").isin(*selection.topics))
    if selection.partitions is not None:
        found.append(F.col("partition").isin(*selection.partitions))
    for name, between in (("offset", selection.offsets), ("timestamp", selection.times)):
        for bound, compare in ((between.start, "__ge__"), (between.stop, "__lt__")):
            if bound is not None:
                value = F.timestamp_micros(F.lit(bound)) if name == "timestamp" else F.lit(bound)
                found.append(getattr(F.col(name), compare)(value))
    return reduce(Column.__and__, found) if found else None
