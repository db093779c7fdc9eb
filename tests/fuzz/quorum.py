"""What a fuzzer says to the controllers' listener of a node: who votes, in what epoch, which broker it is.

All of it is near what is so, so that most requests pass the first check: the cluster's id, directories of
voters, epochs of the quorum and of brokers, offsets of the metadata log and its snapshots.
"""

from random import Random
from typing import Any

from firnline.protocol.compile import FIXED
from firnline.protocol.messages.principal import encode_principal
from tests.fuzz import values
from tests.fuzz.known import (
    ALLOCATE_IDS,
    ALTER_PARTITION,
    BEGIN_QUORUM,
    DESCRIBE_QUORUM,
    END_QUORUM,
    FETCH,
    FETCH_SNAPSHOT,
    HEARTBEAT,
    NODE_ID,
    OTHER_NODE_ID,
    REGISTRATION,
    UNREGISTER_BROKER,
    UPDATE_VOTER,
    VOTE,
    Quorum,
)

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = bytes(15) + b"\1"
UNKNOWN_ID = 2  # nobody knows it
INCARNATIONS = (b"\xaa" * 16, b"\xbb" * 16)
DIRECTORIES = (b"\xcc" * 16, b"\xdd" * 16)
RAFT = frozenset(
    {FETCH, VOTE, BEGIN_QUORUM, END_QUORUM, DESCRIBE_QUORUM, FETCH_SNAPSHOT, UPDATE_VOTER}
)
# What the node's own broker is named in: it cannot be harmed by what is asked of it there.
_OF_THE_BROKER = frozenset({ALTER_PARTITION, ALLOCATE_IDS})
_EPOCHS = {
    *("leader_epoch", "replica_epoch", "current_leader_epoch", "last_offset_epoch"),
    *("last_fetched_epoch", "epoch"),
}
_OFFSETS = {
    *("last_offset", "fetch_offset", "end_offset", "current_metadata_offset", "log_start_offset"),
    *("high_watermark",),
}
_NUMBERS: dict[str, tuple[int, ...]] = {
    "partition_index": (0, 0, 0, 0, 1),
    "partition": (0, 0, 0, 0, 1),
    "voter_id": (NODE_ID, NODE_ID, NODE_ID, -1, UNKNOWN_ID),
    "controller_id": (NODE_ID, UNKNOWN_ID, OTHER_NODE_ID),
    "replica_id": (OTHER_NODE_ID, UNKNOWN_ID, NODE_ID, -1),
    "candidate_id": (NODE_ID, UNKNOWN_ID, OTHER_NODE_ID),
    "preferred_successors": (NODE_ID, UNKNOWN_ID),
    "leader_id": (NODE_ID, NODE_ID, UNKNOWN_ID, OTHER_NODE_ID, -1),
    "new_isr": (NODE_ID, NODE_ID, OTHER_NODE_ID),
    "partition_epoch": (0, 0, 1, 2, 3),
    "leader_recovery_state": (0, 0, 1),
    "position": (0, 0, 1, 61, 1000),
    "port": (9, 1, 65_535),
    "security_protocol": (0, 0, 1),
    "max_bytes": (1 << 20, 1000, 1),
    "max_wait_ms": (0, 0, 1, 20),
    "min_supported_version": (0, 0, 7),
    "max_supported_version": (99, 99, 29, 1),
}
_TEXTS: dict[str, tuple[str | None, ...]] = {
    "host": ("127.0.0.1", "", "no.such.host.invalid"),
    "rack": (None, "r"),
}
_FEATURES = ("metadata.version", "metadata.version", "metadata.version", "kraft.version", "x")
_LISTENERS = ("PLAINTEXT", "CONTROLLER", "BROKER", "x")
# Whoever sends one of these in the name of the node's own broker has it count itself out, as was asked.
OF_OTHER_BROKERS = frozenset({REGISTRATION, HEARTBEAT, UNREGISTER_BROKER})
_PACKED = {letter: values.packed(letter, size, values.LONGS) for letter, size in FIXED.values()}
_PACKED_FOR_OTHERS = _PACKED | {
    "i": values.packed("i", 4, [n for n in values.LONGS if n != NODE_ID])
}


def packed(key: int) -> dict[str, tuple[bytes, ...]]:
    """Return numbers that nobody would say, by their kind."""
    return _PACKED_FOR_OTHERS if key in OF_OTHER_BROKERS else _PACKED


def count(rng: Random, key: int, name: str) -> int | None:
    """Return how many elements an array usually has, None where any number will do."""
    is_one = key in RAFT or (key == REGISTRATION and name == "log_dirs")
    return 1 if is_one and rng.random() < 0.95 else None


def number(quorum: Quorum, rng: Random, key: int, name: str, focus: dict[str, Any]) -> int | None:
    """Return a value for a field of numbers, None where its name says nothing of the quorum."""
    if name == "broker_id":
        both = (NODE_ID, NODE_ID, OTHER_NODE_ID) if key in _OF_THE_BROKER else (OTHER_NODE_ID,)
        focus["broker_id"] = rng.choice(both)
        return int(focus["broker_id"])
    if name in ("broker_epoch", "previous_broker_epoch"):
        return quorum.broker_epochs.get(focus.get("broker_id", OTHER_NODE_ID), -1) + _near(rng, 0.1)
    if name == "last_offset_epoch":
        return max(quorum.epoch - 1 + _near(rng, 0.1), 0)
    if name in _EPOCHS and key != ALTER_PARTITION:
        if name == "epoch" and key in (FETCH, FETCH_SNAPSHOT):
            return quorum.snapshots[-1][1] + _near(rng, 0.1)
        # A newer one of a Vote or of a leader has the quorum choose anew: seldom, or all is refused.
        return quorum.epoch + _near(rng, 0.04 if key in RAFT else 0.2)
    if name in _OFFSETS:
        if name == "end_offset" and key == FETCH_SNAPSHOT:
            return quorum.snapshots[-1][0] + _near(rng, 0.1)
        return max(quorum.offset + rng.choice((0, 0, 1, -1, 100)), 0)
    known = _NUMBERS.get(name)
    return None if known is None else rng.choice(known)


def _near(rng: Random, chance: float) -> int:
    return rng.choice((1, -1, -1, 2)) if rng.random() < chance else 0


def uuid(quorum: Quorum, rng: Random, name: str) -> bytes | None:
    """Return the id of a directory or of a start, None where the name says neither."""
    if name == "log_dirs":
        return rng.choice(DIRECTORIES)
    if name.endswith("directory_id") or name in ("id", "offline_log_dirs"):
        return rng.choice((quorum.directories[-1], quorum.directories[-1], *DIRECTORIES))
    if name == "cordoned_log_dirs":
        return rng.choice(DIRECTORIES)
    return rng.choice(INCARNATIONS) if name == "incarnation_id" else None


def text(rng: Random, key: int, kind: str, name: str) -> str | None:
    """Return a value for a field of text; "" is one, None where its name says nothing of the quorum."""
    if name in _TEXTS:
        return rng.choice(_TEXTS[name]) or ""
    if kind.endswith("SupportedFeature") and name == "name":
        return rng.choice(_FEATURES)
    if kind.endswith(("Listener", "Endpoint")) and name == "name":
        return rng.choice(_LISTENERS)
    if key in RAFT and name in ("topic", "topic_name", "name"):
        return METADATA_TOPIC if rng.random() < 0.95 else "plain"
    return None


def principal(rng: Random) -> bytes | None:
    """Return who a broker says that asked, in an Envelope."""
    if rng.random() < 0.1:
        return rng.choice((None, b"", b"\0\1", rng.randbytes(20)))
    return encode_principal(rng.choice(("User:ANONYMOUS", "User:" + "x" * 300, ":")))


def address(rng: Random) -> bytes:
    """Return a client's address, in an Envelope."""
    return rng.choice((b"\x7f\0\0\1", b"\x7f\0\0\1", bytes(16), b"", rng.randbytes(7)))
