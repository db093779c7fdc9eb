"""The declared lines of the log: each is used, documented, and made by production code alone."""

import re
from pathlib import Path

import pytest

from firnline.base.log_lines import broker, cluster, process, quorum, storage, tier
from firnline.base.log_lines.line import LOGGERS
from firnline.base.log_lines.render import ALL_LINES, page

SRC = Path(__file__).parents[3] / "src" / "firnline"
SOURCES = {path: path.read_text() for path in SRC.rglob("*.py")}
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "logs.md"


def test_the_page_is_printed_from_the_declarations() -> None:
    assert PAGE.read_text() == page(), "run `make docs`"


def test_each_declared_line_is_used() -> None:
    others = [text for path, text in SOURCES.items() if path.parent.name != "log_lines"]
    names = [
        name
        for module in (broker, cluster, process, quorum, storage, tier)
        for name, value in vars(module).items()
        if value in ALL_LINES and name.isupper()
    ]
    assert len(names) == len(ALL_LINES)
    unused = [name for name in names if not any(re.search(rf"\b{name}\b", t) for t in others)]
    assert unused == []


def test_messages_and_fields_have_a_name_of_their_own() -> None:
    messages = [line.message for line in ALL_LINES]
    assert len({*messages}) == len(messages)
    for line in ALL_LINES:
        assert len({*line.fields}) == len(line.fields)
        assert line.logger in LOGGERS


def test_each_logger_of_a_node_is_one_that_an_operator_can_name() -> None:
    """Those of Spark's side follow its modules: a Spark job sets them."""
    asked = {line.logger for line in ALL_LINES}
    assert LOGGERS.keys() == asked


def test_a_line_has_its_declared_fields_in_order() -> None:
    made = cluster.ISR_SHRUNK(reason="r", partition=3, topic="t", isr=(1,), removed=None)
    assert list(made.known_fields()) == ["topic", "partition", "isr", "reason"]
    with pytest.raises(AssertionError, match="declared fields"):
        cluster.ISR_SHRUNK(colour="red").known_fields()
