"""The source keeps the rules of `tests/tidy.py`, and those rules find what they are for."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.tidy import (
    FILE_LINES_MAX,
    PACKAGE_MODULES_MAX,
    PER_KEY_FOLDERS,
    circle,
    faults,
    retired_names,
    unused,
)

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "firnline"
FILES = sorted(SOURCE.rglob("*.py"))


def test_every_module_keeps_the_rules() -> None:
    assert len(FILES) > 40, "the walk lost the source"
    found = [
        fault
        for path in FILES
        for fault in faults(path.relative_to(SOURCE).as_posix(), path.read_text())
    ]
    assert not found, "\n" + "\n".join(found)


def test_a_package_can_be_read_in_one_look() -> None:
    sizes = Counter(
        path.parent.relative_to(SOURCE).as_posix() for path in FILES if path.name != "__init__.py"
    )
    crowded = {
        package: size
        for package, size in sizes.items()
        if size > PACKAGE_MODULES_MAX and package not in PER_KEY_FOLDERS
    }
    assert not crowded


def test_no_file_of_tests_is_longer_than_a_module_may_be() -> None:
    sizes = {path: path.read_text().count("\n") for path in TESTS.rglob("*.py")}
    assert len(sizes) > 200, "the walk lost the tests"
    long = [path.relative_to(TESTS).as_posix() for path, n in sizes.items() if n > FILE_LINES_MAX]
    assert not long


def test_unit_tests_that_start_processes_are_marked_slow() -> None:
    """`make quick` leaves them out."""
    starters = re.compile(
        r"^import subprocess|^from (?:subprocess|firnline\.testing(?:\.\w+)?) import", re.M
    )
    sources = {path: path.read_text() for path in (TESTS / "unit").rglob("test_*.py")}
    found = [path for path, source in sources.items() if starters.search(source)]
    assert len(found) > 5
    assert [path for path in found if "pytest.mark.slow" not in sources[path]] == []


def _module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_modules_import_one_another_in_a_circle() -> None:
    sources = {_module_name(path): path.read_text() for path in FILES}
    assert circle(sources) == []


@pytest.mark.parametrize(
    "back",
    [
        "from a.first import x",
        "from a import first",
        "import a.first",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a.first import x",
        "def f() -> None:\n    from a.first import x",
    ],
)
def test_a_planted_circle_is_found(back: str) -> None:
    sources = {
        "a": "",
        "a.first": "from a.second import y\n",
        "a.second": "import a.third\n",
        "a.third": back,
        "a.other": "import a.first\n",
    }
    found = circle(sources)
    assert len(found) == 4
    assert found[0] == found[-1]
    assert {*found} == {"a.first", "a.second", "a.third"}
    assert circle({**sources, "a.third": ""}) == []


# Names that nothing in this repository uses but tests, and why they are there.
UNUSED = {
    "chill": "unit tests of nodes use the simulated disk as it is",
    "format_commands": "click calls it",
    "getDefaultReadLimit": "Spark calls it",
    "initialOffset": "Spark calls it",
    "log_message": "http.server calls it",
    "prepareForTriggerAvailableNow": "Spark calls it",
    "pushFilters": "Spark calls it",
    "pytest_addoption": "pytest calls it",
    "pytest_configure": "pytest calls it",
    "pytest_runtest_call": "pytest calls it",
    "pytest_runtest_makereport": "pytest calls it",
    "pytest_runtest_setup": "pytest calls it",
    "reportLatestOffset": "Spark calls it",
    "streamReader": "Spark calls it",
    "streamWriter": "Spark calls it, too",
}


def test_what_only_tests_use_is_not_in_the_source() -> None:
    users = [
        path.read_text()
        for folder in ("bench", "tools", "examples", "src/pyspark_firnline")
        for path in (TESTS.parent / folder).rglob("*.py")
    ]
    assert len(users) > 20, "the walk lost the users"
    sources = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in FILES}
    found = unused(sources, users)
    assert [each for each in found if each[2] not in UNUSED] == []
    assert {name for _, _, name in found} == {*UNUSED}, "a name that is in use needs no reason"


@pytest.mark.parametrize(
    "code",
    [
        "def spoil() -> None: ...",
        "class Spoil: ...",
        "class Ballot:\n    def spoil(self) -> None: ...",
        "class Ballot:\n    @property\n    def spoil(self) -> int: ...",
        "from firnline.raft.ballots import spoil\ndef spoil() -> None: ...",
        '"""See `spoil`."""\ndef spoil() -> None:\n    """Not spoil."""',
    ],
)
def test_a_name_that_nothing_uses_is_found(code: str) -> None:
    sources = {"raft/votes.py": code + "\nBallot = 1\nprint(Ballot)\n"}
    ((path, _, name),) = unused(sources)
    assert (path, name.lower()) == ("raft/votes.py", "spoil")
    for use in ("vote.spoil()", "call(Spoil, spoil)", "names = 'spoil Spoil'", "x(spoil=spoil)"):
        assert unused(sources, [use + "\nSpoil"]) == []
    assert unused(sources, ["from raft.votes import spoil as _s, Spoil as _S"]) == []


@pytest.mark.parametrize(
    "code",
    [
        "@main.command('spoil')\ndef spoil() -> None: ...",
        "@pytest.fixture\ndef spoil() -> None: ...",
        "class SpoilRequest(Message, key=7, valid='0'): ...",
        "class Ballot:\n    def __spoil__(self) -> None: ...\nBallot()",
    ],
)
def test_what_is_called_from_elsewhere_is_in_use(code: str) -> None:
    assert unused({"raft/votes.py": code}) == []


def test_no_word_that_is_gone_comes_back() -> None:
    """`docs/GLOSSARY.md` says which words are gone, and what we say instead."""
    page = (TESTS.parent / "docs" / "GLOSSARY.md").read_text()
    table = page.partition("## Words that are gone")[2].partition("\n## ")[0]
    retired = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    assert len(retired) > 5, "the table is not where it was"
    found = [
        fault
        for path in FILES
        for fault in retired_names(path.relative_to(SOURCE).as_posix(), path.read_text(), retired)
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    "code",
    ["def _tally() -> None: ...", "class ClientTally: ...", "_x.tally = 1", "import tally as _t"],
)
def test_a_word_that_is_gone_is_found(code: str) -> None:
    assert len(retired_names("log/votes.py", code + "\n", {"tally"})) == 1
    assert retired_names("log/votes.py", "total = totally = 1\n", {"tally"}) == []
    assert len(retired_names("log/tally.py", "", {"tally"})) == 1
    assert len(retired_names("log/votes.py", "def tell() -> None: ...\n", {"tell"})) == 1
    assert (
        retired_names("log/votes.py", "end = file.tell()\nwholesale = 1\n", {"tell", "whole"}) == []
    )
    assert len(retired_names("log/votes.py", "x.runInTurns = 1\n", {"in_turns"})) == 1
    assert retired_names("log/votes.py", "turns = in_time = 1\n", {"in_turns"}) == []


PLANTED = {
    "no module docstring": "x = 1\n",
    "the module docstring names none": '"""Something."""\n',
    "WORLD code has no place in raft": '"""Votes. WORLD."""\n',
    "says nothing of what is in it": '"""Votes. PURE."""\n',
    "has 61 lines": '"""Votes. PURE."""\ndef _f() -> None:\n' + "    pass\n" * 60,
    "701 lines": '"""Votes. PURE."""\n' + "\n" * 700,
    "vote is public and has no docstring": '"""Votes. PURE."""\ndef vote() -> None: ...\n',
    "async def": '"""Votes. PURE."""\nasync def _f() -> None: ...\n',
    "open() in pure code": '"""Votes. STORE."""\n_x = open("y")\n',
    "id() in pure code": '"""Votes. PURE."""\n_x = [id(1)]\n',
    "import of time in pure code": '"""Votes. PURE."""\nimport time\n',
    "import of os in pure code": '"""Votes. PURE."""\nfrom os import environ\n',
    "log.info(): declare the line": '"""Votes. PURE."""\n\n\nlog.info("a vote came")\n',
    "_log.warning(): declare the line": '"""Votes. PURE."""\n_log.warning("%s", 1)\n',
    "self._logger.error(): declare": '"""Votes. PURE."""\nself._logger.error("no")\n',
    "logging.getLogger(): declare": '"""Votes. WORLD."""\n_x = logging.getLogger("firnline")\n',
    "logging.critical(): declare": '"""Votes. WORLD."""\nlogging.critical("bad")\n',
    "from logging import": '"""Votes. WORLD."""\nfrom logging import getLogger\n',
    "warnings.warn(): declare": '"""Votes. WORLD."""\nwarnings.warn("bad")\n',
    "was left for later": '"""Votes. PURE."""\n# TO' + "DO: count them\n",
}


@pytest.mark.parametrize("said", PLANTED)
def test_a_planted_fault_is_found(said: str) -> None:
    path = "raft/utils.py" if "says nothing" in said else "log/votes.py"
    path = "raft/votes.py" if "WORLD" in said else path
    path = "runtime/votes.py" if "logging" in said or "warnings" in said else path
    found = faults(path, PLANTED[said])
    assert len(found) == 1
    assert said in found[0]


def test_only_the_objects_room_of_the_tier_waits_for_a_store() -> None:
    code = '"""Copies. {kind}."""\ndef _f(storage, segment):\n    storage.delete_segment(segment)\n'
    (found,) = faults("tiered/copier.py", code.format(kind="PURE"))
    assert "waits for a store" in found
    assert not faults("tiered/objects/copies.py", code.format(kind="STORE"))
    (found,) = faults("tiered/copier.py", code.format(kind="STORE"))
    assert "STORE code has no place in tiered" in found


@pytest.mark.parametrize(
    "code",
    [
        "for _x in {1, 2}: pass",
        "_a = set()\n_b = [x for x in _a]",
        "def _f(a: set[str]) -> list[str]:\n    return list(a)",
        "_a = frozenset('ab')\n_b = ','.join(_a)",
        "_a = {1: 2}\nfor _x in _a.keys() - [1]: pass",
        "_a = {1}\n_b = {x: 1 for x in _a}",
        "_a = {1}\n_b = (*_a, 2)",
        "class _A:\n    def _f(self) -> None:\n        self.b: set[int] = set()\n"
        "        for _ in self.b: pass",
    ],
)
def test_the_order_of_a_set_is_found(code: str) -> None:
    found = faults("log/votes.py", f'"""Votes. PURE."""\n{code}\n')
    assert len(found) == 1
    assert "order of a set" in found[0]


@pytest.mark.parametrize(
    "code",
    [
        "_a = {1, 2}\n_b = sorted(_a)",
        "_a = {1, 2}\n_b = sorted(x + 1 for x in _a)",
        "_a = {1, 2}\n_b = 1 in _a",
        "_a = {1, 2}\n_b = {x for x in _a}",
        "for _x in {1: 2}: pass",
        "_b = [x for x in (1, 2)]",
    ],
)
def test_a_set_whose_order_cannot_show_is_fine(code: str) -> None:
    assert faults("log/votes.py", f'"""Votes. PURE."""\n{code}\n') == []


def test_world_code_may_touch_the_world() -> None:
    source = '"""Sockets. WORLD."""\nimport socket\nasync def _f() -> None: ...\nprint(socket)\n'
    assert faults("runtime/net.py", source) == []


_TYPED = '"""Votes. PURE."""\nfrom typing import Any\n'
_VOTE = '"""Grant it."""'


@pytest.mark.parametrize(
    "code",
    [
        f"def vote(ballot: Any) -> None:\n    {_VOTE}",
        f"def vote() -> list[Any]:\n    {_VOTE}",
        f"def vote(*ballots: Any) -> None:\n    {_VOTE}",
        f"def vote(*, ballot: 'dict[str, Any]') -> None:\n    {_VOTE}",
        f"class Votes:\n    {_VOTE}\n    granted: Any",
        f"class Votes:\n    {_VOTE}\n    def grant(self, ballot: Any) -> None: ...",
        f"class Votes:\n    {_VOTE}\n    def __init__(self, ballot: Any) -> None: ...",
        f"class Votes:\n    {_VOTE}\n    def __init__(self) -> None:\n        self.last: Any = None",
        f"class Votes(list[Any]):\n    {_VOTE}",
        "Ballot = tuple[int, Any]",
        "if 1:\n    Ballot = tuple[int, Any]",
        f"_Ballot = tuple[int, Any]\ndef vote(ballot: _Ballot) -> None:\n    {_VOTE}",
        f"from typing import Any as Ballot\ndef vote(ballot: Ballot) -> None:\n    {_VOTE}",
        f"import typing\ndef vote(ballot: typing.Any) -> None:\n    {_VOTE}",
        "# Some comment on Any.\nBallot = tuple[int, Any]",
    ],
)
def test_any_in_a_public_signature_is_found(code: str) -> None:
    found = faults("raft/votes.py", f"{_TYPED}{code}\n")
    assert len(found) == 1
    assert "Any in the public signature of" in found[0]


@pytest.mark.parametrize(
    "code",
    [
        f"def vote(ballot: Any) -> None:  # Any: each candidate has its own\n    {_VOTE}",
        f"# Any: each candidate\n# has its own.\ndef vote(ballot: Any) -> None:\n    {_VOTE}",
        "# Any: each candidate has its own.\nBallot = (\n    tuple[int, Any]\n)",
        "def _vote(ballot: Any) -> None: ...",
        "class _Votes:\n    granted: Any",
        f"class Votes:\n    {_VOTE}\n    _granted: Any\n    def _grant(self, ballot: Any) -> None: ...",
        f"def vote() -> None:\n    {_VOTE}\n    ballot: Any = None",
        "_Ballot = tuple[int, Any]",
    ],
)
def test_any_that_is_explained_or_not_public_is_fine(code: str) -> None:
    assert faults("raft/votes.py", f"{_TYPED}{code}\n") == []


def test_only_the_packages_of_machines_are_typed_throughout() -> None:
    source = f"{_TYPED}def vote(ballot: Any) -> None:\n    {_VOTE}\n"
    assert faults("log/votes.py", source) == []
