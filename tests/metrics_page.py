"""What a node prints at its port of metrics. WORLD."""

import re
import urllib.request


def families_at(url: str) -> set[str]:
    """Return the names of the families, without the `_total` of counters."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        found = re.findall(r"^# TYPE (\w+)", answer.read().decode(), re.MULTILINE)
    return {name.removesuffix("_total") for name in found}
