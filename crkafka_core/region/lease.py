"""A lease held during a block: renewed by a thread, fenced by its number (SPEC A6)."""

from __future__ import annotations

import json
import os
from typing import Self

from crkafka_core.control import Tx
from crkafka_core.holder import is_gone, machine
from crkafka_core.lake.handle import Handle
from crkafka_core.lake.hold import Hold
from crkafka_core.loop import THREADS, Runtime
from crkafka_core.model import limits
from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.rows import Lease
from crkafka_core.plane import leases
from crkafka_core.plane.transact import ControlPlane


class DriverLease:
    """Takes the lease, and releases it at the end of its block: `with region.driver() as lease: … lease.check()`."""

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
        self._plane, self._kept = plane, False
        length = plane.read(lambda _, region: limits.of(region).driver_lease)
        own = {"holder": holder, "token": token or runtime.unique(), "data": data}
        lease = self.lease = plane.do(lambda tx: leases.take(tx, kind, length=length, **own))
        self._hold = Hold(
            lambda: plane.do(lambda tx: leases.renew(tx, lease, length)), None, length / 3, f"{kind} lease", runtime
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None or not self._kept:
            self.let_go()
        else:
            self._hold.stop()

    @property
    def lost(self) -> CrkafkaError | None:
        """The error, once a renewal has found that another process took over."""
        return self._hold.lost

    def let_go(self) -> None:
        """Release the lease at once, while the block may still run."""
        self._hold.stop()
        if self._hold.lost is None:
            self._plane.do(lambda tx: leases.release(tx, self.lease))

    def keep(self) -> None:
        """Do not release the lease at a successful end of the block: the next step with the same token continues it, or it expires."""
        self._kept = True

    def check(self) -> None:
        """Raise `LeaseLost` if another process has taken over."""
        self._hold.check()
        self._plane.read(lambda reader, _: leases.check(reader, self.lease))


def free(region: Handle, kind: str) -> bool:
    """Release leases of dead processes of this machine before they expire; False if there are none. Should such a process still live, SQL
    and the table refuse its commits by its old number."""

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
