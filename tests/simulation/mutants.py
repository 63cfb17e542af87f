"""Mutants by machine: small changes of the code in `protocol/` and `plane/`; each should break something that somebody looks at.

A mutant is planted by giving one function another code object, so that whoever imported it has it too, and is taken back the same way.
"""

from __future__ import annotations

import ast
import importlib
import types
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import crkafka_core

ROOMS = ("protocol", "plane")
_SHIFTED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


@dataclass(frozen=True)
class Mutant:
    module: str
    function: str
    number: int
    """Which of the function's places."""
    line: int
    end: int
    what: str

    @property
    def key(self) -> str:
        """The same as long as the function's text at this place is, wherever it stands in the file."""
        return f"{self.module.removeprefix('crkafka_core.')} {self.function}: {self.what}"

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.function}: {self.what}"

    @contextmanager
    def planted(self) -> Iterator[None]:
        function = _functions(self.module)[self.function]
        real = function.__code__
        function.__code__ = self._code(real)
        try:
            yield
        finally:
            function.__code__ = real

    def _code(self, real: types.CodeType) -> types.CodeType:
        tree, file = _tree(self.module), _file(self.module)
        change = _Change(self.number)
        for node, name in _places(tree):
            if name == self.function:
                change.visit(node)
        module = compile(ast.fix_missing_locations(tree), str(file), "exec", dont_inherit=True)
        return next(c for c in _codes(module) if c.co_qualname == self.function and c.co_name == real.co_name)


class _Change(ast.NodeTransformer):
    """Counts the places of a function where something can be changed, and changes one of them."""

    def __init__(self, number: int = -1) -> None:
        self.number = number
        self.found: list[tuple[int, int, str]] = []

    def _here(self, node: ast.expr | ast.stmt, what: str) -> bool:
        self.found.append((node.lineno, node.end_lineno or node.lineno, what))
        return len(self.found) - 1 == self.number

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        for at, op in enumerate(node.ops):
            other = _SHIFTED[type(op)]
            if self._here(node, f"{type(op).__name__} is {other.__name__} in {ast.unparse(node)}"):
                node.ops[at] = other()
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        if self._here(node, f"and/or in {ast.unparse(node)}"):
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return node

    def _negated(self, test: ast.expr) -> ast.expr:
        return ast.UnaryOp(ast.Not(), test) if self._here(test, f"not: {ast.unparse(test)}") else test

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        node.test = self._negated(node.test)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        node.test = self._negated(node.test)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        node.ifs = [self._negated(test) for test in node.ifs]
        return node

    def _dropped(self, node: ast.stmt) -> ast.AST:
        self.generic_visit(node)
        return ast.Pass() if self._here(node, f"dropped: {ast.unparse(node)}") else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return node if isinstance(node.value, ast.Constant) else self._dropped(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return self._dropped(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        return self._dropped(node)


def all_mutants() -> list[Mutant]:
    """Every mutant there is, in the order of the files."""
    found = []
    for room in ROOMS:
        for file in sorted((Path(crkafka_core.__file__).parent / room).glob("*.py")):
            module = f"crkafka_core.{room}.{file.stem}"
            for node, name in _places(_tree(module)):
                if name in _functions(module):
                    change = _Change()
                    change.visit(node)
                    seen: Counter[str] = Counter()
                    for at, (line, end, what) in enumerate(change.found):
                        seen[what] += 1
                        again = f" ({seen[what]})" if seen[what] > 1 else ""
                        found.append(Mutant(module, name, at, line, end, what + again))
    return found


def _file(module: str) -> Path:
    return Path(crkafka_core.__file__).parent.parent / f"{module.replace('.', '/')}.py"


def _tree(module: str) -> ast.Module:
    return ast.parse(_file(module).read_text())


def _places(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Functions and methods, with their qualified names; what is inside of them belongs to them."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node, node.name
        elif isinstance(node, ast.ClassDef):
            yield from ((sub, f"{node.name}.{sub.name}") for sub in node.body if isinstance(sub, ast.FunctionDef))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield const
            yield from _codes(const)


@cache
def _functions(module: str) -> dict[str, types.FunctionType]:
    loaded, found = importlib.import_module(module), {}
    owners = [loaded, *(v for v in vars(loaded).values() if isinstance(v, type) and v.__module__ == module)]
    for each in (value for owner in owners for value in vars(owner).values()):
        function: Any = each.fget if isinstance(each, property) else getattr(each, "__func__", each)
        function = getattr(function, "__wrapped__", function)
        if isinstance(function, types.FunctionType) and function.__module__ == module:
            found[function.__qualname__] = function
    return found
