"""Ask `Oracle.java`: Kafka's classes parse our bytes, build their own, and say what they see."""

import json
import struct
import subprocess
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from firnline.base.ids import uuid_text
from firnline.protocol.schema import Message, Struct
from firnline.tiered.metadata.records import OWN_TAG
from tests.peers import kafka

_LENGTH = struct.Struct(">i")
_VERSION = struct.Struct(">h")


class Refused(Exception):
    """Kafka threw; the text is what it threw."""


class KafkaOracle:
    """One running Oracle. Use as a context manager."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] = kafka.java(Path(__file__).with_name("Oracle.java"))

    def __enter__(self) -> "KafkaOracle":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def parse(self, name: str, version: int, data: bytes) -> tuple[bytes, Any]:
        """Return what Kafka writes for the message it read from `data`, and its JSON."""
        again, text = self._ask("P", name, version, data)
        return again, json.loads(text)

    def build(self, name: str, version: int, content: Any) -> bytes:
        """Return the bytes of a message that Kafka built from JSON."""
        return self._ask("B", name, version, json.dumps(content).encode())[0]

    def framed(self, kind: str, value: bytes) -> tuple[bytes, Any]:
        """Return what Kafka's serde writes for a framed value ("metadata", "remote"), and its JSON."""
        again, text = self._ask("F", kind, 0, value)
        return again, json.loads(text)

    def group_record(self, key: bytes, value: bytes | None) -> tuple[bytes, bytes | None, str]:
        """Return key and value as Kafka's group coordinator writes them, and its description."""
        payload = _LENGTH.pack(len(key)) + key + (value or b"")
        again, text = self._ask("G", "", 0, payload)
        (size,) = _LENGTH.unpack_from(again)
        return again[4 : 4 + size], again[4 + size :] or None, text.decode()

    def image_records(
        self, batches: Sequence[Sequence[bytes]], level: int = -1
    ) -> tuple[list[bytes], int]:
        """Return the records, framed, of Kafka's image after these batches, and how much it could not write.

        `level` is the metadata.version to write at; -1 that of the image.
        """
        payload = _LENGTH.pack(len(batches)) + b"".join(
            _LENGTH.pack(len(values)) + b"".join(map(_sized, values)) for values in batches
        )
        again, losses = self._ask("I", "", level, payload)
        values, position = [], 0
        while position < len(again):
            (size,) = _LENGTH.unpack_from(again, position)
            values.append(again[position + 4 : position + 4 + size])
            position += 4 + size
        return values, int(losses)

    def control_records(self, batch: bytes) -> list[tuple[str, Any]]:
        """Return (type, JSON) of each record of a control batch."""
        lines = self._ask("C", "", 0, batch)[0].decode().splitlines()
        return [(kind, json.loads(text)) for kind, _, text in (x.partition(" ") for x in lines)]

    def control_batch(self, name: str, control_type: int, content: Any) -> bytes:
        """Return a control batch that Kafka made around one record."""
        return self._ask("M", name, control_type, json.dumps(content).encode())[0]

    def _ask(self, op: str, name: str, version: int, payload: bytes) -> tuple[bytes, bytes]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(op.encode() + _sized(name.encode()) + _VERSION.pack(version) + _sized(payload))
        stdin.flush()
        if stdout.read(1) == b"\0":
            return _read(stdout), _read(stdout)
        raise Refused(_read(stdout).decode())


def _sized(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _read(stream: IO[bytes]) -> bytes:
    (size,) = _LENGTH.unpack(stream.read(4))
    return stream.read(size)


def kafka_name(cls: type[Message]) -> str:
    """Return the name of Kafka's class for one of our messages."""
    ours = cls.__name__
    return f"{ours}Data" if ours.endswith(("Request", "Response", "Header")) else ours


def as_json(value: Struct, version: int, *, records: bool) -> dict[str, Any]:
    """Return what Kafka's JSON of `value` is by our declarations.

    With `records`, record bytes are in it, as Kafka wants them for building; without, their size
    stands for them, as Kafka shows them. Tagged fields at their default are left out, and the one that only
    Firnline has.
    """
    out: dict[str, Any] = {}
    for name, field in type(value).fields.items():
        if version not in field.versions or field.tag == OWN_TAG:
            continue
        item = getattr(value, name)
        if field.tag is not None and _is_default(value, name):
            continue
        spelled = field.kafka_name or "".join(part.capitalize() for part in name.split("_"))
        spelled = spelled[0].lower() + spelled[1:]
        if field.kind == "records" and item is not None and not records:
            out[f"{spelled}SizeInBytes"] = len(item)
        else:
            out[spelled] = _json(item, field.kind, version, records)
    return out


def _is_default(value: Struct, name: str) -> bool:
    default = getattr(type(value), name)
    item = getattr(value, name)
    return bool(
        (list(item) if isinstance(item, list | tuple) else item)
        == (list(default) if isinstance(default, list | tuple) else default)
    )


def _json(item: Any, kind: Any, version: int, records: bool) -> Any:
    if item is None:
        return None
    if isinstance(kind, list):
        return [_json(x, kind[0], version, records) for x in item]
    if isinstance(kind, type):
        return as_json(item, version, records=records)
    if kind == "uuid":
        return uuid_text(item)
    if kind in ("bytes", "records"):
        return b64encode(item).decode()
    return item
