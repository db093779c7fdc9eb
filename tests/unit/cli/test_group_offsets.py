"""`firnline group reset`, `delete-offsets` and `list --lag`: plans, refusals, partial failures."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import TopicPartition
from firnline.cli import group as group_commands
from firnline.cli.terminal.table import that_fit
from firnline.client.admin import Admin
from firnline.client.operations.group_offsets import commit_offsets, committed_offsets
from firnline.client.operations.partitions import OffsetAt
from firnline.protocol.messages.k08_offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from firnline.protocol.messages.k09_offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from firnline.protocol.messages.k47_offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tests.unit.cli.fake_cluster import END, FakeCluster, fake_cluster, once
from tests.unit.cli.fake_groups import FakeGroups


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster() as made:
        yield made


@pytest.fixture
def groups(cluster: FakeCluster) -> FakeGroups:
    return FakeGroups(cluster)


def reset(groups: FakeGroups, *words: str, code: int = 0, stdin: str = "") -> Any:
    """Run a reset; return the rows it printed as (partition, new offset, note)."""
    words = ("group", "reset", "shop", *words, "--format", "json")
    done = groups.cluster.run(*words, stdin=stdin)
    assert done.exit_code == code, done.output
    return [(row["partition"], row["new_offset"], row["note"]) for row in json.loads(done.stdout)]


def test_a_plan_alone_commits_nothing(groups: FakeGroups) -> None:
    done = groups.cluster.run("group", "reset", "shop", "--topic", "events:0-1", "--to-latest")
    assert done.exit_code == 0
    assert "+80" in done.stdout
    assert "add --execute" in done.stderr
    assert not groups.cluster.asked("OffsetCommitRequest")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--to-earliest"], [(0, 10, ""), (1, 10, "")]),
        (["--to-latest"], [(0, 100, ""), (1, 100, "")]),
        (["--to-current"], [(0, 20, ""), (1, 30, "")]),
        (["--to-offset", "50"], [(0, 50, ""), (1, 50, "")]),
        (
            ["--to-offset", "5"],
            [
                (0, 10, "5 is not there: the log begins at 10"),
                (1, 10, "5 is not there: the log begins at 10"),
            ],
        ),
        (["--shift-by", "-15"], [(0, 10, "5 is not there: the log begins at 10"), (1, 15, "")]),
        (["--shift-by", "75"], [(0, 95, ""), (1, 100, "105 is not there: the log ends at 100")]),
        (
            ["--to-time", "1970-01-01T00:00:05Z"],
            [(0, 42, ""), (1, 100, "no record since then: the log end")],
        ),
        (["--to-time", "5000"], [(0, 42, ""), (1, 100, "no record since then: the log end")]),
    ],
)
def test_where_a_group_can_go(groups: FakeGroups, words: list[str], expected: object) -> None:
    groups.cluster.offsets["events", 0, 5000] = 42
    assert reset(groups, "--all-topics", *words) == expected


def test_partitions_without_a_committed_offset(groups: FakeGroups) -> None:
    rows = reset(groups, "--topic", "events", "--to-current")
    assert rows[2:] == [(n, END, "nothing committed: the log end") for n in (2, 3)]
    done = groups.cluster.run("group", "reset", "shop", "--topic", "events", "--shift-by", "1")
    assert done.exit_code == 1
    assert "events-2 has no committed offset to shift" in str(done.exception)


def test_offsets_are_committed_from_outside_the_group(groups: FakeGroups) -> None:
    reset(groups, "--topic", "events", "--to-offset", "50", "--execute")
    (request,) = groups.cluster.asked("OffsetCommitRequest")
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
    assert groups.committed["shop"] == dict.fromkeys(range(4), 50)


def test_a_group_with_members_is_refused_and_they_are_named(groups: FakeGroups) -> None:
    groups.members = ["till", "scale"]
    words = ("group", "reset", "shop", "--topic", "events", "--to-latest")
    assert groups.cluster.run(*words).exit_code == 0, "a plan harms nobody"
    done = groups.cluster.run(*words, "--execute")
    assert isinstance(done.exception, KafkaError)
    assert "shop has 2 members (scale@10.0.0.7, till@10.0.0.7)" in str(done.exception)
    assert not groups.cluster.asked("OffsetCommitRequest")


def test_a_group_of_the_newer_protocol_is_found_although_it_is_dead_to_the_older(
    groups: FakeGroups,
) -> None:
    groups.is_classic, groups.members = False, ["till"]
    done = groups.cluster.run("group", "reset", "shop", "--all-topics", "--to-latest", "--execute")
    assert "a group of the consumer protocol" in str(done.exception)
    assert not groups.cluster.asked("OffsetCommitRequest")


def test_a_member_that_joins_between_plan_and_commit_is_named(groups: FakeGroups) -> None:
    groups.refused = dict.fromkeys(range(4), Code.UNKNOWN_MEMBER_ID)

    def joined(request: Any) -> OffsetCommitResponse:
        groups.members = ["till"]
        return groups.commit(request)

    groups.cluster.answer(8, joined)
    done = groups.cluster.run("group", "reset", "shop", "--all-topics", "--to-latest", "--execute")
    assert "1 member (till@10.0.0.7)" in str(done.exception)


def test_a_refusal_of_one_partition_hides_no_other(groups: FakeGroups) -> None:
    groups.refused = {1: Code.TOPIC_AUTHORIZATION_FAILED}
    words = ("group", "reset", "shop", "--all-topics", "--to-latest", "--execute")
    done = groups.cluster.run(*words)
    assert done.exit_code == 3
    assert "not committed: TOPIC_AUTHORIZATION_FAILED: group shop, events-1" in done.stdout
    assert "committed 1 offset\n" in done.stderr
    rows = json.loads(groups.cluster.run(*words, "--format", "json").stdout)
    assert [row["is_committed"] for row in rows] == [True, False]


def test_what_is_exported_is_taken_back(groups: FakeGroups, tmp_path: Path) -> None:
    words = ("group", "reset", "shop", "--all-topics")
    exported = groups.cluster.run(*words, "--to-current", "--export").stdout
    assert exported == "events,0,20\nevents,1,30\n"
    reset(groups, "--all-topics", "--to-latest", "--execute")
    file = tmp_path / "before.csv"
    file.write_text(exported)
    assert reset(groups, "--from-file", str(file), "--execute") == [(0, 20, ""), (1, 30, "")]
    assert groups.committed["shop"] == {0: 20, 1: 30}


def test_kafkas_csv_of_several_groups_is_read_for_this_one(groups: FakeGroups) -> None:
    text = "other,events,0,70\nshop,events,1,60\n\n"
    assert reset(groups, "--from-file", "-", stdin=text) == [(1, 60, "")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("events,0\n", "line 1 of <stdin> is not topic,partition,offset"),
        ("events,0,-5\n", "line 1 of"),
        ("events,0,5\nevents,0,6\n", "line 2 of <stdin> names events-0 a second time"),
        ("other,events,0,70\n", "has no line for shop"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(groups: FakeGroups, text: str, said: str) -> None:
    done = groups.cluster.run("group", "reset", "shop", "--from-file", "-", stdin=text)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_file_that_is_no_text_is_refused(groups: FakeGroups, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_bytes(b"\xff\xfe\x00")
    done = groups.cluster.run("group", "reset", "shop", "--from-file", str(file))
    assert done.exit_code == 2
    assert "is no text" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--topic", "events"], "say once where to"),
        (["--topic", "events", "--to-latest", "--to-earliest"], "say once where to"),
        (["--to-latest"], "one of --topic and --all-topics"),
        (["--topic", "events", "--all-topics", "--to-latest"], "one of --topic and --all-topics"),
        (["--topic", "events", "--to-latest", "--execute", "--dry-run"], "--execute excludes"),
        (["--topic", "events:x", "--to-latest"], "not like topic:0,2-4"),
        (["--topic", "events", "--to-time", "soon"], "is not a time"),
        (["--topic", "events", "--by-duration", "1 fortnight"], "is not a duration"),
    ],
)
def test_wrong_usage_is_told(groups: FakeGroups, words: list[str], said: str) -> None:
    done = groups.cluster.run("group", "reset", "shop", *words)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())


def test_a_group_that_is_not_there_is_made_for_a_named_topic_only(groups: FakeGroups) -> None:
    words = ("group", "reset", "nobody", "--to-latest", "--execute")
    done = groups.cluster.run(*words, "--all-topics")
    assert str(done.exception) == "no group 'nobody'. There is: shop."
    assert groups.cluster.run(*words, "--topic", "events:3").exit_code == 0
    assert groups.committed["nobody"] == {3: END}


def test_unknown_topics_and_partitions_are_told_apart(groups: FakeGroups) -> None:
    done = groups.cluster.run("group", "reset", "shop", "--topic", "evnts", "--to-latest")
    assert "there is no topic evnts: did you mean events?" in str(done.exception)
    done = groups.cluster.run("group", "reset", "shop", "--topic", "events:4", "--to-latest")
    assert "events has no partition 4: it has 4, from 0" in str(done.exception)


def test_a_coordinator_that_loads_is_asked_again(groups: FakeGroups) -> None:
    """Both of a read for many groups and of a commit."""

    def loading(request: Any) -> OffsetFetchResponse:
        rows = [
            OffsetFetchResponseGroup(
                group_id=each.group_id, error_code=Code.COORDINATOR_LOAD_IN_PROGRESS
            )
            for each in request.groups
        ]
        return OffsetFetchResponse(groups=rows)

    groups.cluster.answer(9, once(loading, groups.fetch))

    def moved(request: Any) -> OffsetCommitResponse:
        groups.refused = {}
        part = OffsetCommitResponsePartition(partition_index=0, error_code=Code.NOT_COORDINATOR)
        return OffsetCommitResponse(
            topics=[OffsetCommitResponseTopic(name="events", partitions=[part])]
        )

    groups.cluster.answer(8, once(moved, groups.commit))
    with Admin(groups.cluster.bootstrap) as admin:
        (found,) = committed_offsets(admin, ["shop"]).values()
        assert found == {TopicPartition("events", 0): 20, TopicPartition("events", 1): 30}
        place = TopicPartition("events", 0)
        assert commit_offsets(admin, "shop", {place: OffsetAt(7, -1)}) == {place: None}
    assert groups.committed["shop"][0] == 7


def test_offsets_are_forgotten_for_each_partition_or_not(groups: FakeGroups) -> None:
    def answer(request: Any) -> OffsetDeleteResponse:
        rows = [
            OffsetDeleteResponsePartition(
                partition_index=each.partition_index,
                error_code=Code.GROUP_SUBSCRIBED_TO_TOPIC if each.partition_index == 1 else 0,
            )
            for each in request.topics[0].partitions
        ]
        return OffsetDeleteResponse(
            topics=[OffsetDeleteResponseTopic(name="events", partitions=rows)]
        )

    groups.cluster.answer(47, answer)
    words = ("group", "delete-offsets", "shop", "--format", "json", "--topic")
    done = groups.cluster.run(*words, "events:0,1")
    assert done.exit_code == 3
    rows = json.loads(done.stdout)
    assert [row["is_deleted"] for row in rows] == [True, False]
    assert "GROUP_SUBSCRIBED_TO_TOPIC" in rows[1]["problem"]
    assert groups.cluster.run(*words, "events:0").exit_code == 0


# ------------------------------------------------------------------------------------------------- lag


def lag_of(cluster: FakeCluster, group: str) -> dict[str, Any]:
    done = cluster.run("group", "list", "--lag", "--format", "json")
    assert done.exit_code == 0, done.output
    return {row["group"]: row for row in json.loads(done.stdout)}[group]


def test_the_lag_of_hundreds_of_groups_takes_a_few_questions(groups: FakeGroups) -> None:
    groups.committed = {f"g{'x' * (n % 2)}{n:03}": {0: 20, 1: 30} for n in range(600)}
    row = lag_of(groups.cluster, "g000")
    assert (row["partitions"], row["lag_records"], row["unknown"]) == (2, 150, 0)
    assert len(groups.cluster.asked("FindCoordinatorRequest")) <= 3
    assert len(groups.cluster.asked("OffsetFetchRequest")) <= 4
    assert len(groups.cluster.asked("ListOffsetsRequest")) == 2, "one for each leader"


def test_a_partition_whose_end_is_unknown_is_counted_apart(groups: FakeGroups) -> None:
    groups.cluster.offsets["events", 1, -1] = Code.TOPIC_AUTHORIZATION_FAILED
    row = lag_of(groups.cluster, "shop")
    assert (row["partitions"], row["lag_records"], row["unknown"]) == (2, 80, 1)
    table = groups.cluster.run("group", "list", "--lag").stdout
    assert "unknown" in table
    assert "problem" not in table


def test_a_terminal_with_long_names_of_groups_still_shows_the_lag(
    groups: FakeGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last columns are left out first, and the lag was among them."""
    shown: dict[str, Any] = {}
    keep = lambda found, style, **more: shown.update(more, rows=found)  # noqa: E731
    monkeypatch.setattr(group_commands, "rows", keep)
    assert groups.cluster.run("group", "list", "--lag").exit_code == 0
    cells = [{name: str(row[name]) for name in row} for row in shown["rows"]]
    cells[0]["group"] = "g" * 60
    assert "lag_records" in that_fit(cells, list(cells[0]), shown["less_important"], 80)


def test_partitions_without_a_leader_do_not_delay_the_others(groups: FakeGroups) -> None:
    groups.cluster.leaderless = {("events", 1)}
    began_s = time.monotonic()
    row = lag_of(groups.cluster, "shop")
    assert time.monotonic() - began_s < 10, "the command may wait 30"
    assert (row["partitions"], row["lag_records"], row["unknown"]) == (2, 80, 1)


def test_a_group_whose_offsets_are_refused_has_a_problem_and_the_others_a_lag(
    groups: FakeGroups,
) -> None:
    groups.committed["secret"] = {}

    def answer(request: Any) -> OffsetFetchResponse:
        found = groups.fetch(request)
        for row in found.groups:
            if row.group_id == "secret":
                row.error_code, row.topics = Code.GROUP_AUTHORIZATION_FAILED, []
        return found

    groups.cluster.answer(9, answer)
    assert lag_of(groups.cluster, "shop")["lag_records"] == 150
    row = lag_of(groups.cluster, "secret")
    assert row["lag_records"] is None
    assert "GROUP_AUTHORIZATION_FAILED" in row["problem"]
