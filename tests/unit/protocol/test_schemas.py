"""Our declarations say what Kafka's schemas say: names, order, types, versions, defaults, null, tags."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firnline.coordinator import records as group
from firnline.metadata import records as metadata
from firnline.protocol.messages import MODULES, REQUESTS
from firnline.protocol.messages.headers import RequestHeader, ResponseHeader
from firnline.protocol.schema import NEVER, OPEN, Field, Message, Struct, Versions, parse_versions
from firnline.records import control
from firnline.tiered.metadata import records as remote

pytestmark = pytest.mark.peer

ALL: list[type[Message]] = [
    *(cls for key in MODULES for cls in REQUESTS[key]),
    RequestHeader,
    ResponseHeader,
    *metadata.TYPES.values(),
    *remote.TYPES.values(),
    *(cls for pair in group.TYPES.values() for cls in pair),
    *{cls.__name__: cls for cls in control.TYPES.values()}.values(),
]
# Kafka keeps this record in a file of another name.
FILES = {"ZkMigrationStateRecord": "ZkMigrationRecord"}


def load(folder: Path, name: str) -> dict[str, Any]:
    text = (folder / f"{FILES.get(name, name)}.json").read_text()
    loaded: dict[str, Any] = json.loads(re.sub(r"(?m)(^|\s)//.*$", "", text))
    return loaded


def served(folder: Path, name: str) -> Versions:
    """The versions that a release serves: one that the request marks unstable is left out."""
    first, last = parse_versions(load(folder, name)["validVersions"])
    asked = load(folder, re.sub(r"Response$", "Request", name)) if name != "ResponseHeader" else {}
    return Versions(first, last - bool(asked.get("latestVersionUnstable")))


def kafka_default(row: dict[str, Any], kind: Any, nullable: Versions) -> Any:
    """What Kafka takes a missing field for, in our values."""
    said = row.get("default")
    if said == "null":
        return None
    if isinstance(kind, list):
        return ()
    if isinstance(kind, type):
        return None if nullable is not NEVER and said is None else kind()
    if kind == "bool":
        return str(said).lower() == "true"
    if kind == "string":
        return said or ""
    if kind == "uuid":
        return bytes(16)
    if kind == "bytes":
        return b""
    if kind == "records":
        return None
    return float(said or 0) if kind == "float64" else int(str(said or 0), 0)


def differences(
    cls: type[Struct], rows: list[dict[str, Any]], common: dict[str, Any], valid: Versions
) -> Iterator[str]:
    """One line for each thing that `cls` says and Kafka does not, or the other way round."""
    wanted = [
        row
        for row in rows
        if max(parse_versions(row["versions"]).first, valid.first)
        <= min(parse_versions(row["versions"]).last, valid.last)
    ]
    fields = {name: field for name, field in cls.fields.items() if field.tag != remote.OWN_TAG}
    if len(wanted) != len(fields):
        yield f"{cls.__name__}: {[r['name'] for r in wanted]} in Kafka, {list(fields)} here"
        return
    for row, (name, field) in zip(wanted, fields.items(), strict=True):
        where = f"{cls.__name__}.{name}"
        spelled = field.kafka_name or "".join(part.capitalize() for part in name.split("_"))
        kind = field.kind[0] if isinstance(field.kind, list) else field.kind
        nullable = parse_versions(row.get("nullableVersions", "none"))
        own = row.get("flexibleVersions")
        facts = {
            "name": (row["name"][0].upper() + row["name"][1:], spelled[0].upper() + spelled[1:]),
            "array": (row["type"].startswith("[]"), isinstance(field.kind, list)),
            "versions": (parse_versions(row["versions"]), field.versions),
            "nullable": (nullable, field.nullable),
            "tag": (row.get("tag"), field.tag),
            "tagged": (
                row.get("taggedVersions"),
                row["versions"] if field.tag is not None else None,
            ),
            "flexible": (own and parse_versions(own), field.flexible),
            "default": (kafka_default(row, field.kind, nullable), getattr(cls, name)),
        }
        yield from (f"{where} {what}: {a!r} != {b!r}" for what, (a, b) in facts.items() if a != b)
        element = row["type"].removeprefix("[]")
        if isinstance(kind, type):
            inner = row.get("fields") or common[element]["fields"]
            yield from differences(kind, inner, common, valid)
        elif kind != element:
            yield f"{where} type: {element} != {kind}"


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_a_declaration_is_kafkas_schema(cls: type[Message], kafka_schemas: Path) -> None:
    schema = load(kafka_schemas, cls.__name__)
    common = {row["name"]: row for row in schema.get("commonStructs", [])}
    assert schema["name"] == cls.__name__
    assert cls.valid == served(kafka_schemas, cls.__name__)
    assert cls.flexible == parse_versions(schema["flexibleVersions"])
    if "apiKey" in schema:
        assert cls.key == schema["apiKey"]
    assert list(differences(cls, schema["fields"], common, cls.valid)) == []


def test_every_schema_of_these_families_is_declared(kafka_schemas: Path) -> None:
    """Goal: a record type that is missing here altogether. Method: list the schemas by their type."""
    declared = {cls.__name__ for cls in ALL}
    found = [load(kafka_schemas, path.stem) for path in sorted(kafka_schemas.glob("*.json"))]
    metadata_types = {row["name"] for row in found if row["type"] == "metadata"}
    assert len(metadata_types) > 28
    assert metadata_types <= declared


class Planted(Struct):
    kept = Field("int32", Versions(0, OPEN), "", 1, NEVER, None, None, None)
    added = Field("string", Versions(0, OPEN), "", "", NEVER, 3, None, None)


def test_the_comparison_finds_planted_differences() -> None:
    rows = [
        {"name": "Kept", "type": "int64", "versions": "0+", "default": "2"},
        {"name": "Other", "type": "string", "versions": "1+", "nullableVersions": "0+"},
    ]
    found = "\n".join(differences(Planted, rows, {}, Versions(0, 3)))
    for what in (
        "kept default",
        "kept type",
        "added name",
        "added versions",
        "added nullable",
        "added tag",
    ):
        assert what in found
