"""Describe messages of the quorum in a few words; and pass messages through the real codec. SIM."""

from collections.abc import Callable
from typing import Any

from firnline.base.effects import Send
from firnline.base.errors import Code
from firnline.protocol.messages.k01_fetch import FetchRequest, FetchResponse
from firnline.protocol.messages.k52_vote import VoteRequest, VoteResponse
from firnline.protocol.messages.k53_begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from firnline.protocol.messages.k54_end_quorum_epoch import (
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
)
from firnline.protocol.messages.k59_fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from firnline.protocol.schema import Message
from firnline.protocol.versions import CONTROLLER_SERVED, PRIVATE, SERVED
from firnline.sim.options import Options

# The versions that a broker and a controller of this release support.
_BROKERS = {row.key: row.advertised_max for row in SERVED + PRIVATE}
_CONTROLLERS = {row.key: row.advertised_max for row in CONTROLLER_SERVED}


def request_of(effect: Send[Any]) -> Message:
    """What is asked."""
    assert isinstance(effect.request, Message), "only messages are sent"
    return effect.request


def version_of(effect: Send[Any], options: Options, *, is_controller: bool) -> int | None:
    """The newest version of a request that both sides speak, within its bounds; None for none."""
    kind = type(request_of(effect))
    served = (_CONTROLLERS if is_controller else _BROKERS).get(kind.key)
    if served is None:
        return None
    version = min(effect.version_max, kind.valid.last, served)
    if is_controller and options.is_encoded and kind.key in _OF_THE_QUORUM:
        spoken = options.fetch_version_max if kind is FetchRequest else options.quorum_version_max
        version = min(version, spoken)
    return version if version >= max(effect.version_min, kind.valid.first) else None


def through_codec(message: Message, version: int) -> Message:
    """Return the message as the other side decodes it; the receiver may change it."""
    decoded, _ = type(message).read(memoryview(bytearray(message.write(version))), version)
    return decoded


def describe(message: Message) -> str:
    """Describe a request or response, for the trace and the digest."""
    words = _WORDS.get(type(message))
    return type(message).__name__ if words is None else words(message)


def first_partition(message: Any) -> Any | None:
    """The only partition in a message of the quorum; None for a top-level error."""
    topics = getattr(message, "topics", None)
    if topics is None:
        topics = message.responses
    first = topics[0] if topics else None  # the handler of a large request has taken the topics out
    return first.partitions[0] if first is not None and first.partitions else None


def _error(code: int) -> str:
    return Code(code).name.lower().replace("_", "-") if code else ""


def _top_level(name: str, message: Any) -> str:
    return f"{name}: {_error(message.error_code) or 'nothing'}"


def _vote(message: VoteRequest) -> str:
    each = first_partition(message)
    if each is None:
        return "vote for nothing"
    kind = "pre-vote" if each.pre_vote else "vote"
    return (
        f"{kind} for {each.replica_id} in epoch {each.replica_epoch},"
        f" log {each.last_offset}@{each.last_offset_epoch}"
    )


def _voted(message: VoteResponse) -> str:
    each = first_partition(message)
    if each is None:
        return _top_level("vote", message)
    if each.error_code:
        return f"vote: {_error(each.error_code)}, epoch {each.leader_epoch}"
    answer = "granted" if each.vote_granted else "refused"
    return f"vote {answer} in epoch {each.leader_epoch}"


def _begin(message: BeginQuorumEpochRequest) -> str:
    each = first_partition(message)
    return "begin nothing" if each is None else f"{each.leader_id} leads epoch {each.leader_epoch}"


def _end(message: EndQuorumEpochRequest) -> str:
    each = first_partition(message)
    return "end nothing" if each is None else f"{each.leader_id} ends epoch {each.leader_epoch}"


def _epoch_answer(name: str) -> Callable[[Any], str]:
    def words(message: Any) -> str:
        each = first_partition(message)
        if each is None:
            return _top_level(name, message)
        return f"{name}: {_error(each.error_code) or 'yes'}, epoch {each.leader_epoch}"

    return words


def _fetch(message: FetchRequest) -> str:
    each = first_partition(message)
    if each is None:
        return "fetch nothing"
    return (
        f"fetch from {each.fetch_offset}@{each.last_fetched_epoch}"
        f" in epoch {each.current_leader_epoch}"
    )


def _fetched(message: FetchResponse) -> str:
    each = first_partition(message)
    if each is None:
        return _top_level("fetch", message)
    if each.error_code:
        return f"fetch: {_error(each.error_code)}, epoch {each.current_leader.leader_epoch}"
    if each.diverging_epoch.epoch >= 0:
        return f"fetch: diverges at {each.diverging_epoch.end_offset}@{each.diverging_epoch.epoch}"
    if each.snapshot_id.end_offset >= 0:
        return f"fetch: take snapshot {each.snapshot_id.end_offset}@{each.snapshot_id.epoch}"
    size = len(each.records) if each.records is not None else 0
    return f"fetched {size} bytes, committed {each.high_watermark}"


def _fetch_snapshot(message: FetchSnapshotRequest) -> str:
    each = first_partition(message)
    if each is None:
        return "fetch no snapshot"
    wanted = each.snapshot_id
    return f"fetch snapshot {wanted.end_offset}@{wanted.epoch} at {each.position}"


def _snapshot_fetched(message: FetchSnapshotResponse) -> str:
    each = first_partition(message)
    if each is None:
        return _top_level("snapshot", message)
    if each.error_code:
        return f"snapshot: {_error(each.error_code)}"
    size = len(each.unaligned_records) if each.unaligned_records is not None else 0
    found = each.snapshot_id
    return (
        f"snapshot {found.end_offset}@{found.epoch}: {size} bytes at {each.position} of {each.size}"
    )


_WORDS: dict[type[Message], Callable[[Any], str]] = {
    VoteRequest: _vote,
    VoteResponse: _voted,
    BeginQuorumEpochRequest: _begin,
    BeginQuorumEpochResponse: _epoch_answer("begin"),
    EndQuorumEpochRequest: _end,
    EndQuorumEpochResponse: _epoch_answer("end"),
    FetchRequest: _fetch,
    FetchResponse: _fetched,
    FetchSnapshotRequest: _fetch_snapshot,
    FetchSnapshotResponse: _snapshot_fetched,
}

_OF_THE_QUORUM = frozenset(
    kind.key
    for kind in (
        FetchRequest,
        VoteRequest,
        BeginQuorumEpochRequest,
        EndQuorumEpochRequest,
        FetchSnapshotRequest,
    )
)
