"""How a table's columns go on when its schema does: columns are added, types are widened, nothing else changes (pure)."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as of

from crkafka_core.model.errors import ConfigError

_WIDER = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


class Incompatible(Exception):
    """A column would change its kind; the text names it."""


def followed(table: str, there: pa.Schema, wanted: pa.Schema, *, widens: bool = True) -> pa.Schema:
    """`evolved`, refused in words for people."""
    try:
        return evolved(there, wanted, widens=widens)
    except Incompatible as error:
        raise ConfigError(
            f"Table {table} cannot follow its schema: {error}.",
            hint="Let the column be as it was, or declare a table of another name and path.",
        ) from None


def evolved(there: pa.Schema, wanted: pa.Schema, *, widens: bool = True) -> pa.Schema:
    """The table's columns from now on, in the order that it has, new ones at the end; what is wanted no more stays, and is null.

    `widens`: whether the table's format lets a column get a wider type.
    """
    return pa.schema(_fields(list(there), list(wanted), "", widens))


def _fields(there: list[pa.Field], wanted: list[pa.Field], path: str, widens: bool) -> list[pa.Field]:
    new = {field.name: field for field in wanted}
    known = {field.name.lower(): field.name for field in there}
    for name in new:
        if known.get(name.lower(), name) != name:
            raise Incompatible(
                f"column {path}{name} is {path}{known[name.lower()]} in the table, which readers take for one"
            )
    kept = [
        f.with_type(_type(f.type, new[f.name].type, f"{path}{f.name}", widens)) if f.name in new else f for f in there
    ]
    names = {field.name for field in there}
    return kept + [field.with_nullable(True) for field in wanted if field.name not in names]


def _type(there: pa.DataType, wanted: pa.DataType, path: str, widens: bool) -> pa.DataType:
    if of.is_struct(there) and of.is_struct(wanted):
        return pa.struct(_fields(list(there), list(wanted), f"{path}.", widens))
    if of.is_list(there) and of.is_list(wanted):
        return pa.list_(there.value_field.with_type(_type(there.value_type, wanted.value_type, f"{path}[]", widens)))
    if of.is_map(there) and of.is_map(wanted) and there.key_type == wanted.key_type:
        item = _type(there.item_type, wanted.item_type, f"{path}{{}}", widens)
        return pa.map_(there.key_field, there.item_field.with_type(item))
    wider = _wider(there, wanted)
    if wider is None or (wider != there and not widens):
        raise Incompatible(f"column {path} is {_named(there)} and would become {_named(wanted)}")
    return wider


def _wider(there: pa.DataType, wanted: pa.DataType) -> pa.DataType | None:
    """The one of both that holds all values of both."""
    if there in _WIDER and wanted in _WIDER:
        return max(there, wanted, key=_WIDER.index)
    if of.is_floating(there) and of.is_floating(wanted):
        return max(there, wanted, key=lambda kind: kind.bit_width)
    if of.is_decimal(there) and of.is_decimal(wanted) and there.scale == wanted.scale:
        return max(there, wanted, key=lambda kind: kind.precision)
    return there if there == wanted else None


def _named(kind: pa.DataType) -> str:
    return "struct" if of.is_struct(kind) else str(kind)
