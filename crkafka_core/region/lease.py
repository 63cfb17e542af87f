"""A lease held during a block: renewed by a thread, fenced by its number (SPEC A6)."""

from __future__ import annotations

import json
import os
import threading
from functools import partial
from typing import Self

from crkafka_core.control import Tx
from crkafka_core.holder import is_gone, machine
from crkafka_core.lake.handle import Handle
from crkafka_core.loop import THREADS, Repeated, Runtime
from crkafka_core.model.errors import CrkafkaError, LeaseLost
from crkafka_core.model.rows import Lease
from crkafka_core.plane import leases, limits
from crkafka_core.plane.transact import ControlPlane


class DriverLease:
    """`with region.driver() as lease: … lease.check()`."""

    def __init__(
        self,
        plane: ControlPlane,
        kind: str,
        holder: str,
        *,
        token: str = "",
        data: str = "{}",
        runtime: Runtime = THREADS,
    ) -> None:
        self._plane = plane
        self._kind = kind
        self._holder = holder
        self._data = data
        self._runtime = runtime
        self._token = token or runtime.unique()
        self._length = plane.read(lambda _, region: limits.of(region).driver_lease)
        self._over = threading.Event()
        self.lost: CrkafkaError | None = None
        """The error, once a renewal has found that another process took over."""
        self._kept = False
        self.lease: Lease | None = None

    def __enter__(self) -> Self:
        self.lease = self._plane.do(
            lambda tx: leases.take(
                tx, self._kind, holder=self._holder, token=self._token, length=self._length, data=self._data
            )
        )
        self._runtime.start(Repeated(f"{self._kind} lease", self._renew, self._runtime))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._kept:
            self._over.set()
        else:
            self.let_go()

    def let_go(self) -> None:
        """Release the lease at once, while the block may still run."""
        self._over.set()
        lease = self.lease
        if lease is not None and self.lost is None:
            self._plane.do(lambda tx: leases.release(tx, lease))

    def keep(self) -> None:
        """Do not release the lease at a successful end of the block: the next step with the same token continues it, or it expires."""
        self._kept = True

    def check(self) -> None:
        """Raise `LeaseLost` if another process has taken over."""
        if self.lost is not None:
            raise self.lost
        lease = self.lease
        assert lease is not None
        self._plane.read(lambda reader, _: leases.check(reader, lease))

    def _renew(self) -> bool:
        """Wait a third of the length, then renew once; False once there is nothing to renew."""
        if self._runtime.wait(self._over, self._length / 3):
            return False
        lease = self.lease
        assert lease is not None
        try:
            self.lease = self._plane.do(partial(leases.renew, lease=lease, length=self._length))
        except LeaseLost as lost:
            self.lost = lost
            return False
        except CrkafkaError:
            pass
        return True


def free(region: Handle, kind: str) -> bool:
    """Release leases of dead processes of this machine before they expire; False if there are none.

    Should such a process still live, SQL and the table refuse its commits by its old number.
    """

    def release(tx: Tx) -> bool:
        dead = [lease for lease in leases.held(tx, kind) if _is_dead(lease)]
        for lease in dead:
            leases.release(tx, lease)
        return bool(dead)

    return region.plane.do(release)


def this_process() -> str:
    """Data of a lease, by which other processes of this machine see whether this one has died."""
    return json.dumps({"host": machine(), "pid": os.getpid()})


def _is_dead(lease: Lease) -> bool:
    """Whether the holder was a process of this machine that has ended, by the lease's data or its holder's name."""
    data = json.loads(lease.data_json)
    if "pid" in data:
        return is_gone(str(data.get("host")), int(data["pid"]))
    host, _, pid = lease.holder.rpartition(":")
    return pid.isdigit() and is_gone(host, int(pid))
