"""Bytes as text, as a Java client shows them: header keys need not be UTF-8. PURE.

Java puts one U+FFFD for each part of a malformed sequence, like Python. But a surrogate that is written in
UTF-8 (ED A0 80 to ED BF BF, also cut off after its second byte) is one part for Java, and two or three for
Python. Source: java.lang.String of OpenJDK 17; tests/spark/test_official.py compares with it.
"""

import re

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()


def java_text(data: bytes) -> str:
    """Return `new String(data, UTF_8)` of Java; never fails."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, data).decode(errors="replace")
