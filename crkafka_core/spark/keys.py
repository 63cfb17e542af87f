"""What a table that keeps one row for each key asks of whoever writes it (SPEC K6)."""

from __future__ import annotations

from crkafka_core.lake.handle import Handle
from crkafka_core.model.errors import Refused
from crkafka_core.plane.table_versions import how_to_fill_anew
from crkafka_core.spark.table_format import TableFormat
from crkafka_core.tables import delta_upsert
from crkafka_core.tables.stamp import History


def keys_of(region: Handle, name: str) -> tuple[str, ...]:
    """The columns by which the table is kept, one row for each; none where it has a row for each record."""
    declared = region.config.table(name)
    return () if declared is None else declared.keys or ()


def refuse_rewrite(region: Handle, name: str, *, joined: str = "") -> None:
    """Rows of one checkpoint cannot be replaced where later ones have come over them. `joined`: a table that lacks its own."""
    if keys := keys_of(region, name):
        back = (
            f"`crkafka tables undeclare {joined}`, which joins it too late, and what the configuration was without it; or "
            if joined
            else ""
        )
        raise Refused(
            f"Table {name} of region {region.config.region} keeps the last record of each {', '.join(keys)}: rows of single checkpoints "
            "cannot be written again.",
            hint=back + how_to_fill_anew(name),
        )


def refuse_keyed(form: TableFormat, history: History) -> None:
    """Refuse to treat a table that is kept by keys as one with a row for each record: what came over a row could not be brought back."""
    if history.version and form.table.shape:
        delta_upsert.check_keys(form.table, form.property(delta_upsert.KEYS), ())
