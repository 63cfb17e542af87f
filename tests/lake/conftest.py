"""Tables of every kind, for tests that ask the same of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.lake.rig import (
    Iceberg,
    IcebergInCatalog,
    Keyed,
    KeyedIceberg,
    KeyedInCatalog,
    Rig,
    Toy,
    Typed,
    TypedIceberg,
    TypedInCatalog,
)

RAW = {"delta": Rig, "iceberg": Iceberg, "catalog": IcebergInCatalog, "toy": Toy}
TYPED = {"typed-delta": Typed, "typed-iceberg": TypedIceberg}
KEYED = {"keyed-delta": Keyed, "keyed-iceberg": KeyedIceberg}


def kinds(of: Mapping[str, type[Rig]], in_catalogs: Mapping[str, type[Rig]]) -> list[Any]:
    """What a catalog does is seen of raw tables, what typing and keys do at paths; both together are in the soak."""
    params = [pytest.param(kind, id=name) for name, kind in of.items()]
    return params + [pytest.param(kind, id=name, marks=pytest.mark.soak) for name, kind in in_catalogs.items()]


TYPED_IN_CATALOG = {"typed-catalog": TypedInCatalog}


@pytest.fixture(params=kinds(RAW | TYPED | KEYED, {**TYPED_IN_CATALOG, "keyed-catalog": KeyedInCatalog}))
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    made: Rig = request.param(tmp_path)
    return made


@pytest.fixture(params=kinds(RAW | TYPED, TYPED_IN_CATALOG))
def each_row(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    made: Rig = request.param(tmp_path)
    return made


@pytest.fixture(params=RAW.values(), ids=RAW)
def raw(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    """A single table, whose files are the segments."""
    made: Rig = request.param(tmp_path)
    return made
