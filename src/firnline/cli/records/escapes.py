r"""Escapes in delimiters and formats: \n \r \t \0 \\ \xNN. PURE.

kcat's \NNN is left out: its digits are decimal, and everybody else's octal.
"""

import re

_KNOWN = r"\n \r \t \0 \\ and \xNN"
_LETTERS = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_ESCAPE = re.compile(r"\\(x.{0,2}|.|$)", re.DOTALL)


def unescape(text: str) -> bytes:
    """Return the bytes that a text with escapes stands for. Raises ValueError, which names the escape."""
    found, end = [], 0
    for each in _ESCAPE.finditer(text):
        found += [text[end : each.start()].encode("utf-8", "surrogateescape"), _byte(each.group(1))]
        end = each.end()
    found.append(text[end:].encode("utf-8", "surrogateescape"))
    return b"".join(found)


def _byte(escape: str) -> bytes:
    if escape in _LETTERS:
        return _LETTERS[escape]
    if re.fullmatch("x[0-9a-fA-F]{2}", escape):
        return bytes.fromhex(escape[1:])
    if not escape:
        raise ValueError(r"a \ at the end escapes nothing; \\ stands for one")
    raise ValueError(rf"\{escape} is not an escape; there are {_KNOWN}")
