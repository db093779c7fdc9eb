"""DescribeLogDirs: the directories of this broker and what lies in them. PURE. Source: KIP-113, KIP-827."""

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.slices import Slices, in_slices
from firnline.base.effects import Effects
from firnline.base.ids import TopicPartition
from firnline.broker.storage import DirectoryReport
from firnline.protocol.messages.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

# Two milliseconds.
_LOGS_PER_SLICE = 500
_SLICE_BYTES = _LOGS_PER_SLICE * 400  # measured: 282 each


def handle(
    node: "BrokerNode", context: RequestContext, request: DescribeLogDirsRequest, now_ms: int
) -> Effects:
    wanted = None
    if request.topics is not None:
        wanted = frozenset(
            TopicPartition(topic.topic, index)
            for topic in request.topics
            for index in topic.partitions
        )
    answer = _answer(context, node.storage.describe(), wanted)
    return in_slices(node, context, answer, now_ms, held_bytes=_SLICE_BYTES)


def _answer(
    context: RequestContext,
    reports: Sequence[DirectoryReport],
    wanted: frozenset[TopicPartition] | None,
) -> Slices:
    results = []
    for report in reports:
        results.append((yield from _result(report, wanted)))
    return [context.reply(DescribeLogDirsResponse(results=results))]


def _result(
    report: DirectoryReport, wanted: frozenset[TopicPartition] | None
) -> Generator[Effects, int, DescribeLogDirsResult]:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for place, log in enumerate(report.logs, 1):
        if place % _LOGS_PER_SLICE == 0:
            yield []
        topic, index = log.topic_partition
        if wanted is None or log.topic_partition in wanted:
            row = DescribeLogDirsPartition(
                partition_index=index,
                partition_size=log.size_bytes,
                offset_lag=max(0, log.high_watermark - log.log_end_offset),
            )
            topics.setdefault(topic, []).append(row)
    return DescribeLogDirsResult(
        error_code=report.code,
        log_dir=report.path,
        topics=[DescribeLogDirsTopic(name=name, partitions=topics[name]) for name in topics],
        total_bytes=report.total_bytes,
        usable_bytes=report.usable_bytes,
        is_cordoned=report.is_cordoned,
    )
