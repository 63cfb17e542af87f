"""`crkafka skip` names offsets as its errors do (SPEC X9)."""

from __future__ import annotations

import pytest

from crkafka_core.model.errors import ConfigError
from crkafka_core.model.offsets import TP, parse_offsets


@pytest.mark.parametrize(
    ("text", "found"),
    [("orders[3]@17", (TP("orders", 3), 17, 17)), ("a.b-c[0]@0-20", (TP("a.b-c", 0), 0, 20))],
)
def test_x9_offsets_are_written_as_errors_write_them(text: str, found: tuple[TP, int, int]) -> None:
    assert parse_offsets(text) == found


@pytest.mark.parametrize("text", ["orders@3", "orders[3]", "[1]@2", "orders[x]@1", "orders[1]@2-"])
def test_x9_what_names_no_offsets_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_offsets(text)
