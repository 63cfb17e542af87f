"""A host as a process of its own, as a service manager keeps it: `crkafka host`, tried again as often as it is refused or ends.

    python host_process.py CONFIGURATION LOGS FAILPOINTS

The configuration is read at each try, as by a process that is started anew. At SIGTERM the members leave, and the region stays wanted.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from crkafka_core.cli.hosting import host
from crkafka_core.config import RegionConfig
from crkafka_core.hosts import processes
from crkafka_core.hosts.supervisor import Hosted
from crkafka_core.model.errors import CrkafkaError
from tests.rigs.failpoints import HOOK

AGAIN = 0.5
"""Seconds until the next try."""


def main(configuration: Path, logs: Path, failpoints: str) -> None:
    def with_failpoints(region: Hosted, logs: Path | None) -> processes.ProcessHost:
        return processes.ProcessHost(region.config, region.plane, log=logs, hook=HOOK, hook_argument=failpoints)

    processes.open_host = with_failpoints
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    refused = ""
    while not stop.is_set():
        try:
            config = RegionConfig.from_json(configuration.read_text())
            host(config, stop=stop, start=False, drive=False, leave_running=True, logs=logs, tell=_tell)
        except CrkafkaError as error:
            if str(error) != refused:
                refused = str(error)
                _tell(refused)
        stop.wait(AGAIN)


def _tell(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
