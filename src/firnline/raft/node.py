"""One voter of the metadata quorum: leads, appends, says what is committed. PURE.

This release runs a quorum of one voter: it elects itself at start, with no timer and no network (Q16).
A record is committed when this node's own disk has it: with one voter nobody else can bring it back, so
the commit is told only after the sync (Q25). The high watermark is unknown until a record of the leader's
own epoch is committed (Q20, Q23). Source: KIP-595.
"""

from collections.abc import Sequence
from typing import NamedTuple

from firnline.base.effects import Effects, Flush
from firnline.base.errors import Code, ConfigError, KafkaError, StorageError
from firnline.base.limits import METADATA_BATCH_BYTES_MAX
from firnline.raft.election_state import NOBODY, ElectionState
from firnline.raft.ports import ElectionStore, RaftListener, ReplicatedLog
from firnline.raft.role import Cause, Role, next_role
from firnline.raft.voters import VoterSet
from firnline.records.build import NewRecord, build_batch
from firnline.records.control import (
    ControlType,
    LeaderChangeMessage,
    LeaderChangeVoter,
    encode_key,
    encode_value,
)


class Proposed(NamedTuple):
    """Where proposed records stand, first and last offset inclusive; not committed yet."""

    base_offset: int
    last_offset: int


class RaftNode:
    """The quorum as one voter sees it.

    Invariants:
      I1  the epoch never falls, and is saved before anything of it is done.
      I2  `high_watermark` never falls; None until a record of the own epoch is committed.
      I3  what is told committed was synced before.
    """

    __slots__ = (
        "_elections",
        "_has_announced",
        "_listener",
        "_log",
        "epoch",
        "epoch_start_offset",
        "high_watermark",
        "leader_id",
        "node_id",
        "role",
        "voted_id",
        "voters",
    )

    def __init__(
        self,
        *,
        node_id: int,
        voters: VoterSet,
        log: ReplicatedLog,
        elections: ElectionStore,
        listener: RaftListener,
    ) -> None:
        self.node_id = node_id
        self.voters = voters
        self._log = log
        self._elections = elections
        self._listener = listener
        self.role = Role.UNATTACHED
        self.epoch = 0
        self.leader_id = NOBODY
        self.voted_id = NOBODY
        self.high_watermark: int | None = None
        self.epoch_start_offset = 0
        self._has_announced = False

    def start(self, now_ms: int) -> Effects:
        """Resume from what was saved, then lead. Raises ConfigError for a quorum that is not ours alone."""
        if not self.voters.is_sole(self.node_id):
            raise ConfigError(
                "controller.quorum.voters must name this node and no other: this release runs a"
                " quorum of one voter",
                node_id=self.node_id,
                voters=self.voters.node_ids,
            )
        self._resume()
        self._move(Cause.ELECTION_TIMEOUT)
        self.epoch += 1
        self._save(voted_id=self.node_id)
        # The candidate's own vote is the majority.
        assert self.voters.majority == 1
        self._move(Cause.MAJORITY)
        self._save(leader_id=self.node_id)
        self.epoch_start_offset = self._log.end_offset
        return self._append(self._leader_change(now_ms), now_ms)

    def propose(
        self, values: Sequence[bytes], *, epoch: int, now_ms: int
    ) -> tuple[Proposed, Effects] | KafkaError:
        """Append record values as one batch, all or nothing (Q29); the effects lead to its commit.

        KafkaError NOT_CONTROLLER when this node does not lead `epoch`, RECORD_LIST_TOO_LARGE for
        more bytes than one batch of the metadata log may have. StorageError if the log cannot be written.
        """
        assert values, "an empty proposal has no offset"
        if self.role is not Role.LEADER or epoch != self.epoch:
            return KafkaError(Code.NOT_CONTROLLER, "this node does not lead the metadata quorum")
        batch = build_batch(
            [NewRecord(None, value, now_ms) for value in values], leader_epoch=self.epoch
        )
        if len(batch) > METADATA_BATCH_BYTES_MAX:
            return KafkaError(
                Code.RECORD_LIST_TOO_LARGE,
                "a change of the cluster's metadata is too large for one batch",
                size_bytes=len(batch),
                limit_bytes=METADATA_BATCH_BYTES_MAX,
            )
        base_offset = self._log.end_offset
        effects = self._append(batch, now_ms)
        return Proposed(base_offset, self._log.end_offset - 1), effects

    def resign(self) -> None:
        """Stop leading, for good: the node shuts down. Nothing is saved (Q10): a restart resumes."""
        if self.role is Role.LEADER:
            self._move(Cause.RESIGNATION)

    def _resume(self) -> None:
        """Q15: a leader comes back resigned in its epoch; its (offset, epoch) pairs stay unique."""
        saved = self._elections.load()
        log_epoch = self._log.last_epoch
        if saved is None or saved.epoch < log_epoch:
            self.role, self.epoch = Role.UNATTACHED, log_epoch
            return
        self.epoch, self.leader_id, self.voted_id = saved
        if self.leader_id == self.node_id:
            self.role = Role.RESIGNED
        elif self.voted_id == self.node_id:
            self.role = Role.CANDIDATE
        elif self.leader_id != NOBODY:
            self.role = Role.FOLLOWER
        else:
            self.role = Role.UNATTACHED

    def _move(self, cause: Cause) -> None:
        self.role = next_role(self.role, cause)

    def _save(self, *, leader_id: int = NOBODY, voted_id: int = NOBODY) -> None:
        self.leader_id, self.voted_id = leader_id, voted_id
        self._elections.save(ElectionState(self.epoch, leader_id, voted_id))

    def _leader_change(self, now_ms: int) -> bytearray:
        voters = [LeaderChangeVoter(voter_id=node_id) for node_id in self.voters.node_ids]
        message = LeaderChangeMessage(leader_id=self.node_id, voters=voters, granting_voters=voters)
        record = NewRecord(encode_key(ControlType.LEADER_CHANGE), encode_value(message), now_ms)
        return build_batch([record], leader_epoch=self.epoch, is_control=True)

    def _append(self, batch: bytearray, now_ms: int) -> Effects:
        self._log.append(batch, epoch=self.epoch, now_ms=now_ms)
        end_offset = self._log.end_offset

        def flushed(problem: StorageError | None, at_ms: int) -> Effects:
            return self._on_flushed(end_offset, problem, at_ms)

        return [Flush(files=self._log.unsynced(), then=flushed)]

    def _on_flushed(self, end_offset: int, problem: StorageError | None, now_ms: int) -> Effects:
        if problem is not None:
            # rel-P9: what the disk refused cannot be believed afterwards. The node stops.
            raise problem
        self._log.synced(end_offset)
        committed = self.high_watermark or 0
        if end_offset <= max(committed, self.epoch_start_offset):
            return []  # a later sync was reported first and covered this one
        self.high_watermark = end_offset
        self._log.advance_high_watermark(end_offset)
        effects = self._listener.on_committed(end_offset, now_ms)
        if not self._has_announced:
            self._has_announced = True
            effects += self._listener.on_leader(self.epoch, now_ms)
        return effects
