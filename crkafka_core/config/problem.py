"""Problems of a configuration: the key, what is wrong, and the nearest right key, one sentence each."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crkafka_core.config.secret import is_secret_key, secrets_in
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.redaction import redact

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

_TYPES = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    "float_type": "a number",
    "string_type": "text",
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "a mapping of keys to values"),
}
"""Error of pydantic → what the value must be."""
_ONE_WORD = re.compile(r"[\w.-]+")
_BOUNDS = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("at most", "le"),
}


class KeyedError(ValueError):
    """A wrong entry of a mapping whose keys are free, such as `kafka`."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


@dataclass(frozen=True)
class Problem:
    key: str
    """Path of the key, as `start.position`; empty for the whole configuration."""
    text: str
    """What is wrong and what to write instead; never a secret."""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.key}: {self.text}" if self.key else self.text


class BadConfiguration(ConfigError):
    """A configuration that cannot work. Reaction: mend the named keys; nothing was started."""

    def __init__(self, problems: Sequence[Problem], source: str = "") -> None:
        self.problems = tuple(problems)
        self.source = source
        lines = ((f"{source}:{p.line}: " if p.line else f"{source}: ") if source else "" for p in self.problems)
        super().__init__("\n".join(f"{at}{p}" for at, p in zip(lines, self.problems, strict=True)))


def nearest(word: str, right: Iterable[str]) -> str:
    """` Did you mean "…"?` or nothing."""
    by_fold = {_fold(r): r for r in right}
    close = difflib.get_close_matches(_fold(word), by_fold, n=1, cutoff=0.65)
    return f' Did you mean "{by_fold[close[0]]}"?' if close else ""


def _fold(word: str) -> str:
    return word.lower().replace("-", "_").replace(".", "_")


def problems_of(
    error: ValidationError, model: type[BaseModel], lines: Mapping[tuple[str | int, ...], int]
) -> list[Problem]:
    """Pydantic's errors as sentences for a person."""
    problems = []
    for detail in error.errors(include_url=False):
        loc = tuple(detail["loc"])
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, KeyedError):
            loc = (*loc, cause.key)
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).removeprefix(".")
        known = next((lines[loc[:end]] for end in range(len(loc), -1, -1) if loc[:end] in lines), 0)
        problems.append(Problem(key, _sentence(detail, loc, model), known))
    return problems


def _sentence(detail: ErrorDetails, loc: tuple[str | int, ...], model: type[BaseModel]) -> str:
    kind, given = detail["type"], detail["input"]
    if kind == "extra_forbidden":
        if loc == ("dagster",):
            return "is read in the `attributes` of a Dagster component (defs.yaml), not in a region's own file; take it out here."
        at: Any = model
        for part in loc[:-1]:
            at = at if isinstance(part, int) or at is None else _model_in(at.model_fields[part].annotation)
        keys = [] if at is None else [field.alias or name for name, field in at.model_fields.items()]
        return "unknown key." + (nearest(str(loc[-1]), keys) or f" Keys here: {', '.join(sorted(keys))}.")
    if kind == "missing":
        return "is missing."
    if kind in ("literal_error", "enum"):
        expected = str(detail.get("ctx", {}).get("expected", ""))
        words = [w.strip(" '") for w in expected.replace(" or ", ",").split(",")]
        return f"must be one of {', '.join(words)}, not {_shown(loc, given)}.{nearest(str(given), words)}"
    if kind in ("list_type", "tuple_type") and isinstance(given, str) and _ONE_WORD.fullmatch(given):
        return f"must be a list; write [{given}]."
    if kind in _TYPES:
        return f"must be {_TYPES[kind]}, not {_shown(loc, given)}."
    if kind == "value_error":
        return _stop(str(detail.get("ctx", {}).get("error", detail["msg"])))
    if kind in _BOUNDS:
        limit = detail["ctx"][_BOUNDS[kind][1]]
        bound = str(limit) if isinstance(limit, int) else f"{limit:g}"
        return f"must be {_BOUNDS[kind][0]} {bound}, not {_shown(loc, given)}."
    if kind == "string_pattern_mismatch":
        more = ", dot, underscore and hyphen" if "." in detail["ctx"]["pattern"] else " and underscores"
        return f"{_shown(loc, given)} is not a name; it takes letters, digits{more}."
    return f"{_stop(detail['msg'])} Given: {_shown(loc, given)}."


def _stop(text: str) -> str:
    return text if text.endswith((".", "?")) else text + "."


def _shown(loc: Sequence[str | int], given: Any) -> str:
    if any(is_secret_key(str(part)) for part in loc) or (isinstance(given, str) and any(secrets_in(given))):
        return "what is there"
    if isinstance(given, Mapping | list | tuple):
        return "a mapping" if isinstance(given, Mapping) else "a list"
    text = redact(repr(given))
    return text if len(text) <= 60 else text[:57] + "…"


def _model_in(annotation: Any) -> Any:
    from pydantic import BaseModel

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, getattr(annotation, "__args__", ()))), None)
