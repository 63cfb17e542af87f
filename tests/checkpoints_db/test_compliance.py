"""The compliance suite on every control plane there is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoints_db import open_store
from checkpoints_db.testing.compliance import SharedStoreCompliance, StoreCompliance
from crkafka_core.control import Store
from tests.rigs.memory import MemoryStore


class TestMemory(StoreCompliance):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestSqlite(SharedStoreCompliance):
    @pytest.fixture
    def url(self, sqlite_template: Path, tmp_path: Path) -> str:
        folder = tmp_path / "with space, % and #"
        folder.mkdir()
        return f"sqlite:///{shutil.copy(sqlite_template, folder)}"

    @pytest.fixture
    def store(self, url: str) -> Iterator[Store]:
        store = open_store(url)
        yield store
        store.close()


@pytest.mark.postgres
class TestPostgres(SharedStoreCompliance):
    @pytest.fixture
    def url(self, new_postgresql_url: str) -> str:
        return new_postgresql_url

    @pytest.fixture
    def store(self, url: str) -> Iterator[Store]:
        store = open_store(url)
        yield store
        store.close()
