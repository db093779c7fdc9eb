"""Metadata transactions as they are read: whole, not at all, or refused where they cannot be. KIP-868."""

import pytest

from firnline.base.errors import ConfigError, StorageError
from firnline.metadata import records as r
from firnline.protocol.schema import Message
from firnline.records.build import NewRecord, build_batch
from firnline.records.control import ControlType, KRaftVersionRecord, encode_key, encode_value
from tests.unit.metadata.test_quorum_roles import Node, RecordingSnapshotter, setting
from tests.worlds.quorum import BOOTSTRAP


def test_half_a_transaction_is_never_seen() -> None:
    """KIP-868."""
    node = Node()
    node.replicate(*BOOTSTRAP)
    node.replicate(r.BeginTransactionRecord(), setting("1"))
    node.commit()
    assert (node.value(), node.quorum.image.offset) == (None, 0)
    node.replicate(setting("2"))
    node.commit()
    assert node.value() is None
    node.replicate(setting("3"), r.EndTransactionRecord(), setting("4", "other"))
    node.commit()
    assert (node.value(), node.value("other")) == ("3", "4")


def test_an_aborted_transaction_leaves_nothing() -> None:
    node = Node()
    node.replicate(*BOOTSTRAP)
    node.replicate(setting("before"), r.BeginTransactionRecord(), setting("1"))
    node.replicate(setting("2"), r.AbortTransactionRecord(), setting("after", "other"))
    node.commit()
    node.settle()
    assert (node.value(), node.value("other")) == ("before", "after")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ((r.BeginTransactionRecord(), r.BeginTransactionRecord()), "begins within another"),
        ((setting("1"), r.EndTransactionRecord()), "ends that did not begin"),
        ((setting("1"), r.AbortTransactionRecord()), "ends that did not begin"),
    ],
)
def test_transactions_that_cannot_be_are_refused_and_not_guessed_at(
    content: tuple[Message, ...], why: str
) -> None:
    node = Node()
    node.replicate(*BOOTSTRAP)
    node.replicate(*content)
    with pytest.raises(StorageError, match="what this release cannot act on") as refused:
        node.commit()
    assert why in str(refused.value)
    assert node.value() is None


def test_a_log_whose_voters_became_dynamic_is_refused() -> None:
    """Its other voters go by what the log says: two majorities would be possible (KIP-853)."""
    node = Node()
    node.replicate(*BOOTSTRAP)
    value = encode_value(KRaftVersionRecord(kraft_version=1))
    row = NewRecord(encode_key(ControlType.KRAFT_VERSION), value, 1)
    node.log.append(build_batch([row], leader_epoch=1, is_control=True), epoch=1, now_ms=1)
    with pytest.raises(ConfigError, match="dynamic voters"):
        node.commit()


def test_a_transaction_in_the_middle_of_a_batch_is_no_place_for_a_snapshot() -> None:
    """X14: the image is that of a record within a batch, where no log can begin."""
    node = Node()
    node.replicate(*BOOTSTRAP)
    node.commit()
    reported = node.quorum.snapshotter = RecordingSnapshotter()  # type: ignore[assignment]
    node.replicate(setting("before"), r.BeginTransactionRecord(), setting("1"))
    node.commit()
    assert (node.value(), node.quorum.image.offset) == ("before", 1)
    node.replicate(r.EndTransactionRecord())
    node.commit()
    assert (node.value(), node.quorum.image.offset) == ("1", 4)
    assert reported.received == [(1, False), (4, True)]
