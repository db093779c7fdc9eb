"""Settings of a store that refer to a secret, `${file:/path:key}`, and where their values are read. WORLD.

Whoever holds only the references can keep them, send them and show them. Source: KIP-297, KIP-887, KIP-993;
`config/providers.py` has the rules.
"""

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from firnline.base.errors import ConfigError
from firnline.config.properties import parse_properties
from firnline.config.providers import DIRECTORY, ENV, FILE, PROVIDERS, Resolved, resolve

# Names as in the examples of these KIPs. Here they need no `config.providers`.
PROVIDER_CLASSES = {"env": ENV, "file": FILE, "directory": DIRECTORY}
FORMS = "${file:/path:key}, ${directory:/path:file} or ${env:NAME}"


class SystemSources:
    """`config.providers.Sources` of this process."""

    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def properties(self, path: str) -> Mapping[str, str]:
        return parse_properties(Path(path).read_text("utf-8"))

    def file(self, path: str) -> str | None:
        found = Path(path)
        found.parent.stat()
        return found.read_text("utf-8") if found.is_file() else None

    def exists(self, path: str) -> bool:
        return os.path.exists(path)


def dereferenced(settings: Mapping[str, str]) -> Resolved:
    """Return the settings with the values of this machine. Raises ConfigError, which names the machine.

    Values are not checked otherwise. No error has a value that a provider returned.
    """
    providers = {PROVIDERS: ",".join(PROVIDER_CLASSES)}
    providers |= {f"{PROVIDERS}.{name}.class": kind for name, kind in PROVIDER_CLASSES.items()}
    try:
        found = resolve({**settings, **providers}, SystemSources())
    except ConfigError as problem:
        raise ConfigError(problem.why, host=socket.gethostname()) from None
    return Resolved({key: found.values[key] for key in settings}, found.texts)
