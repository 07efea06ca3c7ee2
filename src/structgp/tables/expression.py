"""Kernels from text: "Matern52 + Periodic(period=1) * Matern32" in the library's own algebra.

The text is read as a Python expression and walked node by node; only kernels, numbers, lists, +, *, `.on(...)` and `fixed(...)`
have a meaning, and nothing is ever executed.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import inspect
from collections.abc import Sequence
from typing import Any

import structgp

from ..kernels.algebra import Kernel, Product, Scaled, Sum
from ..kernels.views import Warp
from ..parameters.tree import fixed

COMPOSED = (Kernel, Sum, Product, Scaled, Warp)  # written with + and *, or in need of a function


class ExpressionError(ValueError):
    """What is wrong with a kernel expression, with the place marked under the text."""

    def __init__(self, message: str, text: str, at: int) -> None:
        self.reason, self.at = message, at
        super().__init__(f"{message}\n  {text}\n  {' ' * at}^")


def parse_kernel(text: str, columns: Sequence[str] = ()) -> Kernel:
    """The kernel that an expression describes; `columns` are names that `.on("name")` may use.

    >>> parse_kernel("Matern52 + Periodic(period=1) * Matern32(lengthscale=10)")
    Matern52(lengthscale=1, variance=1) + Periodic(period=1, lengthscale=1, variance=1) * Matern32(lengthscale=10, variance=1)
    >>> parse_kernel('2 * Linear.on("speed")', columns=["age", "speed"])
    2 * Linear(variance=1, center=0).on(1)
    """
    line = " ".join(text.splitlines()).rstrip()
    begin = len(line) - len(line.lstrip())
    if not line.strip():
        raise ExpressionError("the kernel expression is empty: write for instance Matern52 + Periodic(period=1)", line, 0)
    try:
        tree = ast.parse(line.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        offset = (getattr(problem, "offset", 0) or 0) if getattr(problem, "lineno", 1) == 1 else 0
        at = offset - 1 if 0 < offset <= len(line.strip()) else len(line.strip())  # it broke off at the end
        said = problem.msg if isinstance(problem, SyntaxError) else "the expression cannot be read"
        raise ExpressionError(f"this is not a kernel expression: {said}", line, begin + at) from None
    return _Reader(line, begin, tuple(columns)).kernel(tree.body)


@functools.cache
def kernel_names() -> dict[str, type[Kernel]]:
    """The kernels that an expression may name."""
    named = {name: getattr(structgp, name) for name in structgp.__all__}
    classes = {name: value for name, value in named.items() if isinstance(value, type) and issubclass(value, Kernel)}
    return {name: kind for name, kind in classes.items() if kind not in COMPOSED and not inspect.isabstract(kind)}


class _Reader:
    """One expression, node by node."""

    def __init__(self, line: str, begin: int, columns: tuple[str, ...]) -> None:
        self.line, self.begin, self.columns = line, begin, columns

    def kernel(self, node: ast.AST) -> Kernel:
        value = self.value(node)
        if not isinstance(value, Kernel):
            raise self.error(f"a kernel is needed here, got {value!r}", node)
        return value

    def value(self, node: ast.AST) -> Any:
        """A kernel, a number, a text or a list."""
        if isinstance(node, ast.Name):
            return self.build(self.kind(node), node)
        if isinstance(node, ast.Constant) and type(node.value) in (int, float, str, bool, type(None)):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            number = self.number(node.operand)
            return -number if isinstance(node.op, ast.USub) else number
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self.value(item) for item in node.elts]
        if isinstance(node, ast.BinOp):
            return self.combined(node)
        if isinstance(node, ast.Call):
            return self.called(node)
        raise self.error("this has no meaning in a kernel expression: use kernels, numbers, +, * and .on(...)", node)

    def combined(self, node: ast.BinOp) -> Any:
        if not isinstance(node.op, (ast.Add, ast.Mult)):
            raise self.error("only + and * combine kernels", node.right, back=True)
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(node.op, ast.Add):
            return self.kernel_of(left, node.left) + self.kernel_of(right, node.right)
        if not isinstance(left, Kernel) and not isinstance(right, Kernel):
            raise self.error("* needs a kernel on one side at least", node)
        for part, side in ((left, node.left), (right, node.right)):
            if not isinstance(part, Kernel) and not _is_number(part):
                raise self.error(f"a kernel can be multiplied by a kernel or a number, not by {part!r}", side)
        return self.guarded(lambda: left * right, node)

    def called(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Attribute):
            return self.viewed(node, node.func)
        if not isinstance(node.func, ast.Name):
            raise self.error("only kernels can be called", node.func)
        if node.func.id == "fixed":
            return self.held(node)
        kind = self.kind(node.func)
        self.refuse_stars(node)
        fields = _fields(kind)
        if len(node.args) > len(fields):
            raise self.error(f"{node.func.id} takes {len(fields)} values ({', '.join(fields)})", node.args[len(fields)])
        given: dict[str, Any] = {}
        by_place = fields[: len(node.args)]
        for keyword in node.keywords:
            if keyword.arg not in fields:
                near = _nearest(str(keyword.arg), fields)
                raise self.error(f"{node.func.id} has no {keyword.arg!r}{near}: it has {', '.join(fields)}", keyword)
            if keyword.arg in given or keyword.arg in by_place:
                raise self.error(f"{node.func.id} is given {keyword.arg!r} twice: leave one of them out", keyword)
            given[keyword.arg] = self.argument(kind, keyword.arg, keyword.value)
        values = (self.argument(kind, name, item) for name, item in zip(by_place, node.args, strict=True))
        return self.build(kind, node, *values, **given)

    def argument(self, kind: type[Kernel], name: str, node: ast.AST) -> Any:
        """What a kernel is given under a name: a text is a column where one is meant, else no number."""
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            return self.value(node)
        if name in ("dim", "dims"):
            return self.column(node)
        if "support" in kind.__dataclass_fields__[name].metadata:
            raise self.error(f"{name} of {kind.__name__} is a number, not the text {node.value!r}", node)
        return node.value

    def viewed(self, node: ast.Call, function: ast.Attribute) -> Kernel:
        """A kernel on some columns, by number or by name."""
        if function.attr != "on":
            raise self.error(f"a kernel has no .{function.attr}(...) here: only .on(column, ...) is known", function)
        self.refuse_stars(node)
        if not node.args or node.keywords:
            raise self.error(".on(...) needs columns, by number from 0 or by name", node)
        kernel = self.kernel(function.value)
        dims = [self.column(item) for item in node.args]
        return self.guarded(lambda: kernel.on(*dims), node)

    def column(self, node: ast.AST) -> int:
        value = self.value(node)
        if isinstance(value, str):
            if value in self.columns:
                return self.columns.index(value)
            known = f"the columns are {', '.join(self.columns)}" if self.columns else "no columns are known by name"
            raise self.error(f"there is no column {value!r}{_nearest(value, self.columns)}: {known}", node)
        if type(value) is not int or value < 0 or (self.columns and value >= len(self.columns)):
            count = f" below {len(self.columns)}" if self.columns else ""
            raise self.error(f"a column is a whole number from 0{count} or a name in quotes, got {value!r}", node)
        return value

    def held(self, node: ast.Call) -> Any:
        self.refuse_stars(node)
        if len(node.args) != 1 or node.keywords:
            raise self.error("fixed(...) takes one value, which is then not learned", node)
        value = self.value(node.args[0])
        if not _is_number(value) and not (isinstance(value, list) and all(map(_is_number, value))):
            raise self.error(f"fixed(...) takes a number or a list of numbers, got {value!r}", node.args[0])
        return fixed(value)

    def number(self, node: ast.AST) -> float:
        value = self.value(node)
        if not _is_number(value):
            raise self.error(f"a number is needed here, got {value!r}", node)
        return value

    def kind(self, node: ast.Name) -> type[Kernel]:
        if node.id not in kernel_names():
            near = _nearest(node.id, kernel_names())
            raise self.error(f"there is no kernel {node.id!r}{near}; known are {', '.join(sorted(kernel_names()))}", node)
        return kernel_names()[node.id]

    def kernel_of(self, value: Any, node: ast.AST) -> Kernel:
        if not isinstance(value, Kernel):
            raise self.error(f"a kernel is needed here, got {value!r}; a level is Constant(variance=...)", node)
        return value

    def build(self, kind: type[Kernel], node: ast.AST, *values: Any, **named: Any) -> Kernel:
        return self.guarded(lambda: kind(*values, **named), node)

    def guarded(self, make: Any, node: ast.AST) -> Any:
        """What a constructor makes; what it refuses is said at its place."""
        try:
            return make()
        except ExpressionError:
            raise
        except (TypeError, ValueError, AttributeError, IndexError, OverflowError) as problem:
            raise self.error(str(problem).splitlines()[0], node) from None

    def refuse_stars(self, node: ast.Call) -> None:
        for item in (*node.args, *(keyword for keyword in node.keywords if keyword.arg is None)):
            if isinstance(item, (ast.Starred, ast.keyword)):
                raise self.error("* and ** have no meaning inside brackets: write the values out", item)

    def error(self, message: str, node: Any, back: bool = False) -> ExpressionError:
        """A message that points at a node, or with `back` at the sign before it."""
        at = len(self.line.strip().encode()[: node.col_offset].decode())
        before = self.line.strip()[:at].rstrip(" (")
        return ExpressionError(message, self.line, self.begin + (max(len(before) - 1, 0) if back else at))


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _fields(kind: type) -> list[str]:
    """What a kernel may be given, in the order in which it is written."""
    return [field.name for field in dataclasses.fields(kind) if field.init and field.name not in ("notes", "ties")]


def _nearest(name: str, known: Any) -> str:
    """The names that look like this one, as a question."""
    lower = {item.lower(): item for item in known}
    close = [lower[match] for match in difflib.get_close_matches(name.lower(), list(lower), n=2, cutoff=0.6)]
    return f" (did you mean {' or '.join(close)}?)" if close else ""
