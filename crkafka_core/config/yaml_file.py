"""Reads YAML into plain values with the line of each key; refuses duplicate keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from crkafka_core.config.problem import BadConfiguration, Problem
from crkafka_core.model.errors import ConfigError

_SWALLOWED = re.compile(r"\n[ \t]*(?:- )?[\w.-]+:(?:\s|$)")
"""A key on a line of its own, inside quotation marks."""
_OTHER_BASE = re.compile(r"[-+]?(0[0-9_]+|[0-9_]+(:[0-9]+)+)")
"""Numbers that YAML reads as octal, or as hours and minutes."""


@dataclass(frozen=True)
class Document:
    value: Any
    lines: dict[tuple[str | int, ...], int]
    """Path of a key → its line, counted from 1."""


def read(path: Path) -> list[Document]:
    """The documents of the file, without empty ones."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"There is no configuration file {path}.", hint="Name one with -c FILE.") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8; save it as such"
        raise ConfigError(f"The configuration file {path} cannot be read: {reason}.") from None
    loader, documents = _Loader(text), []
    try:
        while loader.check_node():
            if (node := loader.get_node()) is not None:
                lines: dict[tuple[str | int, ...], int] = {}
                _walk(node, (), lines, str(path))
                documents.append(Document(loader.construct_document(node), lines))
    except yaml.YAMLError as error:
        raise BadConfiguration([_problem(error, text)], str(path)) from None
    finally:
        loader.dispose()
    return [document for document in documents if document.value is not None]


def chosen(path: Path, region: str | None) -> Document:
    """The document of a region, by its name if there are several; of a Dagster component its `attributes`, without its own section."""
    documents = read(path)
    fit = [d for d in documents if region is None or _name_of(d.value) == region]
    if len(fit) != 1:
        what = "has several regions: name one, as by -r" if fit else f"has no region {region}" if region else "is empty"
        names = ", ".join(sorted(str(_name_of(d.value)) for d in documents))
        others = f" Regions here: {names}." if documents else ""
        raise BadConfiguration([Problem("region", f"the file {what}.{others}")], str(path))
    value, lines = fit[0].value, fit[0].lines
    if isinstance(value, dict) and "attributes" in value and "region" not in value:
        value = value["attributes"]
        if isinstance(value, dict):
            value = {key: inner for key, inner in value.items() if key != "dagster"}
        lines = {at[1:]: line for at, line in lines.items() if at[:1] == ("attributes",)}
    return Document(value, lines)


def _name_of(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return None
    inner = value.get("attributes")
    return value.get("region", inner.get("region") if isinstance(inner, Mapping) else None)


def _problem(error: yaml.YAMLError, text: str) -> Problem:
    mark = getattr(error, "problem_mark", None)
    began = getattr(error, "context_mark", None)
    complaint = str(getattr(error, "problem", None) or "not readable")
    line = mark.line + 1 if mark else 0
    lines = text.splitlines()
    written = lines[mark.line] if mark and mark.line < len(lines) else ""
    if "\t" in written[: len(written) - len(written.lstrip())] or "'\\t'" in complaint:
        return Problem("", "the line begins with a tab; YAML is indented with spaces.", line)
    if "unknown escape character" in complaint:
        why = "a backslash begins an escape between double quotation marks; write the value in single ones, as '^shop\\..*'."
        return Problem("", why, line)
    context = str(getattr(error, "context", None) or "")
    in_quotes = "scalar" in context and "quoted" in context
    if opened := began.line + 1 if began and in_quotes else _open_quote(text, mark.line) if mark else 0:
        return Problem("", "a quotation mark is opened here and not closed.", opened)
    if "flow" in context and began is not None:
        bracket = "{" if "mapping" in context else "["
        why = f"a {bracket} is opened here and not closed, or a comma is missing after it."
        return Problem("", why, began.line + 1)
    if "block" in context or "mapping values are not allowed" in complaint or "expected <block end>" in complaint:
        why = "the line is indented otherwise than those above it, or a value with a colon needs quotation marks."
        return Problem("", why, line)
    if "could not find expected ':'" in complaint and began is not None:
        return Problem("", "a key is followed by a colon and a space, as in `members: 2`.", began.line + 1)
    if "undefined alias" in complaint or "constructor for the tag" in complaint:  # not shown: it may be a password
        return Problem("", "a value that begins with * or ! needs quotation marks.", line)
    return Problem("", f"cannot be read as YAML here ({complaint}).", line)


def _open_quote(text: str, upto: int) -> int:
    """Line of a quotation mark that is closed only by the next one, lines below, with keys between; 0 if there is none."""
    with suppress(yaml.YAMLError):
        for token in yaml.scan(text):
            if token.start_mark.line > upto:
                break
            taken = text[token.start_mark.index : token.end_mark.index]
            if isinstance(token, yaml.ScalarToken) and token.style and _SWALLOWED.search(taken):
                return int(token.start_mark.line) + 1
    return 0


class _Loader(yaml.SafeLoader):
    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError as error:  # an impossible date
            raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from None


def _walk(
    node: yaml.Node,
    at: tuple[str | int, ...],
    lines: dict[tuple[str | int, ...], int],
    source: str,
    inside: tuple[yaml.Node, ...] = (),
) -> None:
    lines[at], path = node.start_mark.line + 1, ".".join(map(str, at))
    if node.tag == "tag:yaml.org,2002:int" and _OTHER_BASE.fullmatch(node.value):
        text = "YAML reads this as another number: write it in quotation marks, or without zeros before it."
        raise BadConfiguration([Problem(path, text, lines[at])], source)
    if any(node is outer for outer in inside):
        raise BadConfiguration([Problem(path, "holds itself.", lines[at])], source)
    inside = (*inside, node)
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _walk(item, (*at, index), lines, source, inside)
    elif isinstance(node, yaml.MappingNode):
        seen: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = str(key.value)
            here = (*at, name)
            if name in seen:
                what = "is written twice"
                if here[-2:] == ("start", "position"):
                    both = (str(v.value) if isinstance(v, yaml.ScalarNode) else "…" for v in (seen[name], value))
                    what = f"two start positions, {' and '.join(both)}"
                problem = Problem(".".join(map(str, here)), f"{what}: keep one.", key.start_mark.line + 1)
                raise BadConfiguration([problem], source)
            seen[name] = value
            _walk(value, here, lines, source, inside)
            lines[here] = key.start_mark.line + 1
