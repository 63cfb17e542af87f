"""One region's control plane: its store by the URL's entry point; mutations and reads, which raise what they refuse.

A mutation that *raises* a refusal leaves nothing behind; one that *returns* a refusal keeps the evidence it wrote (an event,
an abort), and the refusal is raised after the commit.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urlsplit

from crkafka_core.config.problem import nearest
from crkafka_core.control import Place, Reader, Store, Tx
from crkafka_core.model.errors import ConfigError, CrkafkaError, TooOld
from crkafka_core.model.rows import Region
from crkafka_core.protocol import SPOKEN

if TYPE_CHECKING:
    from crkafka_core.config import RegionConfig

T = TypeVar("T")


def check_protocol(region: Region, spoken: int = SPOKEN) -> None:
    """Refuse to change a region by rules that have been changed since this program was made."""
    if region.protocol > spoken:
        why = f"Region {region.name} is run by protocol {region.protocol}; this program speaks {spoken}, and changes nothing."
        raise TooOld(why, hint="Install the crkafka that its other members have, and restart this process.")


class ControlPlane:
    """The control plane of one region. Safe to use from several threads, as the store is."""

    spoken = SPOKEN

    def __init__(self, store: Store, region: str) -> None:
        self.store = store
        self.region = region

    def do(self, work: Callable[[Tx], T | CrkafkaError]) -> T:
        """Run a mutation; each finds its own earlier effect, so that it can be repeated after an unknown outcome."""

        def understood(tx: Tx) -> T | CrkafkaError:
            check_protocol(tx.region(), self.spoken)
            return work(tx)

        result = self.store.run(self.region, understood)
        if isinstance(result, CrkafkaError):
            raise result
        return result

    def read(self, question: Callable[[Reader, Region], T]) -> T:
        with self.store.read(self.region) as reader:
            return question(reader, reader.region())

    def wait(self, version: int, timeout: float) -> int:
        return self.store.wait(self.region, version, timeout)

    def place(self) -> Place:
        """Where the rows lie (SPEC T3)."""
        return self.store.place()


class Readable(Protocol):
    """What can be asked of a control plane, through whichever gate its mutations go."""

    region: str

    def read(self, question: Callable[[Reader, Region], T]) -> T: ...

    def place(self) -> Place: ...


def open_store(url: str) -> Store:
    """The store for a URL: the entry point is named by the scheme, without a driver's name behind `+`."""
    store: Store = _offered(STORES, url)(url)
    return store


def initialise(url: str) -> None:
    """Make the schema behind a URL, or bring it up to date; safe to repeat, and to run twice at once."""
    _offered(f"{STORES}.initialise", url)(url)


def roles(url: str) -> str:
    """SQL for a person who has the right to run it: roles of the control plane, and what each of them may."""
    hint = "Only PostgreSQL has roles; of a SQLite file the mode says who may read and write it."
    sql: str = _offered(f"{STORES}.roles", url, "For {} there are no roles.", hint)()
    return sql


def preload() -> None:
    """Import every store that is installed, so that a process forked from here opens one at once."""
    for store in entry_points(group=STORES):
        store.load()


STORES = "crkafka.control_plane"
"""The group of entry points by which the scheme of a URL gives a function that opens a store; those behind it that make or migrate its
schema, and give the SQL of its roles, have groups of their own."""


def _offered(group: str, url: str, lacks: str = "No control plane for {} is installed.", hint: str = "") -> Any:
    scheme = urlsplit(url).scheme.partition("+")[0]
    offered = entry_points(group=group, name=scheme)
    if not offered:
        schemes = sorted({e.name for e in entry_points(group=group)})
        known = f"There are: {', '.join(schemes) or 'none; install the project itself'}.{nearest(scheme, schemes)}"
        raise ConfigError(lacks.format(repr(scheme)), hint=hint or known)
    return next(iter(offered)).load()


def open_plane(config: RegionConfig) -> ControlPlane:
    return ControlPlane(open_store(config.resolved_control_plane()), config.region)
