"""One region's control plane: runs mutations and reads on a store, and raises what they refuse.

A mutation that *raises* a refusal leaves nothing behind; one that *returns* a refusal keeps the evidence it wrote (an event,
an abort), and the refusal is raised after the commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from crkafka_core.control import Reader, Store, Tx
from crkafka_core.model.errors import CrkafkaError, NoSuchRegion
from crkafka_core.model.rows import Region

T = TypeVar("T")


class ControlPlane:
    """The control plane of one region. Safe to use from several threads, as the store is."""

    def __init__(self, store: Store, region: str) -> None:
        self.store = store
        self.region = region

    def do(self, work: Callable[[Tx], T | CrkafkaError]) -> T:
        """Run a mutation; each finds its own earlier effect, so that it can be repeated after an unknown outcome."""
        result = self.store.run(self.region, work)
        if isinstance(result, CrkafkaError):
            raise result
        return result

    def read(self, question: Callable[[Reader, Region], T]) -> T:
        """Answer a question from one snapshot."""
        with self.store.read() as reader:
            region = reader.get(Region, self.region)
            if region is None:
                raise NoSuchRegion(
                    f"There is no region {self.region!r} in this control plane.", hint="`crkafka init` makes it."
                )
            return question(reader, region)

    def wait(self, version: int, timeout: float) -> int:
        """Until the region's version differs, or the time is over."""
        return self.store.wait(self.region, version, timeout)
