"""What the keys mean, by the docstrings beneath them, for the JSON schema alone.

pydantic would read them by itself (`use_attribute_docstrings`), by parsing the source of each model whenever it is imported: time that
every member, run and command would wait for.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import Any

from pydantic import BaseModel


def describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Fill in the descriptions of a model's keys, in its part of a schema."""
    docs: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if issubclass(each, BaseModel) and each is not BaseModel:
            docs |= _docstrings(each)
    keys = schema["properties"]
    for name, field in model.model_fields.items():
        if name in docs:
            key = field.alias or name
            keys[key] = dict(sorted({**keys[key], "description": docs[name]}.items()))


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Of the keys that this class itself has."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(tree, ast.ClassDef)
    docs = {}
    for key, text in pairwise(tree.body):
        match key, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(doc))):
                docs[name] = inspect.cleandoc(doc)
    return docs
