"""Our reading of .properties lines, beside the library that knows every rule."""

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnline.config.properties import parse_properties

# What separates, what begins a comment, what ends a line; a backslash goes to the library anyway.
TRICKY = st.text(alphabet="ab=: \t\f#!\r\n\\u0é", max_size=40)


@given(TRICKY)
def test_lines_are_read_as_the_library_reads_them(text: str) -> None:
    try:
        expected = dict(javaproperties.loads(text))
    except ValueError:
        with pytest.raises(ValueError):
            parse_properties(text)
        return
    assert parse_properties(text) == expected


def test_an_escape_is_understood() -> None:
    assert parse_properties("listeners=PLAINTEXT\\://h\\:1,\\\n  B\n") == {
        "listeners": "PLAINTEXT://h:1,B"
    }
