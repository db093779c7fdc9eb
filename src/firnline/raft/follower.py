"""The follower: it finds the leader, copies its log, truncates its own, and downloads snapshots. PURE.

Theory of operation. One request is under way at a time, so a response is always about the present log. A
Fetch names the end of this log and its epoch. The leader answers with records, which are appended; with a
divergence, at which this log is truncated; or with a snapshot id, which is downloaded piece by piece with
FetchSnapshot, synced, and installed in place of the log. A voter syncs its log before the next Fetch, because
a Fetch promises that the voter has everything below its offset on disk (Q25, X17). A follower that fetches
nothing with success for a fetch timeout becomes prospective; an observer asks the bootstrap servers for the
leader. Guarantee: a committed record is never truncated (X8).

Source: KIP-595, KIP-630; spec 1.7, 1.9, Q18, Q21, Q22, Q35-Q38.
"""

from firnline.base.effects import Effects, Flush, Peer
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ids import OffsetAndEpoch
from firnline.base.log_lines.quorum import SNAPSHOT_FETCHED
from firnline.base.slices import FileRecords
from firnline.protocol.messages.k01_fetch import (
    EpochEndOffset,
    FetchablePartitionResponse,
    SnapshotId,
)
from firnline.raft import wire
from firnline.raft.election_state import NOBODY
from firnline.raft.fetch_rules import Diverging, truncation_point
from firnline.raft.ports import SnapshotPart
from firnline.raft.quorum_state import QuorumState, refusal
from firnline.raft.role import Role
from firnline.raft.snapshot_transfer import SnapshotTransfer, Taken
from firnline.raft.wire import ParsedResponse
from firnline.records.batch import headers

# The largest snapshot end: a log that begins after it would run out of offsets.
SNAPSHOT_END_MAX = 2**62


class FollowerState:
    """Fetches for a follower, and for a node that looks for a leader: the request is the same."""

    def __init__(self, quorum: QuorumState) -> None:
        self._quorum = quorum
        self._transfer = SnapshotTransfer(quorum.log)
        self._is_installing = False
        self._is_leader_silent = False
        self._download_began_ms = 0
        self._leader_high_watermark = 0  # high watermark of the leader, as it said last
        self.leader_start_offset: int | None = None
        self.fetched_records = 0

    def begin(self, now_ms: int) -> Effects:
        """Follow a leader, or look for one; the next `fetch_due` sends the first request."""
        self._is_leader_silent = False
        self._leader_high_watermark = 0
        self.leader_start_offset = None
        if self._quorum.role is not Role.FOLLOWER:
            return []
        return self.give_up_after(self._quorum.settings.fetch_timeout_ms, now_ms)

    @property
    def fetching_snapshot(self) -> OffsetAndEpoch | None:
        """The snapshot that is being downloaded; None for none."""
        return self._transfer.snapshot_id

    def end(self) -> None:
        """Stop following: a part of one leader's snapshot is of no use with another leader."""
        self._transfer.drop()
        self._is_installing = False

    def give_up_after(self, timeout_ms: int, now_ms: int) -> Effects:
        """Give up the leader unless a fetch succeeds within that time (Q18, Q28)."""
        return self._quorum.set_timer("fetch", now_ms + timeout_ms, self._on_timeout)

    def _on_timeout(self, now_ms: int) -> Effects:
        if self._quorum.may_elect:
            return self._quorum.transition_to_prospective(now_ms)
        # A node that takes no part in elections asks the other nodes for the leader (Q2). If that brings none
        # within as long again, it says so.
        quorum = self._quorum
        quorum.has_lost_leader, self._is_leader_silent = self._is_leader_silent, True
        return quorum.log_leader() + self.give_up_after(quorum.settings.fetch_timeout_ms, now_ms)

    def on_synced(self, now_ms: int) -> Effects:
        """What was appended is on disk: commit it as far as the leader has."""
        quorum = self._quorum
        if quorum.role is not Role.FOLLOWER:
            return []
        return self._commit(min(self._leader_high_watermark, quorum.log.synced_offset), now_ms)

    def _commit(self, offset: int, now_ms: int) -> Effects:
        quorum = self._quorum
        if offset <= (quorum.high_watermark or 0):
            return []
        assert not quorum.is_voter or offset <= quorum.log.synced_offset, "it is on this disk (I3)"
        return quorum.commit(offset, now_ms)

    # ------------------------------------------------------------------------------------- asking

    def fetch_due(self, now_ms: int) -> Effects:
        """Send the next request, if it may leave now."""
        quorum = self._quorum
        if quorum.calls.is_waiting or self._is_installing or quorum.is_truncating:
            return []
        if quorum.is_voter and not quorum.is_synced:
            return quorum.flush()
        leader = quorum.leader if quorum.role is Role.FOLLOWER else None
        may_ask = leader is not None and quorum.calls.is_ready(leader.node_id, now_ms)
        if leader is not None and may_ask and not self._is_leader_silent:
            return self._ask_leader(leader)
        peer = self._any_peer(now_ms)
        return [] if peer is None else self._fetch(peer)

    def _any_peer(self, now_ms: int) -> Peer | None:
        """Return a random peer that may know the leader; None if all have failed lately.

        The last known leader is one of them: it may be back, and need not be a bootstrap server.
        """
        quorum = self._quorum
        known, leader = quorum.bootstrap, quorum.leader
        if leader is not None and leader not in known:
            known = (*known, leader)
        ready = [
            peer
            for peer in known
            if peer.node_id != quorum.node_id and quorum.calls.is_ready(peer.node_id, now_ms)
        ]
        return ready[quorum.rng.below(len(ready))] if ready else None

    def _ask_leader(self, leader: Peer) -> Effects:
        quorum, snapshot_id = self._quorum, self._transfer.snapshot_id
        if snapshot_id is None:
            return self._fetch(leader)
        request = wire.fetch_snapshot_request(
            quorum.cluster_id,
            epoch=quorum.epoch,
            replica_id=quorum.node_id,
            directory_id=quorum.directory_id,
            snapshot_id=snapshot_id,
            position=self._transfer.position,
            max_bytes=quorum.settings.fetch_snapshot_max_bytes,
        )
        # After any other answer than a piece, a Fetch finds out how to go on (Q36, X12). Leaders of Kafka
        # 4.3.1 answer UNKNOWN_SERVER_ERROR for each refusal of a FetchSnapshot.
        return quorum.ask(leader, request, self._on_chunk, on_refused=self._transfer.drop)

    def _fetch(self, peer: Peer) -> Effects:
        quorum = self._quorum
        # The end of the log; its epoch is the snapshot's while the log is empty (Q38).
        end = OffsetAndEpoch(quorum.log.end_offset, quorum.log.last_epoch)
        request = wire.fetch_request(
            quorum.cluster_id,
            epoch=quorum.epoch,
            replica_id=quorum.node_id,
            directory_id=quorum.directory_id,
            end=end,
            high_watermark=quorum.high_watermark,
            max_bytes=quorum.settings.fetch_max_bytes,
        )

        return quorum.ask(peer, request, self._on_fetched)

    # ---------------------------------------------------------------------------------- answers

    def _on_fetched(self, said: ParsedResponse, now_ms: int) -> Effects | KafkaError | None:
        quorum = self._quorum
        if said.error != Code.NONE:
            return refusal(said)
        if quorum.role is not Role.FOLLOWER or said.leader_and_epoch.leader_id == NOBODY:
            return None
        part = said.part
        assert isinstance(part, FetchablePartitionResponse)
        self.leader_start_offset = part.log_start_offset
        outcome: Effects | KafkaError | None
        if part.diverging_epoch.epoch >= 0:
            outcome = self._truncate(part.diverging_epoch, now_ms)
        elif part.snapshot_id.epoch >= 0 or part.snapshot_id.end_offset >= 0:
            outcome = self._start_download(part.snapshot_id, now_ms)
        else:
            outcome = self._append(part, now_ms)
        return outcome if not isinstance(outcome, list) else self._succeed(now_ms) + outcome

    def _succeed(self, now_ms: int) -> Effects:
        self._quorum.has_fetched, self._quorum.has_lost_leader = True, False
        self._is_leader_silent = False
        return self._quorum.log_leader() + self.give_up_after(
            self._quorum.settings.fetch_timeout_ms, now_ms
        )

    def _truncate(self, diverging: EpochEndOffset, now_ms: int) -> Effects | KafkaError | None:
        """Remove what the leader does not have, but never a committed record, whatever the leader says
        (X8)."""
        quorum = self._quorum
        divergence = Diverging(diverging.epoch, diverging.end_offset)
        offset = truncation_point(quorum.log, divergence, high_watermark=quorum.committed)
        if isinstance(offset, KafkaError):
            return offset
        if offset >= quorum.log.end_offset:
            return None
        return quorum.truncate_log(offset, now_ms)

    def _start_download(self, snapshot_id: SnapshotId, now_ms: int) -> Effects | KafkaError | None:
        quorum = self._quorum
        wanted = OffsetAndEpoch(snapshot_id.end_offset, snapshot_id.epoch)
        if wanted.epoch > quorum.epoch or wanted.offset > SNAPSHOT_END_MAX:
            why = "a leader named a snapshot that cannot be"
            return KafkaError(Code.CORRUPT_MESSAGE, why, snapshot=wanted, epoch=quorum.epoch)
        if wanted.offset >= quorum.committed:
            if self._transfer.snapshot_id != wanted:
                self._download_began_ms = now_ms
            return [] if self._transfer.begin(wanted) else None
        if wanted.offset < 0 or wanted.epoch < quorum.log.last_epoch:
            return None
        return KafkaError(
            Code.CORRUPT_MESSAGE,
            "the leader's snapshot ends before what this node knows to be committed: a voter lost its"
            " disk. Keep this directory, and compare it with the others",
            snapshot=wanted,
            high_watermark=quorum.committed,
        )

    def _append(self, part: FetchablePartitionResponse, now_ms: int) -> Effects | KafkaError:
        quorum = self._quorum
        records = part.records or b""
        data = records.read() if isinstance(records, FileRecords) else bytes(records)
        if data:
            problem = self._check_epochs(data)
            if problem is None and quorum.log.lost_beginning:
                # A leader has all records, so what is left of this log is not needed. It is fetched anew.
                return quorum.truncate_log(0, now_ms)
            problem = problem or quorum.log.append_fetched(data, now_ms=now_ms)
            if problem is not None:
                return problem
            self.fetched_records += sum(header.record_count for header in headers(data))
        self._leader_high_watermark = max(self._leader_high_watermark, part.high_watermark)
        reach = quorum.log.synced_offset if quorum.is_voter else quorum.log.end_offset
        return self._commit(min(self._leader_high_watermark, reach), now_ms)

    def _check_epochs(self, data: bytes) -> KafkaError | None:
        """A leader has no records of a later epoch than its own."""
        try:
            newest = max((header.leader_epoch for header in headers(data)), default=-1)
        except KafkaError as problem:
            return problem
        if newest <= self._quorum.epoch:
            return None
        return KafkaError(
            Code.CORRUPT_MESSAGE,
            "a leader sent records of a later epoch than its own",
            epoch=self._quorum.epoch,
            record_epoch=newest,
        )

    # --------------------------------------------------------------------------------- snapshots

    def _on_chunk(self, said: ParsedResponse, now_ms: int) -> Effects | KafkaError | None:
        transfer = self._transfer
        if said.error in (Code.SNAPSHOT_NOT_FOUND, Code.POSITION_OUT_OF_RANGE):
            # The leader removed the snapshot meanwhile: a Fetch finds out how to go on (Q36, X12).
            transfer.drop()
            return self._succeed(now_ms)
        if said.error != Code.NONE:
            return refusal(said)
        taken = transfer.take(wire.read_chunk(said))
        if taken is Taken.RESTART:
            return transfer.problem
        effects = self._succeed(now_ms)
        if taken is Taken.COMPLETE:
            assert transfer.part is not None
            effects += self._install(transfer.part)
        return effects

    def _install(self, part: SnapshotPart) -> Effects:
        quorum = self._quorum
        self._is_installing = True

        def synced(problem: StorageError | None, now_ms: int) -> Effects:
            if problem is not None:
                raise problem
            return quorum.gate.take(installable, now_ms)

        def installable(now_ms: int) -> Effects:
            if quorum.is_stopped or not self._transfer.end(part):
                return []
            self._is_installing = False
            note = SNAPSHOT_FETCHED(
                end_offset=part.snapshot_id.offset,
                epoch=part.snapshot_id.epoch,
                from_node=quorum.leader_id,
                took_ms=now_ms - self._download_began_ms,
            )
            quorum.begin_truncation()
            return [note, *quorum.log.install(part, replaced, quorum.on_truncated, now_ms)]

        def replaced(now_ms: int) -> Effects:
            return [] if quorum.is_stopped else quorum.install(part.snapshot_id, now_ms)

        return [Flush(files=part.files(), then=synced)]
