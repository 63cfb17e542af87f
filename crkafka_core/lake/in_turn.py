"""Work on several tables, one after the other: one that is refused keeps no other from its turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from crkafka_core.model.errors import CrkafkaError
from crkafka_core.model.redaction import redact

T = TypeVar("T")


@dataclass(frozen=True)
class Tried(Generic[T]):
    """What came of it."""

    done: dict[str, T]
    """By table."""
    refused: list[CrkafkaError]

    def end(self, tell: Callable[[str], None]) -> None:
        """Raise the worst refusal, if there is one, after `tell` got the others; tables of one shape are refused for one reason."""
        if not self.refused:
            return
        worst = max(self.refused, key=lambda error: error.exit_code)
        for text in dict.fromkeys(map(str, self.refused)):
            if text != str(worst):
                tell(redact(text))
        raise worst


def each(names: Iterable[str], work: Callable[[str], T]) -> Tried[T]:
    """Do it for each of these tables."""
    tried = Tried[T]({}, [])
    for name in names:
        try:
            tried.done[name] = work(name)
        except CrkafkaError as error:
            tried.refused.append(error)
    return tried
