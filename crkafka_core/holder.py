"""Which processes a lease may be about: where a process runs, whose it is, and whether it is gone."""

from __future__ import annotations

import getpass
import os
import socket
from functools import cache
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_FIRST_NAMESPACE = 0xEFFFFFFC
"""Of process numbers: that of the machine itself, the same on every one."""


@cache
def machine() -> str:
    """Where the number of a process means something: on Linux until the next boot, and in each container for itself.

    A name alone says nothing: machines that were made from one image may share it.
    """
    name = socket.gethostname()
    try:
        numbers = Path("/proc/self/ns/pid").stat().st_ino
        booted = f"{name}/{_BOOT.read_text()[:8]}"
    except OSError:
        return name
    return booted if numbers == _FIRST_NAMESPACE else f"{booted}/{numbers}"


def whoami() -> str:
    """User and machine, for the event log and for who meets them (SPEC X8)."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in containers
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def is_gone(where: str, pid: int) -> bool:
    """Whether a process that ran there is certainly no more; of another machine nobody here can tell."""
    if where != machine():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def holder() -> str:
    """Who holds a lease: this process, in words that a person can follow."""
    return f"{machine()}:{os.getpid()}"
