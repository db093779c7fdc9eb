"""The reference page of all settings, printed from their declarations. PURE.

python -m firnline.config.render > docs/reference/config.md
"""

import sys
from collections.abc import Iterable, Iterator

from firnline.config.broker import broker_keys
from firnline.config.define import Key
from firnline.config.load import variable_name
from firnline.config.parse import text_of
from firnline.config.topic import topic_keys

_HEAD = """# Settings

This page is printed from the declarations in `src/firnline/config`; `make docs` writes it again. Names,
types, defaults and ranges are those of Apache Kafka 4.3.1, except `firnline.*`.

A broker reads a `.properties` file (`firnline server --config FILE`), then the environment
(`{variable}` for `log.retention.ms`), then each `-X key=value`; the last wins. An unknown key is an
error that names the nearest one. Keys that begin with the prefixes of the two tier plug-ins
(`rsm.config.` and `rlmm.config.` unless changed) are handed to the plug-in, without the prefix.

The store of a tier (`RemoteStorage` in `firnline.tiered.spi`) is given three more, which win over yours:

| key | what it says |
|---|---|
| `broker.id` | the node's id, as Kafka gives it |
| `cluster.id` | the cluster that the tier has to belong to: a store that is another's should refuse it |
| `tier.in.use` | `true` where this node knows of something in its tier: an empty store is not that tier |
"""

_INERT = """
These are accepted and do nothing here: threads and buffers of a JVM, and features that Firnline does
not have. The ones a file states are named in one line when the broker starts.
"""

_PROMISE = """
These would change what users may rely on, and do not act yet. Stating one is an error, unless the value
is the default.
"""


def page() -> str:
    """Return docs/reference/config.md."""
    broker = broker_keys().values()
    parts = [
        _HEAD.format(variable=variable_name("log.retention.ms")),
        "\n## Broker\n\n",
        *_rows(each for each in broker if each.kind == "acts"),
        "\n## Topic\n\n",
        *_rows(each for each in topic_keys().values() if each.kind == "acts"),
        "\n## Accepted, without meaning here\n" + _INERT + "\n",
        *_names([*broker, *topic_keys().values()], "inert"),
        "\n## Refused for now\n" + _PROMISE + "\n",
        *_names([*broker, *topic_keys().values()], "promise"),
    ]
    return "".join(parts)


def _rows(keys: Iterable[Key]) -> Iterator[str]:
    yield "| key | type | default | range | what it does |\n|---|---|---|---|---|\n"
    for each in keys:
        default = "must be set" if each.is_required else text_of(each, each.default)
        shown = "none" if default is None else default or "empty"
        source = f" ({each.source})" if each.source else ""
        cells = (f"`{each.name}`", each.type, shown, each.valid, each.doc + source)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _names(keys: Iterable[Key], kind: str) -> Iterator[str]:
    for each in keys:
        if each.kind == kind:
            yield f"- `{each.name}`{' (topic)' if each.scope == 'topic' else ''}\n"


if __name__ == "__main__":
    sys.stdout.write(page())
