"""Records as JSON lines: `consume --format json` prints them, `produce --format json` reads them. PURE.

    {"topic":"t","partition":0,"offset":7,"timestamp":1700000000000,"key":"k","value":"v","headers":[]}

Bytes that are UTF-8 are a string; all others are under the name with `_base64` behind it, so that a string
never has two meanings. null is null. Each header is an object of the same shape: `name`, and `value` or
`value_base64`.
"""

import binascii
import json
from collections.abc import Mapping
from typing import Any

from firnline.cli.records.record import Headers, InputError, NewRecord, Record

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_decode = json.JSONDecoder().decode
# topic and offset are what the record had where it was read; where it goes they are made anew.
FIELDS = (
    *("topic", "partition", "offset", "timestamp", "key", "key_base64", "value", "value_base64"),
    "headers",
)
_KNOWN = frozenset(FIELDS)
_TIMESTAMP_MAX = (1 << 63) - 1
_PARTITION_MAX = (1 << 31) - 1


def line_of(record: Record) -> bytes:
    """Return a record as one line of JSON, with its newline."""
    topic, partition, offset, timestamp_ms, key, value, headers = record
    content: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": None if timestamp_ms == -1 else timestamp_ms,
    }
    _put(content, "key", key)
    _put(content, "value", value)
    content["headers"] = [_header(name, each) for name, each in headers]
    return _encode(content).encode() + b"\n"


def _header(name: str, value: bytes | None) -> dict[str, Any]:
    content: dict[str, Any] = {"name": name}
    _put(content, "value", value)
    return content


def _put(content: dict[str, Any], name: str, value: bytes | None) -> None:
    try:
        content[name] = None if value is None else value.decode()
    except UnicodeDecodeError:
        assert value is not None
        content[name + "_base64"] = binascii.b2a_base64(value, newline=False).decode()


def record_of(line: bytes) -> NewRecord:
    """Return the record in a line of JSON. Raises InputError, which says what is wrong with it."""
    try:
        content = _decode(line.decode())
    except (ValueError, RecursionError) as problem:
        raise InputError(f"not JSON: {_why(problem)}") from None
    if not isinstance(content, dict):
        raise InputError(f'a record is an object, such as {{"value": "v"}}, not {_kind(content)}')
    if not content.keys() <= _KNOWN:
        name = next(name for name in content if name not in _KNOWN)
        raise InputError(f"no field is called {name!r}; there are {', '.join(FIELDS)}")
    if not content.keys() & {"key", "key_base64", "value", "value_base64"}:
        raise InputError('neither "key" nor "value" is there')
    return NewRecord(
        key=_bytes_of(content, "key"),
        value=_bytes_of(content, "value"),
        headers=_headers_of(content),
        partition=_number_of(content, "partition", 0, _PARTITION_MAX),
        timestamp_ms=_number_of(content, "timestamp", 1, _TIMESTAMP_MAX),
    )


def _why(problem: Exception) -> str:
    if isinstance(problem, json.JSONDecodeError):
        return f"{problem.msg} at character {problem.pos + 1}"
    return "bytes that are not UTF-8" if isinstance(problem, UnicodeError) else "too deeply nested"


def _kind(value: object) -> str:
    names = {str: "a string", list: "a list", dict: "an object", bool: "true or false"}
    return "null" if value is None else names.get(type(value), "a number")


def _bytes_of(content: Mapping[str, Any], name: str) -> bytes | None:
    encoded = name + "_base64"
    if encoded in content:
        if name in content:
            raise InputError(f'both "{name}" and "{encoded}" are there')
        value = content[encoded]
        try:
            return binascii.a2b_base64(value.encode("ascii"), strict_mode=True)
        except (AttributeError, ValueError):
            raise InputError(f'"{encoded}" is not base64') from None
    value = content.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise InputError(
            f'"{name}" is a string or null, not {_kind(value)}; JSON inside a record is quoted as text'
        )
    return _utf8(name, value)


def _utf8(name: str, value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InputError(f'"{name}" has half a surrogate pair, which is not a character') from None


def _headers_of(content: Mapping[str, Any]) -> Headers:
    headers = content.get("headers")
    if headers is None:
        return ()
    if not isinstance(headers, list):
        raise InputError(f'"headers" is a list, not {_kind(headers)}')
    found = []
    for each in headers:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise InputError('each of "headers" is an object, such as {"name": "n", "value": "v"}')
        if unknown := each.keys() - {"name", "value", "value_base64"}:
            raise InputError(f"a header has no field {min(unknown)!r}")
        _utf8("name", each["name"])
        if "\0" in each["name"]:
            raise InputError("the name of a header holds a NUL, which librdkafka cannot send")
        found.append((each["name"], _bytes_of(each, "value")))
    return found


def _number_of(content: Mapping[str, Any], name: str, least: int, most: int) -> int | None:
    value = content.get(name)
    if value is None:
        return None
    if type(value) is not int or not least <= value <= most:
        shown = value if type(value) is int else _kind(value)
        raise InputError(f'"{name}" is a number from {least} to {most}, not {shown}')
    return value
