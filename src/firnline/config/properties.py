"""Parse Java's .properties files. PURE.

Lines without a backslash have short rules and are parsed here. The library for the others takes longer to
import than a broker takes to open its logs. Source: java.util.Properties.load.
"""

import re

# Key up to '=', ':' or white space; one '=' or ':' with white space around it; the rest is the value.
_LINE = re.compile(r"[ \t\f]*([^=: \t\f]*)[ \t\f]*[=:]?[ \t\f]*(.*)")
_ENDS = re.compile(r"\r\n|\r|\n")


def parse_properties(text: str) -> dict[str, str]:
    """Return the pairs of a file; the last of a key wins. Raises ValueError for a broken escape."""
    if "\\" in text:
        import javaproperties

        return dict(javaproperties.loads(text))
    found = {}
    for line in _ENDS.split(text):
        stripped = line.lstrip(" \t\f")
        if stripped and stripped[0] not in "#!":
            pair = _LINE.fullmatch(line)
            assert pair is not None, "every line is a pair"
            found[pair[1]] = pair[2]
    return found
