"""JSON schema of a region's configuration; `python -m crkafka_core.config.schema docs/region.schema.json` writes it. Descriptions of keys
are the docstrings beneath them. pydantic would read these itself (`use_attribute_docstrings`), by parsing the source of each model at its
import, for which every member, run and command would wait."""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from crkafka_core.config.host_section import HostConfig
from crkafka_core.config.region_config import RegionConfig
from crkafka_core.config.sections import ByValue, StartConfig, TableConfig, TriggerConfig
from crkafka_core.config.typed import RegistryConfig, TypedConfig


def text() -> str:
    """The schema in docs/region.schema.json."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def schema() -> dict[str, Any]:
    schema = RegionConfig.model_json_schema(mode="validation")
    parts = (ByValue, HostConfig, RegistryConfig, StartConfig, TableConfig, TriggerConfig, TypedConfig)
    models = {m.__name__: m for m in parts}
    for name, part in schema["$defs"].items():
        describe(part, models[name])
    describe(schema, RegionConfig)
    schema["properties"]["host"] = {
        "anyOf": [{"const": "processes"}, {"$ref": "#/$defs/HostConfig"}],
        "description": "Who runs the members.",
    }
    schema["title"] = "A region of crkafka"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Add the descriptions of a model's keys to its part of a schema."""
    docs: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if issubclass(each, BaseModel) and each is not BaseModel:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
            assert isinstance(tree, ast.ClassDef)
            for statement in pairwise(tree.body):
                match statement:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(doc))):
                        docs[name] = inspect.cleandoc(doc)
    keys = schema["properties"]
    for name, field in model.model_fields.items():
        if name in docs:
            key = field.alias or name
            keys[key] = dict(sorted({**keys[key], "description": docs[name]}.items()))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(text(), encoding="utf-8")
