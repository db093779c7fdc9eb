"""JSON has the same shape for one and for many, and exact numbers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from firnline.cli.main import cli
from firnline.protocol.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from firnline.protocol.messages.k10_find_coordinator import Coordinator, FindCoordinatorResponse
from firnline.protocol.messages.k20_delete_topics import DeletableTopicResult, DeleteTopicsResponse
from firnline.protocol.messages.k32_describe_configs import (
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from firnline.protocol.messages.k42_delete_groups import DeletableGroupResult, DeleteGroupsResponse
from tests.unit.cli.fake_broker import FakeBroker
from tests.unit.cli.tree import ALL, ASKING, options_of

MANY = {
    path
    for path, command in ALL.items()
    if "--format" in options_of(command)
    and any(isinstance(each, click.Argument) and each.nargs == -1 for each in command.params)
}
# `profile set` names one profile and several of its settings, `config alter` one topic or broker.
ABOUT_ONE = {"profile set", "config alter"}
# They print records, one a line.
RECORDS = {"produce", "consume"}
# Lists of outcomes by partition: test_partition.py and test_delete_records.py read them.
OUTCOMES = {"partition cancel", "partition elect", "partition move", "topic delete-records"}


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """Knows every topic and every group, and deletes what it is told to."""
    with FakeBroker({}) as fake:
        node = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=fake.port)
        coordinator = Coordinator(key="g", node_id=1, host="127.0.0.1", port=fake.port)
        fake.answers = {
            3: lambda asked: MetadataResponse(
                brokers=[node],
                controller_id=1,
                topics=[MetadataResponseTopic(name=each.name) for each in asked.topics],
            ),
            10: lambda _: FindCoordinatorResponse(coordinators=[coordinator]),
            20: lambda _: DeleteTopicsResponse(responses=[DeletableTopicResult()]),
            32: lambda _: DescribeConfigsResponse(results=[DescribeConfigsResult(configs=[])]),
            42: lambda _: DeleteGroupsResponse(results=[DeletableGroupResult()]),
        }
        yield fake


def shape(value: Any) -> Any:
    """Return what a program has to know to read a value: its type, and its keys; a list has one type."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value[:1]]
    return type(value).__name__


def test_the_rule_is_about_these_commands() -> None:
    """One that is new, and takes several names, is tested below as all others are."""
    assert {"topic describe", "topic delete", "group delete", "dump"} <= MANY


@pytest.mark.parametrize("path", sorted(MANY - ABOUT_ONE - RECORDS - OUTCOMES))
def test_one_has_the_shape_of_many(path: str, broker: FakeBroker, tmp_path: Path) -> None:
    names = ["one", "two"]
    if path == "dump":
        names = [str(tmp_path / directory / "partition.metadata") for directory in names]
        for name in names:
            Path(name).parent.mkdir()
            Path(name).write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n")
    at = ["-b", broker.address] if path in ASKING else []
    found = []
    for some in (names[:1], names):
        result = CliRunner().invoke(cli, [*path.split(), *some, *at, "--format", "json"])
        assert result.exit_code == 0, result.exception
        lines = result.stdout.splitlines()
        found.append(json.loads(lines[0]) if path == "dump" else json.loads(result.stdout))
    assert shape(found[0]) == shape(found[1])
    assert found[0]


def test_every_command_that_prints_json_has_the_option_of_all() -> None:
    """`sim` reads no cluster and has a format of its own: text, for people who debug."""
    for path, command in ALL.items():
        options = options_of(command)
        if "--format" in options and not path.startswith("sim") and path not in RECORDS:
            assert list(getattr(options["--format"].type, "choices", ())) == ["table", "json"], path
