"""DescribeLogDirs: the log directories of this broker and the logs in them. PURE.

Source: KIP-113, KIP-827.
"""

from collections.abc import Generator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.slices import Slices, a_step_a_slice, emptied, in_slices
from firnline.base.effects import Effects
from firnline.base.ids import TopicPartition
from firnline.broker.storage import DirectoryReport
from firnline.protocol.messages.k35_describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

_ROWS_PER_SLICE = 500
# Takes two milliseconds.
_LOGS_PER_SLICE = 500
_FREED_PER_SLICE = 5_000
_SLICE_BYTES = _LOGS_PER_SLICE * 400  # measured: 282 each


def handle(
    node: "BrokerNode", context: RequestContext, request: DescribeLogDirsRequest, now_ms: int
) -> Effects:
    answer = _answer(context, node.storage.describe(), request.topics, now_ms)
    return in_slices(node, context, answer, now_ms, held_bytes=0)


def _answer(
    context: RequestContext,
    reports: Sequence[DirectoryReport],
    topics: Sequence[DescribableLogDirTopic] | None,
    now_ms: int,
) -> Slices:
    wanted = None
    if topics is not None:
        wanted, _ = yield from a_step_a_slice(_wanted(topics), now_ms, context)
    results = []
    for report in reports:
        results.append((yield from _result(context, report, wanted)))
    while wanted:  # freeing very many in one step would take long
        for _ in range(min(len(wanted), _FREED_PER_SLICE)):
            wanted.pop()
        if wanted:
            yield []
    return [context.reply(DescribeLogDirsResponse(results=results))]


def _wanted(topics: Sequence[DescribableLogDirTopic]) -> Generator[None, None, set[TopicPartition]]:
    """Return the requested partitions, in slices."""
    wanted: set[TopicPartition] = set()
    count = 0
    for topic in chain.from_iterable(emptied(topics, 1)):
        for indexes in emptied(topic.partitions, _ROWS_PER_SLICE):
            wanted.update(TopicPartition(topic.topic, index) for index in indexes)
            count += 1 + len(indexes)
            if count >= _ROWS_PER_SLICE:
                count = 0
                yield
    return wanted


def _result(
    context: RequestContext, report: DirectoryReport, wanted: set[TopicPartition] | None
) -> Generator[Effects, int, DescribeLogDirsResult]:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for place, log in enumerate(report.logs, 1):
        if place % _LOGS_PER_SLICE == 0:
            context.grow(_SLICE_BYTES)
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
