"""What ends a member whose host is gone, and that cannot end by itself (SPEC K1)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from crkafka_core.member import leash

HANGS = """
import ctypes, sys, threading
from crkafka_core.member import leash

leash.PATIENCE = 1.0
stop = threading.Event()
threading.Thread(target=leash._until_broken, args=(int(sys.argv[1]), stop), daemon=True).start()
print("hangs", flush=True)
stop.wait()
ctypes.PyDLL(None).sleep(60)  # with Python's lock, as a call of librdkafka can
"""


def test_k1_a_member_that_hangs_with_pythons_lock_is_gone_soon_after_its_host_and_says_where_it_hung() -> None:
    reading, host = os.pipe()
    member = subprocess.Popen(
        [sys.executable, "-c", HANGS, str(reading)],
        pass_fds=[reading],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        os.close(reading)
        assert member.stdout is not None
        assert member.stdout.readline() == "hangs\n"
        assert member.poll() is None
        os.close(host)
        _, told = member.communicate(timeout=30)
    finally:
        member.kill()
    assert member.returncode not in (0, -9)
    assert 'File "<string>", line 10 in <module>' in told


@pytest.mark.timeout(30)
def test_a_signal_is_heard_also_while_the_main_thread_holds_the_lock_of_the_event() -> None:
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        leash.on_signal(stop.set)
        with stop._cond:
            signal.raise_signal(signal.SIGTERM)
        assert stop.wait(5)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
