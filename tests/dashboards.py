"""What the panels of public dashboards ask for, and whether a page of metrics has it."""

import re
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

DASHBOARDS = Path(__file__).parent / "data" / "dashboards"
_MATCHER = re.compile(r'(\w+)(=~|!=|!~|=)"([^"]*)"')


class Selector(NamedTuple):
    """A metric with label matchers: (label, operator, value); * stands for any value but an empty one."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...]

    def matches(self, sample: Sample) -> bool:
        """Whether a sample is selected."""
        return sample.name == self.metric and all(
            _is_match(sample.labels.get(label, ""), operator, value)
            for label, operator, value in self.matchers
        )


def _is_match(found: str, operator: str, value: str) -> bool:
    if value == "*":
        return bool(found)
    if operator in ("=~", "!~"):
        return (re.fullmatch(value, found) is not None) == (operator == "=~")
    return (found == value) == (operator == "=")


def selector(text: str) -> Selector:
    """Parse `metric{label="value",...}`."""
    metric, _, rest = text.partition("{")
    return Selector(metric, tuple(m.groups() for m in _MATCHER.finditer(rest)))  # type: ignore[misc]


def panels() -> Iterator[tuple[str, str, Selector]]:
    """Iterate over (dashboard, panel, selector)."""
    for path in sorted(DASHBOARDS.glob("*.tsv")):
        for line in path.read_text().splitlines():
            if not line.startswith("#"):
                title, text = line.split("\t")
                yield path.stem, title, selector(text)


def page(port: int) -> list[Sample]:
    """Return the samples that a node's /metrics has now."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return [s for family in text_string_to_metric_families(text) for s in family.samples]


def blank(samples: Iterable[Sample]) -> dict[str, list[str]]:
    """Return the metrics that no sample has as a panel asks for it, with the panels that stay blank."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    found: dict[str, list[str]] = {}
    for dashboard, title, wanted in panels():
        if not any(map(wanted.matches, by_name.get(wanted.metric, ()))):
            found.setdefault(wanted.metric, []).append(f"{dashboard}: {title}")
    return found
