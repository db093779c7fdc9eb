"""How log lines look, whatever clients put into them."""

import json
import logging
import sys

import pytest

from firnline.base.log_lines.cluster import ISR_SHRUNK, TOPIC_CREATED
from firnline.base.log_lines.line import Log
from firnline.base.log_lines.text import VALUE_CHARS_MAX, fields_text, value_text
from firnline.runtime.logs.formats import JsonFormatter, TextFormatter

FORGED = "x\n2026-11-29 09:00:00,000 CRITICAL firnline: the node stops\x1b[2J\u2028\u202e"


def _record(
    message: str, effect: Log | None = None, *, exc_info: object = None
) -> logging.LogRecord:
    record = logging.LogRecord(
        "firnline.net",
        logging.INFO,
        "",
        0,
        message,
        None,
        exc_info,  # type: ignore[arg-type]
    )
    record.created, record.msecs = 1_700_000_000.5, 500.0
    if effect is not None:
        record.fields = effect.known_fields()
    return record


def test_a_line_is_a_message_and_its_fields() -> None:
    effect = ISR_SHRUNK(
        topic="orders", partition=3, isr=(1, 2), removed=3, reason="no fetch for 30 s"
    )
    line = TextFormatter().format(_record("ISR shrunk", effect))
    _, _, rest = line.split(" ", 2)
    assert rest == (
        "INFO firnline.net: ISR shrunk topic=orders partition=3 isr=1,2 removed=3"
        ' reason="no fetch for 30 s"'
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (7, "7"),
        ("", '""'),
        ("a b", '"a b"'),
        ('say "x" \\', '"say \\"x\\" \\\\"'),
        ("k=v", '"k=v"'),
        ((), '""'),
        (("a", "b"), "a,b"),
        ("Größe", '"Größe"'),
        ("\ud800", '"\\ud800"'),
        ("\U000e0041", '"\\U000e0041"'),
        ("tab\there", '"tab\\there"'),
    ],
)
def test_values_that_are_no_plain_words_are_quoted(value: object, text: str) -> None:
    assert value_text(value) == text


def test_nobody_forges_a_line_or_writes_to_a_terminal() -> None:
    """In a field, in a message, and in the message of an exception."""
    try:
        raise ValueError(FORGED)
    except ValueError:
        info = sys.exc_info()
    effect = TOPIC_CREATED(topic=FORGED, configs=(FORGED,))
    for formatter in (TextFormatter(), JsonFormatter()):
        text = formatter.format(_record(f"refused {FORGED}", effect, exc_info=info))
        lines = text.split("\n")
        assert all(line.isprintable() for line in lines), "nothing that moves a cursor"
        assert not any(line.startswith("2026") for line in lines)
        assert all(line.startswith("  | ") for line in lines[1:])
    assert "\n" not in JsonFormatter().format(_record(FORGED, effect, exc_info=info))


def test_a_client_cannot_make_a_line_long() -> None:
    text = fields_text({"topic": "x" * 1_000_000})
    assert len(text) < 2 * VALUE_CHARS_MAX
    assert "(1000000 characters)" in text
    assert len(TextFormatter().format(_record("m" * 1_000_000))) < 10_000


def test_secrets_are_hidden_in_messages_fields_and_tracebacks() -> None:
    def redact(text: str) -> str:
        return text.replace('pass"word', "[hidden]")

    try:
        raise ValueError('pass"word')
    except ValueError:
        info = sys.exc_info()
    effect = TOPIC_CREATED(topic='pass"word', configs=('pass"word',))
    for formatter in (TextFormatter(redact), JsonFormatter(redact)):
        line = formatter.format(_record('pass"word', effect, exc_info=info))
        assert "word" not in line
        assert line.count("[hidden]") == 5, "the traceback quotes its line, too"


def test_json_is_one_object_with_typed_fields() -> None:
    effect = ISR_SHRUNK(topic="orders", partition=3, isr=(1, 2), removed=3, reason="fell behind")
    found = json.loads(JsonFormatter().format(_record("ISR shrunk", effect)))
    assert found == {
        "ts": "2023-11-14T22:13:20.500Z",
        "level": "info",
        "logger": "firnline.net",
        "message": "ISR shrunk",
        "fields": {
            "topic": "orders",
            "partition": 3,
            "isr": [1, 2],
            "removed": 3,
            "reason": "fell behind",
        },
    }
