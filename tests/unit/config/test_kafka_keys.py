"""Our settings are Kafka 4.3.1's: no key is missing, none differs in type, default or range."""

import ast
from pathlib import Path
from typing import get_type_hints

import pytest

from firnline.config.broker import BrokerConfig, broker_keys
from firnline.config.define import ConfigKey, declared_keys
from firnline.config.parse import text_of
from firnline.config.topic import TopicConfig, topic_keys

FACTS = [
    line.split("\t")
    for line in (Path(__file__).parents[2] / "data" / "kafka-4.3.1-settings.tsv")
    .read_text()
    .splitlines()
    if not line.startswith("#")
]

# Keys of KIP-630 that never came into Kafka.
OF_THE_KIP = {
    "metadata.snapshot.min.changed_records.ratio",
    "metadata.start.offset.lag.time.max.ms",
}


def ours(scope: str) -> dict[str, ConfigKey]:
    return dict(topic_keys() if scope == "topic" else broker_keys())


def default_of(key: ConfigKey) -> str:
    if key.is_required:
        return "<required>"
    if key.name == "log.dirs":
        return "null"  # log.dir is put in its place, so that code need not ask twice
    text = text_of(key, key.default)
    if text is None:
        return "null"
    return f"[{', '.join(key.default)}]" if isinstance(key.default, tuple) else text


@pytest.mark.parametrize("scope", ["broker", "topic"])
def test_no_key_is_missing_and_only_ours_are_more(scope: str) -> None:
    theirs = {row[1] for row in FACTS if row[0] == f"{scope}-config"}
    assert len(theirs) > 30
    more = {name for name in ours(scope) if not name.startswith("firnline.")} - theirs
    assert more == (OF_THE_KIP if scope == "broker" else set())
    assert theirs <= set(ours(scope))


@pytest.mark.parametrize("row", FACTS, ids=lambda row: f"{row[0][0]}-{row[1]}")
def test_a_key_is_what_kafka_says(row: list[str]) -> None:
    scope, name, type_, default, valid, marks, dynamic = row
    key = ours(scope.removesuffix("-config"))[name]
    assert key.type == type_
    assert default_of(key) == default.removeprefix("class ")
    assert key.valid == valid
    importance, *others = marks.split()
    assert key.importance == importance
    assert key.is_internal == ("internal" in others)
    assert key.is_dynamic == bool(dynamic)


PYTHON = {
    "BOOLEAN": bool,
    "INT": int,
    "SHORT": int,
    "LONG": int,
    "DOUBLE": float,
    "LIST": tuple[str, ...],
    "STRING": str,
    "CLASS": str,
    "PASSWORD": str,
}


@pytest.mark.parametrize(("config", "scope"), [(BrokerConfig, "broker"), (TopicConfig, "topic")])
def test_what_the_type_checker_believes_is_the_type_of_the_key(config: type, scope: str) -> None:
    hints = get_type_hints(config)
    for key in declared_keys(config, scope).values():  # type: ignore[arg-type]
        expected = PYTHON[key.type]
        if key.default is None:
            expected = expected | None
        assert hints[key.attribute] == expected, key.name


def test_every_key_that_acts_says_what_it_does() -> None:
    for key in [*broker_keys().values(), *topic_keys().values()]:
        if key.kind == "acts":
            assert key.doc.endswith("."), key.name


def read_by_code() -> set[str]:
    """Names of all attributes that the source reads, `config/` itself left out but for its layers."""
    source = Path(__file__).parents[3] / "src" / "firnline"
    paths = [path for path in source.rglob("*.py") if path.parent.name not in ("config", "cli")]
    trees = [ast.parse(p.read_text()) for p in [*paths, source / "config" / "layers.py"]]
    others = [source / "config" / name for name in ("broker.py", "topic.py")]
    trees += [ast.parse(path.read_text()) for path in others]
    found = (node for tree in trees for node in ast.walk(tree))
    return {node.attr for node in found if isinstance(node, ast.Attribute)}


def test_no_key_claims_to_act_that_nobody_reads() -> None:
    read = read_by_code()
    assert len(read) > 1000
    defaults = {key.synonym for key in topic_keys().values() if key.kind == "acts"}
    idle = [
        key.name
        for key in [*broker_keys().values(), *topic_keys().values()]
        if key.kind == "acts" and key.attribute not in read and key.name not in defaults
    ]
    # By their names in dictionaries, in config/providers.py and config/layers.py; by the commands that start
    # a node.
    assert idle == ["config.providers", "firnline.log.format", "internal.segment.bytes"]


def test_every_synonym_is_a_broker_key_of_the_same_type() -> None:
    for key in topic_keys().values():
        if key.synonym is not None:
            assert broker_keys()[key.synonym].type == key.type
            assert (broker_keys()[key.synonym].kind == "acts") or key.kind != "acts", key.name
