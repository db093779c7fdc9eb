r"""Escapes in delimiters and formats: \n \r \t \0 \\ \xNN \NNN, as kcat has them. PURE."""

import re

ESCAPES = r"\n \r \t \0 \\ \xNN (hexadecimal) and \NNN (octal)"
_LETTERS = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|[0-3][0-7]{2}|x.{0,2}|.|$)", re.DOTALL)


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
    if len(escape) == 3:
        try:
            return bytes([int(escape[1:], 16) if escape[0] == "x" else int(escape, 8)])
        except ValueError:
            pass
    if not escape:
        raise ValueError(r"a \ at the end escapes nothing; \\ stands for one")
    raise ValueError(rf"\{escape} is not an escape; there are {ESCAPES}")
