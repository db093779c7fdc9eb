"""Rules that import contracts cannot see, checked on the syntax tree of each file.

`faults(path, source)` returns one line per broken rule. What a file may do follows from the kind its
docstring names: PURE and STORE have no clock, chance, I/O, async, nor order that depends on hashing. What
others call in the packages of machines is typed: `Any` in a public signature has its reason beside it.
`circle(sources)` finds modules that import one another in a circle, `unused(...)` names that nothing uses.
"""

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from typing import TypeGuard

FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 60
PACKAGE_MODULES_MAX = 16
KINDS = ("PURE", "STORE", "WORLD", "SIM", "SPARK")
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
BANNED_CALLS = {"open", "print", "input", "hash", "id", "breakpoint"}
BANNED_IMPORTS = {
    *("asyncio", "concurrent", "datetime", "multiprocessing", "os", "pathlib", "random", "secrets"),
    *("select", "shutil", "signal", "socket", "ssl", "subprocess", "tempfile", "threading", "time"),
    *("uuid",),
}
# Asked once, when they are loaded: whether events are to be frozen, and whether to do without compiled code.
MAY_IMPORT = {("base/event.py", "os"), ("base/native.py", "os")}
# One small file per API key: the index of these folders is the point.
PER_KEY_FOLDERS = {"protocol/messages", "api/handlers"}
# Kinds of code each package may hold. A folder in one may have kinds of its own.
PACKAGE_KINDS = {
    "api": {"PURE"},
    "base": {"PURE"},
    "broker": {"PURE"},
    "config": {"PURE"},
    "controller": {"PURE"},
    "coordinator": {"PURE"},
    "formats": {"PURE"},
    "log": {"PURE", "STORE"},
    "metadata": {"PURE", "STORE"},
    "outbound": {"PURE"},
    "protocol": {"PURE"},
    "raft": {"PURE"},
    "records": {"PURE"},
    "replica": {"PURE"},
    "sim": {"SIM"},
    "tiered": {"PURE"},
    "tiered/objects": {"PURE", "STORE"},
}
# Methods of a remote storage or an object store whose names nothing else has: calls of them block.
BLOCKING_CALLS = {
    *(
        "abort_unfinished",
        "check_owner",
        "copy_segment",
        "delete_many",
        "delete_segment",
        "delete_segments",
    ),
    *("fetch_index", "fetch_segment", "list_prefix"),
}
# Whoever calls these packages learns from the signature what goes in and what comes back.
TYPED_PACKAGES = {"base", "broker", "controller", "raft", "replica", "tiered"}
# What reads a set without its order showing.
ORDER_FREE = {"all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum"}
ORDER_SHOWS = {"dict", "enumerate", "filter", "iter", "list", "map", "next", "tuple", "zip"}
# Decorators that hand a function to a command line or to pytest.
REGISTERING = {"command", "group", "fixture"}
# Methods that Python itself named: of files.
PYTHONS_OWN = {"tell"}
# The words of an identifier, in snake case or camel case.
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# What logs the lines that all others declare, and what sets up Python's logging for it.
LOGS_ITSELF = {
    "runtime/logs/handler.py",
    "runtime/logs/levels.py",
    "runtime/logs/lines.py",
    "spark/log_lines.py",
}
LOG_METHODS = {
    *("debug", "info", "warning", "warn", "error", "critical", "fatal", "exception", "log"),
    "makeRecord",
}
SAY_IT = "declare the line in base/log_lines and log it with `log_line` or as an effect (in Spark: `warn`)"
LEFTOVERS = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b|NotImplemented" + r"Error")


# Each test looks at the same sources.
_parsed = cache(ast.parse)


def kind_of(tree: ast.Module) -> str | None:
    """Return the kind that the module's docstring names first."""
    found = re.search(r"\b(" + "|".join(KINDS) + r")\b", ast.get_docstring(tree) or "")
    return found.group(1) if found else None


def faults(path: str, source: str) -> list[str]:
    """Check one module; `path` is relative to src/firnline, with '/'."""
    tree = _parsed(source)
    found = [f"{path}: {text}" for text in _module_faults(path, source, tree)]
    found += [f"{path}:{line}: {text}" for line, text in _function_faults(tree)]
    found += [f"{path}:{line}: {text}" for line, text in _docstring_faults(path, tree)]
    if path.partition("/")[0] in TYPED_PACKAGES:
        lines = source.splitlines()
        found += [f"{path}:{line}: {text}" for line, text in PublicAny(lines).check(path, tree)]
    found += [f"{path}:{line}: {text}" for line, text in _logging_faults(path, tree)]
    if path.startswith("tiered/") and kind_of(tree) == "PURE":
        found += [f"{path}:{line}: {text}" for line, text in _blocking_faults(tree)]
    if kind_of(tree) in ("PURE", "STORE"):
        found += [f"{path}:{line}: {text}" for line, text in _purity_faults(path, tree)]
        found += [f"{path}:{line}: {text}" for line, text in SetOrder().check(tree)]
    return found


def circle(sources: Mapping[str, str]) -> list[str]:
    """Return one circle of imports, its first module again at the end; [] where there is none.

    An import counts wherever it stands: in a function, and under TYPE_CHECKING, too.

    sources  the source of each module, by its dotted name
    """
    imports = {
        name: {other for other in _imported(source, sources) if other != name}
        for name, source in sources.items()
    }
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as found:
        return [str(name) for name in reversed(found.args[1])]
    return []


def _imported(source: str, modules: Collection[str]) -> Iterator[str]:
    """Yield which of `modules` a source imports, by absolute names."""
    for node in ast.walk(_parsed(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in modules:
                    yield inner
                elif node.module in modules:
                    yield node.module


def unused(sources: Mapping[str, str], users: Collection[str] = ()) -> list[tuple[str, int, str]]:
    """Return (path, line, name) of each function, method and class whose name is used nowhere.

    A name counts as used by whatever it stands for: no types are looked at, so nothing in use is found, and
    what shares its name with something in use is not found either. Words in strings count, those in
    docstrings do not. Names that Python calls are left out, and so is what its decorator or the arguments of
    its class register somewhere.

    sources  the source of each module in which names are defined, by path; their uses count, too
    users    more sources whose uses count
    """
    trees = {path: _parsed(source) for path, source in sources.items()}
    used: set[str] = set()
    for tree in (*trees.values(), *map(_parsed, users)):
        used.update(_used(tree))
    return [
        (path, node.lineno, node.name)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and node.name not in used
        and not (node.name.startswith("__") or _is_registered(node))
    ]


def _used(tree: ast.Module) -> Iterator[str]:
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            # The import of a name is no use of it, unless it has another name from there on.
            if node.asname not in (None, node.name):
                yield node.name
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docstrings.add(node.value)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node not in docstrings
        ):
            yield from re.findall(r"\w+", node.value)


def _is_registered(node: ast.FunctionDef | ast.ClassDef) -> bool:
    if isinstance(node, ast.ClassDef):
        return any(keyword.arg == "key" for keyword in node.keywords)
    names = {ast.unparse(each).partition("(")[0].rpartition(".")[2] for each in node.decorator_list}
    return bool(names & REGISTERING)


def _module_faults(path: str, source: str, tree: ast.Module) -> Iterator[str]:
    lines = source.count("\n")
    if lines > FILE_LINES_MAX:
        yield f"{lines} lines, more than {FILE_LINES_MAX}"
    name = path.rpartition("/")[2].removesuffix(".py")
    if name in BANNED_NAMES:
        yield f"a module named {name} says nothing of what is in it"
    package = path.partition("/")[0]
    folder = path.rpartition("/")[0]
    kinds = PACKAGE_KINDS.get(folder, PACKAGE_KINDS.get(package, set(KINDS)))
    kind = kind_of(tree)
    if not ast.get_docstring(tree):
        yield "no module docstring"
    elif kind is None and not path.endswith("__init__.py"):
        yield f"the module docstring names none of {', '.join(KINDS)}"
    elif kind is not None and kind not in kinds:
        yield f"{kind} code has no place in {folder}"
    for number, line in enumerate(source.splitlines(), 1):
        if LEFTOVERS.search(line):
            yield f"line {number} was left for later: {line.strip()}"


def _function_faults(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield node.lineno, f"{node.name} has {lines} lines, more than {FUNCTION_LINES_MAX}"


def _docstring_faults(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Public functions and classes of a module say what they are; declarations say it per field."""
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if node.name.startswith("_") or ast.get_docstring(node) or _explained_elsewhere(path, node):
            continue
        yield node.lineno, f"{node.name} is public and has no docstring"


def _explained_elsewhere(
    path: str, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
) -> bool:
    if isinstance(node, ast.ClassDef):
        return any(isinstance(b, ast.Name) and b.id in ("Struct", "Message") for b in node.bases)
    if any(isinstance(d, ast.Name) and d.id == "overload" for d in node.decorator_list):
        return True
    return path.startswith("api/handlers/") and node.name == "handle"


def retired_names(path: str, source: str, retired: set[str]) -> list[str]:
    """Return one line per module name or identifier that has one of these words as a part of it.

    A word of several parts, `take_turns`, is one only where its parts stand together.
    """
    marked = [f"_{word}_" for word in sorted(retired)]
    names = dict.fromkeys(path.removesuffix(".py").split("/"), 1)
    for node in ast.walk(_parsed(source)):
        for attribute in ("name", "id", "attr", "arg", "asname"):
            name = getattr(node, attribute, None)
            if isinstance(name, str) and not (attribute == "attr" and name in PYTHONS_OWN):
                names.setdefault(name, getattr(node, "lineno", 1))
    return [
        f"{path}:{line}: {name} has a word that is gone (docs/GLOSSARY.md)"
        for name, line in names.items()
        if any(word in _in_words(name) for word in marked)
    ]


def _in_words(name: str) -> str:
    return f"_{'_'.join(WORD.findall(name))}_".lower()


def _purity_faults(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef):
            yield node.lineno, f"async def {node.name} in pure code"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in BANNED_CALLS:
                yield node.lineno, f"{node.func.id}() in pure code"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield from _import_faults(path, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            yield from _import_faults(path, node.lineno, node.module or "")


def _blocking_faults(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Find calls that wait for a store. PURE code passes such methods to a worker, and never calls them."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        called = node.func.attr
        if called in BLOCKING_CALLS:
            yield node.lineno, f"{called}() waits for a store: it belongs in tiered/objects"


def _logging_faults(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Find log calls that pass by the declared lines: a sentence of its own has no fields for programs."""
    if path in LOGS_ITSELF:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("logging", "warnings", "syslog"):
            yield node.lineno, f"from {node.module} import: {SAY_IT}"
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        owner, _, method = called.rpartition(".")
        is_logger = owner.lower().rpartition(".")[2].strip("_") in ("log", "logger", "logging")
        if (
            ((is_logger or called.startswith("logging.getLogger(")) and method in LOG_METHODS)
            or (called == "logging.getLogger" and not path.startswith("spark/"))
            or called == "warnings.warn"
        ):
            yield node.lineno, f"{called}(): {SAY_IT}"


def _import_faults(path: str, line: int, module: str) -> Iterator[tuple[int, str]]:
    top = module.partition(".")[0]
    if top in BANNED_IMPORTS and (path, top) not in MAY_IMPORT:
        yield line, f"import of {top} in pure code"


class PublicAny:
    """Finds `Any` in public signatures for which no comment `# Any: why`, beside or above it, gives a reason.

    Public is what has no leading underscore, in a class or module that has none; methods like `__init__` are,
    too. Looked at are parameters, what is returned, attributes, bases of classes, and type aliases: the
    public ones, and those with an underscore that a public signature uses. A comment above an alias of
    several lines is for all of them.
    """

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._spelt: set[str] = set()  # what the module calls typing.Any
        self._own: dict[str, ast.expr] = {}  # aliases with a leading underscore
        self._found: dict[tuple[int, int], str] = {}
        self._begins = 0  # the line where the alias or attribute begins that is looked at

    def check(self, path: str, tree: ast.Module) -> list[tuple[int, str]]:
        """Return (line, fault) of each place, in the order of the file."""
        if not _is_public(path.rpartition("/")[2].removesuffix(".py")):
            return []
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "typing":
                self._spelt |= {a.asname or a.name for a in node.names if a.name == "Any"}
        for node in tree.body:
            if isinstance(node, ast.Assign):
                name = ast.unparse(node.targets[0])
                self._own |= {} if _is_public(name) else {name: node.value}
        self._look_into(tree.body)
        return [(line, text) for (line, _), text in sorted(self._found.items())]

    def _look_into(self, body: list[ast.stmt], within: str = "") -> None:
        for node in body:
            self._begins = node.lineno
            if isinstance(node, ast.If):
                self._look_into([*node.body, *node.orelse], within)
            elif isinstance(node, ast.AnnAssign):
                name = ast.unparse(node.target)
                if _is_public(name):
                    self._look_at(node.annotation, within + name)
            elif isinstance(node, ast.Assign):
                for name in map(ast.unparse, node.targets):
                    if _is_public(name):
                        self._look_at(node.value, within + name)
            elif isinstance(node, ast.ClassDef) and _is_public(node.name):
                for base in node.bases:
                    self._look_at(base, node.name)
                self._look_into(node.body, f"{node.name}.")
            elif isinstance(node, ast.FunctionDef) and _is_public(node.name):
                self._look_at_function(node, within)

    def _look_at_function(self, node: ast.FunctionDef, within: str) -> None:
        name, its, self._begins = within + node.name, node.args, 0
        parameters = [*its.posonlyargs, *its.args, *its.kwonlyargs, its.vararg, its.kwarg]
        for parameter in parameters:
            if parameter is not None:
                self._look_at(parameter.annotation, name)
        self._look_at(node.returns, name)
        for part in ast.walk(node) if within else ():
            if isinstance(part, ast.AnnAssign):
                owner, _, attribute = ast.unparse(part.target).rpartition(".")
                if owner == "self" and _is_public(attribute):
                    self._look_at(part.annotation, within + attribute)

    def _look_at(self, annotation: ast.expr | None, name: str) -> None:
        for node in ast.walk(annotation) if annotation is not None else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                self._look_at_text(node, node.value, name)
            elif isinstance(node, ast.Name) and node.id in self._own:
                self._look_at(self._own.pop(node.id), name)  # once, which ends a chain of them, too
            elif self._is_any(node):
                self._say(node, name)

    def _look_at_text(self, node: ast.expr, text: str, name: str) -> None:
        """An annotation in quotes; any other text names nothing."""
        try:
            named = ast.walk(_parsed(text, mode="eval"))
        except SyntaxError:
            return
        if any(map(self._is_any, named)):
            self._say(node, name)

    def _is_any(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute):
            return ast.unparse(node) == "typing.Any"
        return isinstance(node, ast.Name) and node.id in self._spelt

    def _say(self, node: ast.AST, name: str) -> None:
        assert isinstance(node, ast.expr)
        if not self._has_reason(node.lineno) and not self._has_reason(self._begins):
            text = f"Any in the public signature of {name}, and no reason beside it"
            self._found[node.lineno, node.col_offset] = text

    def _has_reason(self, line: int) -> bool:
        """On that line, or in the comment that ends on the line before it."""
        reasons = self._lines[line - 1 : line]
        for before in reversed(self._lines[: max(0, line - 1)]):
            if not before.lstrip().startswith("#"):
                break
            reasons.append(before)
        return any(re.search(r"# Any: \w", reason) for reason in reasons)


def _is_public(name: str) -> bool:
    return not name.startswith("_") or name.endswith("__")


class SetOrder:
    """Finds places where the order of a set could show. It differs with each hash seed.

    What it knows to be a set: literals, comprehensions, `set()`, `frozenset()`, their operators, unions
    of `.keys()`, and names or attributes that the file assigns such a value or annotates so.
    """

    def __init__(self) -> None:
        self._names: dict[str, bool] = {}

    def check(self, tree: ast.Module) -> list[tuple[int, str]]:
        """Return (line, fault) of each place, in the order of the file."""
        self._learn(tree)
        free: list[ast.AST] = []
        for node in ast.walk(tree):
            if _calls(node, ORDER_FREE):
                free += node.args
        return sorted(
            (line, "the order of a set would show here")
            for node in ast.walk(tree)
            for line in self._shown(node, free)
        )

    def _learn(self, tree: ast.Module) -> None:
        """Collect what names hold. A name that also holds something else is left alone."""
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign):
                self._note(node.target, _is_set_annotation(node.annotation))
            elif isinstance(node, ast.arg) and node.annotation is not None:
                self._note(ast.Name(node.arg), _is_set_annotation(node.annotation))
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    self._note(target, self._is_set(node.value))
            elif isinstance(node, ast.For | ast.comprehension):
                self._note(node.target, False)

    def _note(self, target: ast.expr, is_set: bool) -> None:
        if isinstance(target, ast.Tuple):
            for element in target.elts:
                self._note(element, False)
            return
        key = ast.unparse(target)
        self._names[key] = is_set and self._names.get(key, True)

    def _is_set(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Set | ast.SetComp):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return node.func.id in ("set", "frozenset")
        if isinstance(node, ast.BinOp) and isinstance(
            node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor
        ):
            return any(self._is_set(side) or _is_keys(side) for side in (node.left, node.right))
        if isinstance(node, ast.IfExp):
            return self._is_set(node.body) or self._is_set(node.orelse)
        if isinstance(node, ast.Name | ast.Attribute):
            return self._names.get(ast.unparse(node), False)
        return False

    def _shown(self, node: ast.AST, free: list[ast.AST]) -> Iterator[int]:
        if isinstance(node, ast.For) and self._is_set(node.iter):
            yield node.lineno
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp):
            if node not in free and any(self._is_set(part.iter) for part in node.generators):
                yield node.lineno
        elif isinstance(node, ast.Starred) and self._is_set(node.value):
            yield node.lineno
        elif isinstance(node, ast.Call) and node not in free:
            joins = isinstance(node.func, ast.Attribute) and node.func.attr in ("join", "extend")
            shows = joins or _calls(node, ORDER_SHOWS)
            if shows and any(self._is_set(part) for part in node.args):
                yield node.lineno


def _calls(node: ast.AST, names: set[str]) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _is_keys(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "keys"
    )


def _is_set_annotation(node: ast.expr) -> bool:
    base = node.value if isinstance(node, ast.Subscript) else node
    return isinstance(base, ast.Name) and base.id in ("set", "frozenset", "AbstractSet", "Set")
