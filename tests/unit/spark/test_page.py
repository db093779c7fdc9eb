"""The blocks of docs/SPARK.md: they compile, what they import is there, and no option is misspelt.

Reads like theirs are run in tests/spark; a page of options that has no broker and no tier cannot run itself.
"""

import ast
import importlib
import re
from pathlib import Path

import pytest

from firnline.spark.options.parse import KNOWN
from tests import pages

PAGE = (Path(__file__).parents[3] / "docs" / "SPARK.md").read_text()
BLOCKS = pages.fenced(PAGE, "python")
# Of the system tables, and of the sink that a block writes to.
OTHERS = {"log.dirs", "path", "checkpointLocation"}
_OPTION = re.compile(r'\.option\("([\w.]+)"|^ *"([a-z]\w*(?:\.\w+)+|subscribe)":', re.MULTILINE)
_OF_SQL = re.compile(r"OPTIONS \((.*?)\)|WITH\s+\((.*?)\)", re.DOTALL)


def is_known(option: str) -> bool:
    return option in {*KNOWN, *OTHERS} or option.startswith(("tier.store.", "kafka."))


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_compiles_and_what_it_imports_is_there(number: int) -> None:
    pytest.importorskip("pyspark", reason="NOT RUN: PySpark is not installed")
    for node in ast.walk(ast.parse(BLOCKS[number])):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(str(node.module))
            assert [each.name for each in node.names if not hasattr(module, each.name)] == []


def test_every_option_that_a_block_or_a_statement_gives_is_one() -> None:
    given = [one or other for block in BLOCKS for one, other in _OPTION.findall(block)]
    for found in _OF_SQL.findall(PAGE):
        names = re.sub(r"=? *'[^']*'", "=", "".join(found))
        given += re.findall(r"([\w.]+)`? *=", names)
    assert len(given) > 20
    assert [option for option in given if not is_known(option)] == []


def test_every_option_is_on_the_page() -> None:
    assert [option for option in KNOWN if f"`{option}" not in PAGE] == []


def test_a_misspelt_option_is_found() -> None:
    assert not is_known("subscribed")
    assert _OPTION.findall('.option("subscribed", "flights")') == [("subscribed", "")]
