"""The host of a region by its configuration, opened by an entry point, since the Spark room is above this one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crkafka_core.holder import whoami
from crkafka_core.hosts.supervisor import Supervisor
from crkafka_core.loop import Runtime
from crkafka_core.model.errors import LeaseHeld, Refused
from crkafka_core.model.rows import Lease
from crkafka_core.plane import hosts, leases
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.region.feeder import feeding
from crkafka_core.region.keeper import Tell
from crkafka_core.region.lease import DriverLease, free, this_process

if TYPE_CHECKING:
    from crkafka_core.region.region import Region

GROUP = "crkafka.host"
_MARGIN = 1.0
LEASE = hosts.LEASE
Host = Supervisor[Any]
"""Starts members, watches them, and restarts them. One with a Spark session also has `feeder`, a `Warm`."""


def open_host(region: Region, logs: Path | None = None) -> Host:
    """The host for the configuration's `host:`, Spark or local processes; starts nothing."""
    kind = "processes" if region.config.host.spark is None else "spark"
    host: Host = next(iter(entry_points(group=GROUP, name=kind))).load()(region, logs)
    return host


@contextmanager
def only_host(region: Region, *, say: Callable[[str], None] = lambda _: None) -> Iterator[DriverLease]:
    """The right to run the members during the block; refused, with the holder's name, while another host lives. The right of a killed host
    is freed by its dead process on this machine, or once it is no longer renewed. This configuration is applied only after the right is
    taken: a refused host changes nothing."""
    plane, runtime = region.plane, region.runtime
    if _held(plane) is not None:
        free(region, LEASE)  # of several processes that free it, one takes the right then
    if (held := _held(plane)) is not None:
        say(f"{held.holder} hosts the members; whether it still lives is seen within {held.length / 3:.0f} s")
        _until_free(plane, runtime, held)
    holder = f"{whoami()} (process {os.getpid()})"
    with DriverLease(plane, LEASE, holder, data=this_process(), runtime=runtime) as lease:
        region.init()
        yield lease


def check_still_ours(host: Host, right: DriverLease, *, more: str) -> None:
    """Raise if another host has taken over, or no member will start; the caller then ends without stopping the region. `more`: where a
    person finds more, for the error."""
    if right.lost is not None:
        raise right.lost
    if why := host.given_up():
        raise Refused(f"No member is left here: {why}.", hint=f"The region is left as it is; {more} has more.")


def hosted(region: Region) -> bool:
    """Whether a host has the right to run the members."""
    return _held(region.plane) is not None


def _held(plane: ControlPlane) -> Lease | None:
    return next(iter(plane.read(lambda reader, row: leases.held(reader, LEASE))), None)


def _until_free(plane: ControlPlane, runtime: Runtime, seen: Lease) -> None:
    """Wait until the right has ended; LeaseHeld if it is renewed meanwhile. At most for its length by our clock, since the database's may
    have stepped back."""
    limit = runtime.now() + seen.length + _MARGIN
    while (now := _held(plane)) is not None and (runtime.now() < limit or not seen.length):
        if (now.token, now.until) != (seen.token, seen.until):
            hint = "End that host first, or leave the members to it."
            raise LeaseHeld(f"The members of region {plane.region} are hosted by {now.holder} already.", hint=hint)
        runtime.sleep(0.2)


@contextmanager
def hosting(
    region: Region,
    logs: Path | None = None,
    *,
    tell: Callable[[str], None] = lambda _: None,
    ready: Callable[[], None] = lambda: None,
) -> Iterator[Host]:
    """Run members and keep declared tables fresh during the block; `tell` is called with what holds a table back. `ready` is called once
    the host has its Spark session, if any: a region started earlier would wait for members."""
    host = open_host(region, logs)
    ready()
    with running(region, host, tell=tell):
        yield host


@contextmanager
def running(region: Region, host: Host, *, tell: Tell = lambda _: None, news: Tell | None = None) -> Iterator[None]:
    """Run the host's members and keep declared tables fresh during the block; `tell` and `news` as in `feeding`."""
    with feeding(region, tell=tell, news=news, warm=getattr(host, "feeder", None)):
        host.begin()
        try:
            yield
        finally:
            host.end()
