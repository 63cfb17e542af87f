"""What is opened once per process (docs/clients.md C-D12)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from dagster_project import opened


def test_a_database_that_does_not_answer_keeps_no_other_region_waiting() -> None:
    """Sensors of all regions of a code location are evaluated in threads of one process."""
    answers, made = threading.Event(), []
    with ThreadPoolExecutor(3) as threads:
        slow = [threads.submit(opened.once, "test", "slow", lambda: answers.wait(20) and made.append(1)) for _ in "ab"]
        try:
            assert threads.submit(opened.once, "test", "other", lambda: "there").result(5) == "there"
        finally:
            answers.set()
        assert [each.result(5) for each in slow] == [None, None] and made == [1]
