"""Where a source can be mutated, and what it is then. PURE.

Two kinds: a condition is negated (the test of `if`, `while`, a conditional expression or a comprehension,
each operand of its `and` and `or`, a comparison that is returned), or a statement is dropped (a call, a
`raise`, a `return` before the end, `continue`, `break`, `del`, an assignment to what has a value already).

Left alone: `assert`, which finds our own mistakes and decides nothing; the first assignment of a local name,
because what reads it then fails at once; docstrings, annotations, and what runs while a module is loaded.
"""

import ast
import copy
import hashlib
from collections.abc import Iterator
from types import CodeType
from typing import NamedTuple

NEGATE, DROP = "negate", "drop"
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Point(NamedTuple):
    """One mutant of one function.

    function  qualified name of the outermost function: `Class.method` or `function`
    ordinal   which point of that function, from 0
    line, end_line  first and last line of what is changed; `text` is its source
    source_hash  of what the function does: a result counts as long as that is the same, whatever becomes of
    docstrings, comments and layout
    """

    path: str
    function: str
    kind: str
    ordinal: int
    line: int
    end_line: int
    text: str
    source_hash: str

    @property
    def key(self) -> str:
        """The mutant's name in the ledger and in the list of survivors."""
        return f"{self.path}:{self.function}#{self.ordinal}@{self.source_hash}"


def points(path: str, source: str) -> list[Point]:
    """Return the mutants that can be made of a module, in the order of its lines."""
    found: list[Point] = []
    for name, function in _functions(ast.parse(source)):
        digest = hashlib.sha256(ast.unparse(_without_docstring(function)).encode()).hexdigest()[:10]
        for ordinal, (kind, node) in enumerate(_sites(function)):
            said = " ".join((ast.get_source_segment(source, node) or "").split())
            lines = (node.lineno, node.end_lineno or node.lineno)
            found.append(Point(path, name, kind, ordinal, *lines, said[:120], digest))
    return found


def mutated(source: str, filename: str, point: Point) -> CodeType:
    """Compile the module with the mutant in it; return the code of the function that it is in."""
    tree = ast.parse(source)
    for name, function in _functions(tree):
        if name == point.function:
            kind, node = _sites(function)[point.ordinal]
            _Change(node, kind).visit(function)
            ast.fix_missing_locations(tree)
            module = compile(tree, filename, "exec")
            return _code_at(module, point.function.split("."), function)
    raise LookupError(point.key)


def _functions(tree: ast.Module) -> Iterator[tuple[str, _Function]]:
    """Yield the functions of a module and the methods of its classes."""
    for node in tree.body:
        if isinstance(node, _Function):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, _Function):
                    yield f"{node.name}.{inner.name}", inner


def _without_docstring(function: _Function) -> _Function:
    """Return a copy whose functions have no docstring: nobody can run it, and it is not meant for that."""
    made = copy.deepcopy(function)
    for node in ast.walk(made):
        if isinstance(node, _Function) and ast.get_docstring(node) is not None:
            del node.body[0]
    return made


def _sites(function: _Function) -> list[tuple[str, ast.stmt | ast.expr]]:
    """Return what can be changed in a function, outermost statement first."""
    named = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
    found: list[tuple[str, ast.stmt | ast.expr]] = []
    _of_body(function.body, named, found, is_last=True)
    return found


def _of_body(
    body: list[ast.stmt],
    named: set[str],
    found: list[tuple[str, ast.stmt | ast.expr]],
    is_last: bool,
) -> None:
    for at, statement in enumerate(body):
        ends = is_last and at == len(body) - 1
        if isinstance(statement, ast.Assert):
            continue
        if _may_drop(statement, named, ends):
            found.append((DROP, statement))
        found += [(NEGATE, each) for each in _conditions(statement)]
        named.update(
            node.id
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        )
        for name in ("body", "orelse", "finalbody"):
            _of_body(getattr(statement, name, []), named, found, ends)
        for handler in [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]:
            _of_body(handler.body, named, found, ends)


def _may_drop(statement: ast.stmt, named: set[str], ends: bool) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call)
    if isinstance(statement, ast.Return):
        return not ends
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        if isinstance(statement, ast.AnnAssign) and statement.value is None:
            return False
        return all(not isinstance(t, ast.Name) or t.id in named for t in targets)
    return isinstance(statement, ast.AugAssign | ast.Raise | ast.Continue | ast.Break | ast.Delete)


def _conditions(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield the conditions of one statement, without those of the statements inside it."""
    if isinstance(statement, ast.If | ast.While):
        yield from _operands(statement.test)
    if isinstance(statement, ast.Return) and isinstance(
        statement.value, ast.Compare | ast.BoolOp | ast.UnaryOp
    ):
        is_not = not isinstance(statement.value, ast.UnaryOp)
        if is_not or isinstance(statement.value.op, ast.Not):  # type: ignore[union-attr]
            yield from _operands(statement.value)
    for node in _expressions(statement):
        if isinstance(node, ast.IfExp):
            yield from _operands(node.test)
        elif isinstance(node, ast.comprehension):
            for test in node.ifs:
                yield from _operands(test)


def _operands(test: ast.expr) -> Iterator[ast.expr]:
    """Yield a condition, and each operand where it is made of several."""
    yield test
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _operands(value)


def _expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the nodes of a statement's own expressions, in the order of the source."""
    waiting: list[ast.AST] = [
        child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.expr)
    ]
    for item in getattr(statement, "items", []):
        waiting.append(item.context_expr)
    while waiting:
        node = waiting.pop(0)
        yield node
        waiting[:0] = list(ast.iter_child_nodes(node))


class _Change(ast.NodeTransformer):
    """Puts the mutant in the place of one node."""

    def __init__(self, node: ast.AST, kind: str) -> None:
        self._node = node
        self._kind = kind

    def visit(self, node: ast.AST) -> ast.AST:
        """Replace the node that was meant."""
        if node is not self._node:
            return super().visit(node)
        if self._kind == DROP:
            return ast.copy_location(ast.Pass(), node)
        assert isinstance(node, ast.expr)
        return ast.copy_location(ast.UnaryOp(ast.Not(), copy.deepcopy(node)), node)


def _code_at(module: CodeType, names: list[str], function: _Function) -> CodeType:
    code = module
    for name in names:
        inside = [c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name]
        # A property and its setter have one name.
        code = next((c for c in inside if c.co_firstlineno == _first_line(function)), inside[0])
    return code


def _first_line(function: _Function) -> int:
    return min([function.lineno, *(each.lineno for each in function.decorator_list)])
