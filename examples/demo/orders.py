"""What the demo produces: orders as JSON, and now and then a record that is none."""

from __future__ import annotations

from crkafka_core.testing.generator import Generator

SPOILED = 500
ITEMS = ("apple", "bread", "cheese", "dates", "eggs", "figs")


class Orders(Generator):
    """Each has its number where the oracle looks for it; the price of every five hundredth is a word."""

    def value(self, seq: int, topic: str, padding: bytes = b"") -> bytes:
        cents = '"free"' if self.spoiled(seq) else 50 + seq * 7919 % 850
        text = f'{{"code":"{seq:012d}","item":"{ITEMS[seq % 6]}","quantity":{seq % 9 + 1},"cents":{cents}}}'
        return text.encode()

    @staticmethod
    def spoiled(seq: int) -> bool:
        return seq % SPOILED == SPOILED - 1
