"""Groups of a fake cluster, for tests of commands."""

from typing import Any

from firnline.base.errors import Code
from firnline.protocol.messages.k08_offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from firnline.protocol.messages.k09_offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupPartition,
    OffsetFetchResponseGroupTopic,
)
from firnline.protocol.messages.k10_find_coordinator import Coordinator, FindCoordinatorResponse
from firnline.protocol.messages.k15_describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from firnline.protocol.messages.k16_list_groups import ListedGroup, ListGroupsResponse
from tests.unit.cli.fake_cluster import FakeCluster


class FakeGroups:
    """Groups of a fake cluster: `committed` by group, `members` of the one group that may have some."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.committed: dict[str, dict[int, int]] = {"shop": {0: 20, 1: 30}}
        self.members: list[str] = []
        self.refused: dict[int, Code] = {}
        self.is_classic = True
        self.state = "Stable"
        for key, answer in (
            (10, self.find),
            (15, self.describe),
            (9, self.fetch),
            (8, self.commit),
        ):
            cluster.answer(key, answer)
        cluster.brokers[0].answers[16] = self.list
        cluster.brokers[1].answers[16] = lambda request: ListGroupsResponse()

    def find(self, request: Any) -> FindCoordinatorResponse:
        rows = [
            Coordinator(
                key=key,
                node_id=1 + len(key) % 2,
                host="127.0.0.1",
                port=self.cluster.brokers[len(key) % 2].port,
                error_message="",
            )
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=rows)

    def describe(self, request: Any) -> DescribeGroupsResponse:
        (name,) = request.groups
        state = "Stable" if self.members else "Empty"
        if name not in self.committed or not self.is_classic:
            state = "Dead"
        members = [
            DescribedGroupMember(member_id=f"id-{who}", client_id=who, client_host="/10.0.0.7")
            for who in self.members
        ]
        row = DescribedGroup(group_id=name, group_state=state, members=members, error_message="")
        return DescribeGroupsResponse(groups=[row])

    def list(self, request: Any) -> ListGroupsResponse:
        kind = "classic" if self.is_classic else "consumer"
        names = list(self.committed) if self.is_classic or self.members else []
        return ListGroupsResponse(
            groups=[
                ListedGroup(
                    group_id=name, protocol_type="", group_state=self.state, group_type=kind
                )
                for name in names
            ]
        )

    def fetch(self, request: Any) -> OffsetFetchResponse:
        return OffsetFetchResponse(groups=[self._group(each.group_id) for each in request.groups])

    def _group(self, name: str) -> OffsetFetchResponseGroup:
        rows = [
            OffsetFetchResponseGroupPartition(
                partition_index=index, committed_offset=offset, metadata=""
            )
            for index, offset in self.committed.get(name, {}).items()
        ]
        topic = OffsetFetchResponseGroupTopic(name="events", partitions=rows)
        return OffsetFetchResponseGroup(group_id=name, topics=[topic])

    def commit(self, request: Any) -> OffsetCommitResponse:
        for topic in request.topics:
            for part in topic.partitions:
                if part.partition_index not in self.refused:
                    mine = self.committed.setdefault(request.group_id, {})
                    mine[part.partition_index] = part.committed_offset
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=part.partition_index,
                            error_code=self.refused.get(part.partition_index, 0),
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
