"""Metadata records as `firnline dump` and the Spark table `metadata` show them: by name, version and
fields. PURE.

Shows the fields of the record's version, tagged fields only if they differ from the default, like Kafka's
dump tool. Secrets are not shown: credentials, and settings that may be secret. Source: rel-X4.
"""

from typing import Any

from firnline.base.ids import uuid_text
from firnline.base.ports import Buffer
from firnline.config.broker import broker_keys
from firnline.metadata import records as r
from firnline.metadata.image import ResourceType
from firnline.protocol.primitives import read_uvarint
from firnline.protocol.schema import Message, Struct

HIDDEN = "[hidden]"
_MORE = 0x80  # of a varint: a further byte follows
_SECRETS = ("salt", "stored_key", "server_key")


def metadata_fact(value: Buffer) -> dict[str, Any]:
    """Return type, version and fields of the record in a metadata record's value.

    Raises ProtocolError for other bytes.
    """
    record, version = versioned(value)
    return {
        "type": type(record).__name__,
        "version": version,
        "value": open_fields(record, version),
    }


def versioned(value: Buffer) -> tuple[Message, int]:
    """Return the record in a metadata record's value, and the version at which it is written there.

    Raises ProtocolError for other bytes.
    """
    record = r.decode(value)
    if value[1] < _MORE and value[2] < _MORE:  # as with all records so far
        return record, value[2]
    _, position = read_uvarint(value, 0)
    _, position = read_uvarint(value, position)
    version, _ = read_uvarint(value, position)
    return record, version


def open_fields(record: Message, version: int) -> dict[str, Any]:
    """Return the fields of a metadata record as JSON values, without its secrets."""
    fields = shown(record, version)
    if isinstance(record, r.UserScramCredentialRecord):
        fields |= dict.fromkeys(_SECRETS, HIDDEN)
    if isinstance(record, r.ConfigRecord) and _is_secret(record):
        fields["value"] = HIDDEN
    return fields


def shown(value: Struct, version: int) -> dict[str, Any]:
    """Return the fields of a message as JSON values; ids in Kafka's spelling, bytes in hex."""
    fields: dict[str, Any] = {}
    for name, field in type(value).fields.items():
        item = getattr(value, name)
        if version not in field.versions:
            continue
        if field.tag is not None and _is_default(value, name):
            continue
        fields[name] = _plain(item, field.kind, version)
    return fields


def _is_default(value: Struct, name: str) -> bool:
    item, default = getattr(value, name), getattr(type(value), name)
    if isinstance(item, list | tuple) and isinstance(default, list | tuple):
        return list(item) == list(default)
    return bool(item == default)


def _plain(item: Any, kind: Any, version: int) -> Any:
    if item is None:
        return None
    if isinstance(kind, list):
        return [_plain(each, kind[0], version) for each in item]
    if isinstance(kind, type):
        return shown(item, version)
    if kind == "uuid":
        return uuid_text(item)
    return "0x" + bytes(item).hex() if kind in ("bytes", "records") else item


def _is_secret(record: r.ConfigRecord) -> bool:
    """Whether a setting may be secret: a broker's password, or an unknown key, which may belong to a
    plug-in.
    """
    if record.resource_type != ResourceType.BROKER or record.value is None:
        return False
    known = broker_keys().get(record.name)
    return known is None or known.is_sensitive
