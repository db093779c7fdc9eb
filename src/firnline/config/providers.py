"""Variables in settings, `${provider:path:key}`, and the texts that are never shown. PURE.

`resolve` replaces the variables by what the providers of `config.providers` return. Kafka leaves a variable
that nobody resolves in place, so that `${env:PASSWORD}` itself becomes the password. Here that is an error.
It names the key, the variable and what to do, never a value. Source: KIP-297, KIP-421, KIP-887, KIP-993;
observed on Apache Kafka 4.3.1.
"""

import base64
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol
from urllib.parse import quote

from firnline.base.errors import ConfigError

PROVIDERS = "config.providers"
HIDDEN = "[hidden]"
_PREFIX = PROVIDERS + "."
# ${provider:key} or ${provider:path:key}; Kafka's own pattern.
_VARIABLE = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
_ALLOWLIST, _ALLOWED = "allowlist.pattern", "allowed.paths"
_CLASSES = "org.apache.kafka.common.config.provider."
ENV, FILE, DIRECTORY = (
    _CLASSES + name
    for name in ("EnvVarConfigProvider", "FileConfigProvider", "DirectoryConfigProvider")
)
_PARAMETERS = {ENV: _ALLOWLIST, FILE: _ALLOWED, DIRECTORY: _ALLOWED}
# Shorter texts are no secrets, and occur in every log line.
SECRET_CHARS_MIN = 4


class Sources(Protocol):
    """Where providers read. Errors: OSError, UnicodeDecodeError, and ValueError for broken properties."""

    def variable(self, name: str) -> str | None:
        """Return a variable of the process's environment."""
        ...

    def properties(self, path: str) -> Mapping[str, str]:
        """Return the pairs of a .properties file."""
        ...

    def file(self, path: str) -> str | None:
        """Return the text of a regular file; None if there is none."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        ...


class Resolved(NamedTuple):
    """Settings without variables, and for each key that had some the texts that replaced them."""

    values: dict[str, str]
    texts: dict[str, tuple[str, ...]]


class _Provider(NamedTuple):
    """One provider: its class, and what its parameter allows; None for everything."""

    name: str
    kind: str
    allowlist: re.Pattern[str] | None
    paths: tuple[str, ...] | None


def resolve(stated: Mapping[str, str], sources: Sources) -> Resolved:
    """Replace the variables in all values. Raises ConfigError.

    A value that a provider returns may contain `${`; it is not resolved again.
    """
    providers = _providers(stated, sources)
    values, texts = dict(stated), {}
    for key in sorted(stated):
        template = stated[key]
        if "${" not in template:
            continue
        if key == PROVIDERS or key.startswith(_PREFIX):
            raise ConfigError(f"{key}: the settings of providers cannot contain variables")
        found = list(_VARIABLE.finditer(template))
        parts = [_value(key, each, providers, sources) for each in found]
        _refuse_unclosed(key, _VARIABLE.sub("", template), providers)
        if found:
            replacements = iter(parts)
            values[key] = _VARIABLE.sub(lambda _, rest=replacements: next(rest), template)  # type: ignore[misc]
            texts[key] = tuple(parts)
    return Resolved(values, texts)


def has_variable(text: str) -> bool:
    """Whether the text contains a variable of any provider."""
    return _VARIABLE.search(text) is not None


def providers_in(text: str) -> list[str]:
    """Return the names of the providers of the variables in a text."""
    return [found[1] for found in _VARIABLE.finditer(text)]


def _providers(stated: Mapping[str, str], sources: Sources) -> dict[str, _Provider]:
    names = [name.strip() for name in stated.get(PROVIDERS, "").split(",") if name.strip()]
    providers = {name: _provider(name, stated, sources) for name in names}
    for key in sorted(stated):
        if key.startswith(_PREFIX) and not key.startswith(tuple(f"{_PREFIX}{n}." for n in names)):
            raise ConfigError(
                f"{key}: {PROVIDERS} does not name this provider; there are: {', '.join(names) or 'none'}"
            )
    return providers


def _provider(name: str, stated: Mapping[str, str], sources: Sources) -> _Provider:
    prefix = f"{_PREFIX}{name}."
    kind = stated.get(prefix + "class", "").strip()
    if kind not in _PARAMETERS:
        known = ", ".join(_PARAMETERS)
        fault = f"{kind} is not supported" if kind else "it must be set"
        raise ConfigError(f"{prefix}class: {fault}; there are {known}")
    parameter = f"{prefix}param.{_PARAMETERS[kind]}"
    for key in sorted(stated):
        if key.startswith(prefix) and key not in (prefix + "class", parameter):
            raise ConfigError(f"{key} is not a known setting of this provider; it has {parameter}")
    text = stated.get(parameter)
    if text is None:
        return _Provider(name, kind, None, None)
    if kind == ENV:
        try:
            return _Provider(name, kind, re.compile(text), None)
        except re.error as problem:
            raise ConfigError(f"{parameter} is not a regular expression: {problem}") from None
    paths = tuple(posixpath.normpath(path.strip()) for path in text.split(",") if path.strip())
    for path in paths:
        if not posixpath.isabs(path) or not sources.exists(path):
            fault = "does not exist" if posixpath.isabs(path) else "is not absolute"
            raise ConfigError(f"{parameter}: {path} {fault}")
    # As in Kafka, an empty list allows everything.
    return _Provider(name, kind, None, paths or None)


def _value(
    key: str, variable: re.Match[str], providers: Mapping[str, _Provider], sources: Sources
) -> str:
    name, path, wanted = variable[1], variable[2] or "", variable[3]
    provider = providers.get(name)
    if provider is None:
        raise ConfigError(
            f"{key}: nothing resolves {variable[0]}, because {PROVIDERS} does not name a provider {name};"
            f" state {PROVIDERS}={','.join([*providers, name])} and {_PREFIX}{name}.class"
        )
    if "${" in variable[0][2:]:
        raise ConfigError(f"{key}: {variable[0]} is a variable within a variable")
    try:
        if provider.kind == ENV:
            found = _variable(provider, path, wanted, sources)
        else:
            found = _from_disk(provider, path, wanted, sources)
    except ConfigError as problem:
        raise ConfigError(f"{key}: cannot resolve {variable[0]}: {problem.why}") from None
    return found


def _variable(provider: _Provider, path: str, name: str, sources: Sources) -> str:
    if path:
        raise ConfigError(f"environment variables have no path; write ${{{provider.name}:NAME}}")
    if provider.allowlist is not None and provider.allowlist.fullmatch(name) is None:
        parameter = f"{_PREFIX}{provider.name}.param.{_ALLOWLIST}"
        raise ConfigError(f"{name} does not match {parameter}")
    found = sources.variable(name)
    if found is None:
        raise ConfigError(f"the environment has no variable {name}; set it before the start")
    return found


def _from_disk(provider: _Provider, path: str, key: str, sources: Sources) -> str:
    what = "FILE" if provider.kind == FILE else "DIRECTORY"
    if not path:
        raise ConfigError(f"it has no path; write ${{{provider.name}:/{what}:{key or 'KEY'}}}")
    normal = posixpath.normpath(path)
    if provider.paths is not None and not any(_is_in(normal, each) for each in provider.paths):
        parameter = f"{_PREFIX}{provider.name}.param.{_ALLOWED}"
        raise ConfigError(f"{path} is not in {parameter}")
    if provider.kind == DIRECTORY and ("/" in key or key in ("", ".", "..")):
        raise ConfigError("the last part must be the name of a file in that directory")
    try:
        if provider.kind == FILE:
            found = sources.properties(normal).get(key)
            missing = f"{path} has no key {key}"
        else:
            found = sources.file(posixpath.join(normal, key))
            missing = f"{path} has no file {key}"
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it cannot be decoded"
        raise ConfigError(f"cannot read {path}: {reason}") from None
    if found is None:
        raise ConfigError(f"{missing}; add it, or correct the variable")
    if provider.kind == FILE:
        return found
    # An editor ends the last line; no secret ends so.
    return found.removesuffix("\n").removesuffix("\r")


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _refuse_unclosed(key: str, text: str, providers: Iterable[str]) -> None:
    for name in providers:
        if f"${{{name}:" in text:
            raise ConfigError(f"{key}: a variable that begins with ${{{name}: has no closing brace")


# --------------------------------------------------------------------------------- what is hidden


class Redaction:
    """Replaces secret texts in other texts by `[hidden]`."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for text in secrets for form in _forms(text)}
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def __call__(self, text: str) -> str:
        """Return `text` without secrets."""
        return text if self._pattern is None else self._pattern.sub(HIDDEN, text)


def _forms(secret: str) -> Sequence[str]:
    """Return the secret as it may occur in messages: whole, by line, in a `repr`, a URL or base64."""
    stripped = secret.strip()
    forms = [secret, stripped, *(line.strip() for line in stripped.splitlines())]
    forms += [repr(stripped)[1:-1], quote(stripped), quote(stripped, safe="")]
    forms.append(base64.b64encode(stripped.encode("utf-8", "surrogateescape")).decode())
    return [form for form in forms if len(form) >= SECRET_CHARS_MIN]
