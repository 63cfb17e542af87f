"""A process that is stopped inside SQLite's write transaction: readers go on, writers say who is to be looked for, and then go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import closing
from pathlib import Path

import pytest

from checkpoints_db import SqlStore, initialise
from checkpoints_db.address import parse
from checkpoints_db.retry import Patience
from checkpoints_db.testing.samples import REGION, region
from crkafka_core.model.errors import ServiceUnavailable

FREEZE = textwrap.dedent("""
    import os, signal, sys
    from checkpoints_db import open_store
    open_store(sys.argv[1]).run(sys.argv[2], lambda tx: (tx.set_region(reset_cause="x"), os.kill(os.getpid(), signal.SIGSTOP)))
""")


def test_writers_wait_for_a_stopped_process_and_go_on_when_it_has_ended(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/control.db"
    initialise(url)
    with closing(SqlStore(parse(url), patience=Patience(bound=0.5))) as store:
        store.create(region(), lambda tx: None)
        frozen = subprocess.Popen([sys.executable, "-c", FREEZE, url, REGION])
        try:
            while Path(f"/proc/{frozen.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
                time.sleep(0.05)
            with store.read(REGION) as reader:
                assert reader.now() > 0, "reading goes on"
            with pytest.raises(ServiceUnavailable, match=r"held by another process .*fuser .*control\.db"):
                store.run(REGION, lambda tx: tx.set_region(reset_cause="y"))
        finally:
            os.kill(frozen.pid, signal.SIGKILL)
            frozen.wait()
        assert store.run(REGION, lambda tx: tx.set_region(reset_cause="y")).reset_cause == "y"
