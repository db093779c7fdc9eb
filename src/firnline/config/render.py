"""Print the reference page of all settings from their declarations. PURE.

python -m firnline.config.render > docs/reference/config.md
"""

import sys
from collections.abc import Iterable, Iterator

from firnline.config.broker import broker_keys
from firnline.config.define import ConfigKey
from firnline.config.load import variable_name
from firnline.config.parse import text_of
from firnline.config.topic import topic_keys

_HEAD = """# Settings

This page is printed from the declarations in `src/firnline/config`; `make docs` writes it again. Names,
types, defaults and ranges are those of Apache Kafka 4.3.1, except `firnline.*`.

A broker reads a `.properties` file (`firnline server --config FILE`), then the environment
(`{variable}` for `log.retention.ms`), then each `-X key=value`; the last wins. An unknown key is an
error that names the nearest key. Keys with the prefixes of the two tier plug-ins
(`rsm.config.` and `rlmm.config.` unless changed) are passed to the plug-in, without the prefix. The built-in
store has `rsm.config.uri` and `rsm.config.store.*`, and refuses others.

The store of a tier (`RemoteStorage` in `firnline.tiered.spi`) gets three more, which override yours:

| key | meaning |
|---|---|
| `broker.id` | the node's id, as Kafka gives it |
| `cluster.id` | the cluster that owns the tier: a store of another cluster should refuse it |
| `tier.in.use` | `true` if this node knows of objects in its tier: an empty store is then the wrong one |

Your own metadata manager (`MetadataManager` in `firnline.server.plugins`) gets these. The first three
override yours, and yours override the others:

| key | meaning |
|---|---|
| `broker.id` | the node's id |
| `cluster.id` | the cluster |
| `log.dir` | the first log directory |
| `remote.log.metadata.common.client.bootstrap.servers` | the address of the listener that \
`remote.log.metadata.manager.listener.name` names |
| `remote.log.metadata.common.client.security.protocol` | the protocol of that listener |

A value may contain variables, `${{provider:path:key}}`. `config.providers` names the providers; each has a
class:

| `config.providers.NAME.class` | variable | `config.providers.NAME.param.*` |
|---|---|---|
| `org.apache.kafka.common.config.provider.EnvVarConfigProvider` | `${{NAME:VARIABLE}}` | \
`allowlist.pattern`: a regular expression for the whole name |
| `org.apache.kafka.common.config.provider.FileConfigProvider` | `${{NAME:/path/of.properties:key}}` | \
`allowed.paths`: absolute paths, separated by commas |
| `org.apache.kafka.common.config.provider.DirectoryConfigProvider` | `${{NAME:/folder:file}}` | the same |

A variable that cannot be resolved is an error. What a provider returned is shown neither in DescribeConfigs
nor in the log line with all settings (`--log-level debug`), nor in errors about settings. If it was for a
plug-in or a password, no log line shows it.
"""

_INERT = """
These are accepted and have no effect: threads and buffers of a JVM, and features that Firnline does
not have. The broker logs those that a file states in one line when it starts.
"""

_PROMISE = """
Users would rely on these, and they have no effect yet. Stating one is an error, unless the value
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


def _rows(keys: Iterable[ConfigKey]) -> Iterator[str]:
    yield "| key | type | default | range | what it does |\n|---|---|---|---|---|\n"
    for each in keys:
        default = "must be set" if each.is_required else text_of(each, each.default)
        shown = "none" if default is None else default or "empty"
        source = f" ({each.source})" if each.source else ""
        cells = (f"`{each.name}`", each.type, shown, each.valid, each.doc + source)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _names(keys: Iterable[ConfigKey], kind: str) -> Iterator[str]:
    for each in keys:
        if each.kind == kind:
            yield f"- `{each.name}`{' (topic)' if each.scope == 'topic' else ''}\n"


if __name__ == "__main__":
    sys.stdout.write(page())
