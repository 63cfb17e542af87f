"""Names of shapes: what a declared table takes from the records, as its row in the control plane has it."""

from __future__ import annotations

SHAPE = "crkafka.typed:"
"""Prefix of the names of built-in shapes, before the name of the typed table."""
RECORDS = "crkafka.records:"
"""The same of a table that has the records of some topics as they are."""
VALUES = "crkafka.values:"
"""The same of tables by a value of the record; the one without an output has the records that have no table of their own."""
ARROW = "arrow:"
"""Begins the names of shapes that are functions of Arrow's batches; what follows is `package.module:function`."""
DEAD = "dead"
UNPLACED = "unplaced_"
"""Begins the names of tables with the records of a topic that cannot have a table of its own name."""
GOOD = "good"
"""The default output of a shape."""


def name_of(shape: str) -> str:
    """The typed table of a built-in shape; empty for another shape."""
    return shape.removeprefix(SHAPE).partition("@")[0] if shape.startswith(SHAPE) else ""


def has_records(shape: str) -> bool:
    """Whether a shape gives the records of some topics as they are."""
    return shape.startswith(RECORDS)


def by_value(shape: str) -> bool:
    """Whether tables of a shape have records as they are, each those with one value of a header or field."""
    return shape.startswith(VALUES)


def topic_of(shape: str) -> str:
    """The topic for which a template has made the table; empty for a table that is declared by itself."""
    return shape.partition("@")[2] if name_of(shape) or has_records(shape) else ""


def of_template(shape: str, output: str) -> bool:
    """Whether a template has given a topic or a value the table, so that few checkpoints have rows for it."""
    return bool(topic_of(shape) or (by_value(shape) and output))


def arrow_of(shape: str) -> str:
    """The function of a shape that needs no Spark; empty for another."""
    return shape.removeprefix(ARROW) if shape.startswith(ARROW) and shape.count(":") == 2 else ""


def on_frames(shape: str) -> bool:
    """Whether a shape is a function of Spark's DataFrames."""
    return bool(shape) and not (name_of(shape) or arrow_of(shape) or has_records(shape) or by_value(shape))
