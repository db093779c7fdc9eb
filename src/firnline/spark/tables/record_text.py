"""The fields of a metadata record as JSON text, without an object for each field. PURE.

The text is that of `json.dumps(open_fields(record, version))`. A snapshot may have a million records of
partitions, so those that come in such numbers are written directly.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from firnline.base.ids import uuid_text
from firnline.metadata import records as r
from firnline.protocol.schema import Message
from firnline.spark.tables.record_facts import open_fields

# No field of these is secret, and all their kinds are below.
_DIRECT = frozenset({r.PartitionRecord, r.PartitionChangeRecord, r.TopicRecord})
id_text = lru_cache(maxsize=100_000)(uuid_text)
Write = Callable[[Any], str]


def record_text(record: Message, version: int) -> str:
    """Return the fields of a metadata record as a JSON object; secrets are hidden."""
    if type(record) not in _DIRECT:
        return json.dumps(open_fields(record, version))
    form = _form(record.key, version)
    if form.tagged is not None and form.tagged(record) != form.defaults:
        return json.dumps(open_fields(record, version))
    values = form.others(record)
    return form.text % tuple([write(v) for write, v in zip(form.writers, values, strict=True)])


class _Form(NamedTuple):
    """How the fields of a type and version are written if all tagged ones have their defaults.

    text      the JSON object, with %s for each field that is not tagged
    tagged    returns the values of the tagged fields; None if the version has none
    """

    text: str
    others: Callable[[Message], tuple[Any, ...]]
    writers: tuple[Write, ...]
    tagged: Callable[[Message], tuple[Any, ...]] | None
    defaults: tuple[Any, ...]


@lru_cache(maxsize=64)
def _form(key: int, version: int) -> _Form:
    kind = r.TYPES[key]
    fields = {name: field for name, field in kind.fields.items() if version in field.versions}
    others = [name for name, field in fields.items() if field.tag is None]
    tagged = [name for name, field in fields.items() if field.tag is not None]
    return _Form(
        text="{" + ", ".join(f'"{name}": %s' for name in others) + "}",
        others=_getter(others),
        writers=tuple(_writer(fields[name].kind) for name in others),
        tagged=_getter(tagged) if tagged else None,
        defaults=tuple(getattr(kind, name) for name in tagged),
    )


def _getter(names: list[str]) -> Callable[[Message], tuple[Any, ...]]:
    if len(names) == 1:
        return lambda record: (getattr(record, names[0]),)
    return attrgetter(*names)


def _writer(kind: Any) -> Write:
    if kind == ["int32"]:
        return _numbers
    if kind == ["uuid"]:
        return _ids
    if kind == "uuid":
        return lambda value: f'"{id_text(value)}"'
    if kind == "string":
        return json.dumps
    assert kind in ("int8", "int16", "int32", "int64"), kind
    return str


def _numbers(value: Any) -> str:
    return "null" if value is None else str(list(value))


def _ids(value: Any) -> str:
    return "null" if value is None else "[" + ", ".join([f'"{id_text(i)}"' for i in value]) + "]"
