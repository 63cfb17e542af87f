"""The compliance suite on every control plane there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoints_db import initialise, open_store
from checkpoints_db.testing.compliance import SharedStoreCompliance, StoreCompliance
from crkafka_core.control import Store
from crkafka_core.testing.memory import MemoryStore


class TestMemory(StoreCompliance):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestSqliteInMemory(StoreCompliance):
    @pytest.fixture
    def store(self) -> Iterator[Store]:
        store = open_store("sqlite://")
        yield store
        store.close()


class TestSqlite(SharedStoreCompliance):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        url = f"sqlite:///{tmp_path}/with space, % and #/control.db"
        initialise(url)
        return url

    @pytest.fixture
    def store(self, url: str) -> Iterator[Store]:
        store = open_store(url)
        yield store
        store.close()


@pytest.mark.postgres
class TestPostgres(SharedStoreCompliance):
    @pytest.fixture
    def url(self, postgres_url: str) -> str:
        initialise(postgres_url)
        return postgres_url

    @pytest.fixture
    def store(self, url: str) -> Iterator[Store]:
        store = open_store(url)
        yield store
        store.close()
