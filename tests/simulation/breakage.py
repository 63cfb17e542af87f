"""What a planted breakage is, whoever has to find it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch


class Breakage:
    """Something that is wrong in the real code for as long as a block runs."""

    plant: Callable[[ExitStack], None]

    @contextmanager
    def planted(self) -> Iterator[None]:
        with ExitStack() as stack:
            self.plant(stack)
            yield


def put(stack: ExitStack, where: Any, name: str, value: Any) -> None:
    """In the place of what has this name."""
    stack.enter_context(patch.object(where, name, value))
