"""DuckDB, pyiceberg and Polars read what our commits leave in an Iceberg table at a path (docs/clients.md C-P19)."""

from __future__ import annotations

from pathlib import Path

from tests.lake.iceberg.orders import Orders, everywhere, seen


def test_readers_see_append_overwrite_replace_and_expiry(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "t")
    assert seen(orders) == everywhere()
    first, second, third = orders.file(range(3)), orders.file(range(3, 6)), orders.file(range(6, 9))
    orders.commit([first])
    orders.commit([second, third])
    assert seen(orders) == everywhere(*range(9))
    orders.commit([orders.file([30, 31])], orders.named(first))
    assert seen(orders) == everywhere(*range(3, 9), 30, 31)
    orders.commit([orders.file(range(3, 9))], orders.named(second, third), changes_rows=False)
    assert seen(orders) == everywhere(*range(3, 9), 30, 31)
