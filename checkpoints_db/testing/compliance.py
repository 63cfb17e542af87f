"""The suites, put together: subclass one in a test module and give it fixtures."""

from __future__ import annotations

from checkpoints_db.testing.processes import ProcessCompliance
from checkpoints_db.testing.rows import RowCompliance
from checkpoints_db.testing.transactions import TransactionCompliance
from checkpoints_db.testing.waiting import WaitCompliance


class StoreCompliance(RowCompliance, TransactionCompliance, WaitCompliance):
    """What every store must do. Needs a fixture `store`: an empty one for each test."""


class SharedStoreCompliance(StoreCompliance, ProcessCompliance):
    """What a store must do that several processes reach. Needs a fixture `url` too: that of `store`."""
