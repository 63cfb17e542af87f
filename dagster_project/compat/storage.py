"""Private names of Dagster that removing old runs and events needs: its storages, and their tables."""

from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    ConcurrencySlotsTable,
    PendingStepsTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.runs.schema import RunsTable, RunTagsTable
from dagster._core.storage.runs.sql_run_storage import SqlRunStorage

__all__ = [
    "AssetCheckExecutionsTable",
    "AssetEventTagsTable",
    "ConcurrencySlotsTable",
    "PendingStepsTable",
    "RunTagsTable",
    "RunsTable",
    "SqlEventLogStorage",
    "SqlEventLogStorageTable",
    "SqlRunStorage",
    "SqliteEventLogStorage",
]
