"""What a planted breakage is, whoever has to find it."""

from __future__ import annotations

import re
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


_MISFIT = re.compile(r"\b(TypeError|AttributeError|NameError|JSONDecodeError)\b")


def check_fits(breakage: str, violation: str) -> None:
    """Raise where the breakage itself raises, and breaks no rule: the code has changed since it was written."""
    if _MISFIT.search(violation):
        raise AssertionError(f"{breakage} does not fit the code any more: mend the breakage. It caused {violation}")


def put(stack: ExitStack, where: Any, name: str, value: Any) -> None:
    """In the place of what has this name."""
    stack.enter_context(patch.object(where, name, value))
