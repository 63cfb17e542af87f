"""One region's control plane: runs mutations and reads on a store, and raises what they refuse.

A mutation that *raises* a refusal leaves nothing behind; one that *returns* a refusal keeps the evidence it wrote (an event,
an abort), and the refusal is raised after the commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from crkafka_core.control import Place, Reader, Store, Tx
from crkafka_core.model.errors import CrkafkaError, TooOld
from crkafka_core.model.rows import Region
from crkafka_core.protocol.version import SPOKEN

T = TypeVar("T")


def check_protocol(region: Region, spoken: int = SPOKEN) -> None:
    """Refuse to change a region by rules that have been changed since this program was made."""
    if region.protocol > spoken:
        raise TooOld(
            f"Region {region.name} is run by protocol {region.protocol}; this program speaks {spoken}, and changes nothing.",
            hint="Install the crkafka that its other members have, and start this process anew.",
        )


class ControlPlane:
    """The control plane of one region. Safe to use from several threads, as the store is."""

    spoken = SPOKEN
    """The protocol of this program."""

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
        """Answer a question from one snapshot."""
        with self.store.read(self.region) as reader:
            return question(reader, reader.region())

    def wait(self, version: int, timeout: float) -> int:
        """Until the region's version differs, or the time is over."""
        return self.store.wait(self.region, version, timeout)

    def place(self) -> Place:
        """Where the rows lie (SPEC T3)."""
        return self.store.place()


class Readable(Protocol):
    """What can be asked of a control plane, through whichever gate its mutations go."""

    region: str

    def read(self, question: Callable[[Reader, Region], T]) -> T: ...

    def place(self) -> Place: ...
