"""A schema registry for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rigs.schema_registry import FakeRegistry


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    fake = FakeRegistry()
    yield fake
    fake.close()
