"""The leader of the quorum: it serves fetches, raises the high watermark, makes itself known, resigns. PURE.

Theory of operation. A leadership begins when it is saved. The leader appends a LeaderChange record of its
epoch; a record of an older epoch is committed only with a record of its own (X2). A voter's Fetch from an
offset says that the voter has everything below it on its disk. The high watermark is the offset that a
majority of voters has reached; the leader counts what its own disk has. When the LeaderChange record is
committed, the listener learns that this node leads. A Fetch at the log end waits, as in Kafka's purgatory,
until there are new records, a new high watermark, or its time is over. The leader sends BeginQuorumEpoch to
voters that do not fetch, and resigns when no majority fetches. It guarantees rel-Q5 and rel-Q6: committed
records are on a majority of disks.

Source: KIP-595, KIP-630, KIP-836, KIP-1166; spec 1.6, 1.7, Q23-Q29, DescribeQuorum of 1.5.
"""

from collections.abc import Callable, Generator, Hashable, Sequence
from typing import NamedTuple

from firnline.base.background import run_to_completion
from firnline.base.effects import Effect, Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import METADATA_TOPIC, NO_OFFSET, ZERO_UUID, OffsetAndEpoch, Uuid
from firnline.base.limits import METADATA_BATCH_BYTES_MAX
from firnline.protocol.messages import k55_describe_quorum as k55
from firnline.protocol.messages.k01_fetch import FetchPartition
from firnline.protocol.messages.k59_fetch_snapshot import FetchSnapshotPartition
from firnline.raft import wire
from firnline.raft.fetch_rules import Diverging, SnapshotNeeded, Valid, Verdict, validate_fetch
from firnline.raft.quorum_state import QuorumState, refusal
from firnline.raft.role import Role
from firnline.raft.settings import OBSERVER_SILENCE_MAX_MS
from firnline.raft.snapshot_serve import BEGUN_IN_VAIN, Downloads, serve_chunk
from firnline.raft.wire import ResponseCallback
from firnline.records.build import NewRecord, build_batch, build_batch_of, encode_values
from firnline.records.control import (
    ControlType,
    LeaderChangeMessage,
    LeaderChangeVoter,
    encode_key,
    encode_value,
)

_NEVER_MS = -1
# The most delayed fetches of replicas that are no voters; each broker has one.
OTHERS_MAX = 1_000
# The most observers that the leader remembers: a client may claim any id.
OBSERVERS_MAX = 1_000
# About three microseconds each.
_REFUSED_PER_STEP = 300


class Proposed(NamedTuple):
    """The offsets of proposed records, first and last inclusive; they are not committed yet."""

    base_offset: int
    last_offset: int


class Replica:
    """How far another replica is, as its fetches of this epoch say. Times are ms; -1 for never.

    end_offset    it has everything below. At most the leader's log end (Q24): a Fetch above it is answered
                  with the divergence and does not count. It may fall, for disks get lost.
    seen_end      the leader's log end at the replica's last Fetch, so at least `end_offset`. A replica that
                  reaches it was caught up when that Fetch came
    caught_up_ms  when it last had all records; never falls, and never above `fetched_ms`
    fetched_ms    when its last valid Fetch came; never falls
    asked_ms      when it last asked for a snapshot, which says nothing of what it has
    directory_id  of the disk that these values are about: another one begins with nothing
    """

    __slots__ = (
        "asked_ms",
        "caught_up_ms",
        "directory_id",
        "end_offset",
        "fetched_ms",
        "node_id",
        "seen_end",
    )

    def __init__(self, node_id: int, directory_id: Uuid) -> None:
        self.node_id = node_id
        self.directory_id = directory_id
        self.end_offset = NO_OFFSET
        self.fetched_ms = _NEVER_MS
        self.asked_ms = _NEVER_MS
        self.caught_up_ms = _NEVER_MS
        self.seen_end = NO_OFFSET

    def fetches(self, offset: int, *, leader_end_offset: int, now_ms: int) -> None:
        """It has everything below `offset`; this may be less than before, because disks get lost."""
        if offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif 0 < self.seen_end <= offset:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        assert offset <= leader_end_offset, "no replica has more than the leader (Q24)"
        self.seen_end = leader_end_offset
        self.fetched_ms = max(self.fetched_ms, now_ms)
        self.end_offset = offset

    @property
    def last_request_ms(self) -> int:
        """When it last sent any request; ms, -1 for never."""
        return max(self.fetched_ms, self.asked_ms)


class Parked(NamedTuple):
    """A delayed fetch: it waits at the log end for something new, until `deadline_ms`."""

    partition: FetchPartition
    max_bytes: int
    deadline_ms: int
    answer: ResponseCallback


class ParkedFetches:
    """The delayed fetches, in the order they came.

    A replica has one Fetch under way. A second one shows that nobody reads the response to the first, for
    instance after a lost connection; so the first is answered at once, and a voter always has room. The
    fetches of all other clients are limited, because clients that make up ids could fill the memory. Beyond
    the limit the one that has waited longest is answered with the present state, which is no error: its
    client asks again.
    """

    def __init__(self) -> None:
        self._voters: dict[Hashable, Parked] = {}
        self._others: dict[Hashable, Parked] = {}
        self._anonymous = 0

    def __len__(self) -> int:
        return len(self._voters) + len(self._others)

    def add(
        self, waiter: Parked, node_id: int, directory_id: Uuid, *, is_voter: bool
    ) -> list[Parked]:
        """Add a delayed fetch; return those that are to be answered now in its place. `node_id` -1 is a
        consumer."""
        if is_voter:
            older = self._voters.pop(node_id, None)
            self._voters[node_id] = waiter
            return [] if older is None else [older]
        key: Hashable = (node_id, directory_id)
        if node_id < 0:
            self._anonymous += 1
            key = self._anonymous
        older = self._others.pop(key, None)
        if older is None and len(self._others) >= OTHERS_MAX:
            older = self._others.pop(next(iter(self._others)))
        self._others[key] = waiter
        return [] if older is None else [older]

    def take(self, is_ready: Callable[[Parked], bool]) -> list[Parked]:
        """Remove and return those that are ready."""
        found: list[Parked] = []
        for waiting in (self._voters, self._others):
            ready = [key for key, waiter in waiting.items() if is_ready(waiter)]
            found += [waiting.pop(key) for key in ready]
        return found

    @property
    def first_ms(self) -> int | None:
        """The earliest deadline; None if no fetch waits."""
        waiting = (*self._voters.values(), *self._others.values())
        return min((waiter.deadline_ms for waiter in waiting), default=None)


class Leader:
    """The duties of the leader. On other nodes it refuses the requests that only a leader serves.

    _voters             the progress of each other voter, by node id. It begins anew with each leadership:
                        only a Fetch of this epoch says what a voter has (Q24)
    _observers          the same of nodes without a vote, by node id and directory; at most OBSERVERS_MAX.
                        Nothing is committed by them
    _downloads          who fetches which snapshot: the log start must not pass its end meanwhile (X12)
    _contacts           voters that fetched since the contact timer was set; a majority sets it again (Q26)
    _parked             the delayed fetches
    _has_announced      the listener knows that this node leads: all before this epoch is committed (X16)
    _began_ms           when this leadership began: a voter counts as alive for a while from then on
    epoch_start_offset  the offset of the LeaderChange record. Nothing is committed before it is (X2)
    appended_records    since the start of the node; a metric
    _uncommitted        end offset and time of each append that is not committed yet, oldest first
    commit_ms           how long commits took; a metric
    """

    def __init__(self, quorum: QuorumState) -> None:
        self._quorum = quorum
        self._voters: dict[int, Replica] = {}
        self._observers: dict[tuple[int, Uuid], Replica] = {}
        self._downloads = Downloads()
        self._contacts: set[int] = set()
        self._parked = ParkedFetches()
        self._has_announced = False
        self._began_ms = 0
        self.epoch_start_offset = 0
        self.appended_records = 0
        self._uncommitted: list[tuple[int, int]] = []
        self.commit_ms = CommitTimes()

    # ------------------------------------------------------------------------------ begin and end

    def begin(self, now_ms: int) -> Effects:
        """Begin a leadership that is saved: one record of the new epoch commits all records before it
        (Q23)."""
        quorum = self._quorum
        self._voters = {
            peer.node_id: Replica(peer.node_id, ZERO_UUID)
            for peer in quorum.voters.others(quorum.node_id)
        }
        self._observers, self._contacts, self._parked = {}, set(), ParkedFetches()
        self._downloads = Downloads()
        self._has_announced = False
        self._uncommitted = []
        self._began_ms = now_ms
        self.epoch_start_offset = quorum.log.end_offset
        effects = self._append(self._leader_change(now_ms), now_ms)
        if self._voters:
            effects += self._watch_contacts(now_ms)
            effects += self._make_known(now_ms)
        return effects

    def end(self, now_ms: int) -> Effects:
        """Stop leading: answer each delayed fetch with NOT_LEADER_OR_FOLLOWER (Q27)."""
        parked = self._parked.take(lambda waiter: True)
        self._uncommitted = []
        effects = self._quorum.timers.cancel("parked")
        refusal = self._refusal(Code.NOT_LEADER_OR_FOLLOWER)
        return effects + [waiter.answer(refusal) for waiter in parked]

    def successors(self) -> tuple[tuple[int, Uuid], ...]:
        """The other voters, the one with the longest log first (Q28)."""
        ordered = sorted(self._voters.values(), key=lambda r: (-r.end_offset, r.node_id))
        return tuple((replica.node_id, replica.directory_id) for replica in ordered)

    # -------------------------------------------------------------------------------------- append

    def propose(
        self,
        values: Sequence[bytes],
        *,
        epoch: int,
        now_ms: int,
        body: bytes | bytearray | None = None,
    ) -> tuple[Proposed, Effects] | KafkaError:
        """Append record values as one batch, all or nothing (Q29)."""
        assert values, "an empty proposal has no offset"
        quorum = self._quorum
        is_leader = quorum.role is Role.LEADER and not quorum.gate.is_saving
        if not is_leader or epoch != quorum.epoch:
            return KafkaError(Code.NOT_CONTROLLER, "this node does not lead the metadata quorum")
        if body is None:
            body = encode_values(values)
        batch = build_batch_of(body, len(values), timestamp_ms=now_ms, leader_epoch=epoch)
        if len(batch) > METADATA_BATCH_BYTES_MAX:
            return KafkaError(
                Code.RECORD_LIST_TOO_LARGE,
                "a change of the cluster's metadata is too large for one batch",
                size_bytes=len(batch),
                limit_bytes=METADATA_BATCH_BYTES_MAX,
            )
        base_offset = quorum.log.end_offset
        effects = self._append(batch, now_ms)
        return Proposed(base_offset, quorum.log.end_offset - 1), effects

    def _append(self, batch: bytearray, now_ms: int) -> Effects:
        quorum, log = self._quorum, self._quorum.log
        assert quorum.role is Role.LEADER, "only the leader writes its own records (Q15, X1)"
        expected_offset = log.end_offset
        base_offset = log.append(batch, epoch=quorum.epoch, now_ms=now_ms)
        assert base_offset == expected_offset, "a leader appends, and never overwrites (Q29)"
        self.appended_records += log.end_offset - base_offset
        self._uncommitted.append((log.end_offset, now_ms))
        # Followers may have the record before this disk; that does not commit it (Q25).
        return self._wake(now_ms) + quorum.flush()

    def _leader_change(self, now_ms: int) -> bytearray:
        quorum = self._quorum
        message = LeaderChangeMessage(
            leader_id=quorum.node_id,
            voters=[LeaderChangeVoter(voter_id=node_id) for node_id in quorum.voters.node_ids],
            granting_voters=[LeaderChangeVoter(voter_id=n) for n in quorum.granting_ids],
        )
        record = NewRecord(encode_key(ControlType.LEADER_CHANGE), encode_value(message), now_ms)
        return build_batch([record], leader_epoch=quorum.epoch, is_control=True)

    # ------------------------------------------------------------------------------ high watermark

    def update_high_watermark(self, now_ms: int) -> Effects:
        """Commit what a majority of voters has on disk, if it has a record of this epoch in it (Q23, Q24)."""
        quorum = self._quorum
        ends = [replica.end_offset for replica in self._voters.values()]
        if quorum.is_voter:
            ends.append(quorum.log.synced_offset)
        offset = sorted(ends, reverse=True)[len(ends) // 2]
        if offset <= self.epoch_start_offset or offset <= (quorum.high_watermark or 0):
            return []
        assert offset <= quorum.log.end_offset, "no replica has more than the leader (Q24)"
        while self._uncommitted and self._uncommitted[0][0] <= offset:
            self.commit_ms.add(now_ms - self._uncommitted.pop(0)[1])
        epoch = quorum.epoch
        effects = quorum.commit(offset, now_ms)
        if quorum.role is not Role.LEADER or quorum.epoch != epoch:
            return effects
        effects += self._wake(now_ms, is_high_watermark_new=True)
        if not self._has_announced:
            # Only now is everything before this epoch committed, and the listener was notified of it (X16).
            self._has_announced = True
            effects += quorum.notify(quorum.listener.on_leader, quorum.epoch, now_ms)
        return effects

    # ------------------------------------------------------------------------------------- contact

    def _watch_contacts(self, now_ms: int) -> Effects:
        """Resign unless a majority fetches within one and a half fetch timeouts, again and again (Q26)."""
        self._contacts = set()
        timeout_ms = self._quorum.settings.fetch_timeout_ms * 3 // 2
        return self._quorum.set_timer("contacts", now_ms + timeout_ms, self._quorum.resign)

    def _contact(self, node_id: int, now_ms: int) -> Effects:
        if node_id not in self._voters:
            return []
        self._contacts.add(node_id)
        needed = self._quorum.voters.majority - (1 if self._quorum.is_voter else 0)
        return self._watch_contacts(now_ms) if len(self._contacts) >= needed else []

    def _make_known(self, now_ms: int) -> Effects:
        """Send BeginQuorumEpoch to the voters that did not fetch lately, every half fetch timeout."""
        quorum = self._quorum
        every_ms = quorum.settings.fetch_timeout_ms // 2
        effects = quorum.set_timer("begin", now_ms + every_ms, self._make_known)
        assert quorum.leader is not None, "a leader votes, so its address is known"
        for peer in quorum.voters.others(quorum.node_id):
            last_request_ms = self._voters[peer.node_id].last_request_ms
            is_silent = last_request_ms == _NEVER_MS or now_ms - last_request_ms >= every_ms
            if is_silent and quorum.calls.is_ready(peer.node_id, now_ms):
                request = wire.begin_request(
                    quorum.cluster_id,
                    epoch=quorum.epoch,
                    leader_id=quorum.node_id,
                    voter_id=peer.node_id,
                    listener=quorum.settings.listener_name,
                    leader=quorum.leader,
                )
                effects += quorum.ask(peer, request, _acknowledged)
        return effects

    # --------------------------------------------------------------------------------------- fetch

    def on_fetch(
        self, request: wire.FetchRequest, answer: ResponseCallback, now_ms: int
    ) -> Effects:
        """Serve a replica's Fetch, delay it, or refuse it; the reasons apply in this order (spec 1.5)."""
        partition = wire.only_partition(request)
        if partition is None:
            return [answer(wire.FetchResponse(error_code=Code.INVALID_REQUEST))]
        if (
            request.max_wait_ms < 0
            or partition.fetch_offset < 0
            or partition.last_fetched_epoch < 0
            or partition.last_fetched_epoch > partition.current_leader_epoch
        ):
            return [answer(self._refusal(Code.INVALID_REQUEST))]
        refused = self._refuse_leader_only(partition.current_leader_epoch)
        if refused is not None:
            return [answer(self._refusal(refused))]
        verdict = validate_fetch(
            self._quorum.log, partition.fetch_offset, partition.last_fetched_epoch
        )
        effects: Effects = []
        if isinstance(verdict, Valid):
            effects = self._note_fetch(wire.fetcher_id(request), partition, now_ms)
            refused = self._refuse_leader_only(partition.current_leader_epoch)
            if refused is not None:
                return [*effects, answer(self._refusal(refused))]
        elif isinstance(verdict, SnapshotNeeded):
            replica = self._note_snapshot(
                wire.fetcher_id(request), partition, verdict.snapshot_id, now_ms
            )
            # It may have lost what it had. What it has above may be of another history.
            replica.end_offset = min(replica.end_offset, partition.fetch_offset)
        response = self._fetch_response(verdict, partition.fetch_offset, request.max_bytes)
        found = response.responses[0].partitions[0]
        is_complete = (
            not isinstance(verdict, Valid)
            or bool(found.records)
            or partition.high_watermark < found.high_watermark
        )
        if is_complete or request.max_wait_ms == 0:
            return [*effects, answer(response)]
        deadline_ms = now_ms + request.max_wait_ms
        node_id, waiter = (
            wire.fetcher_id(request),
            Parked(partition, request.max_bytes, deadline_ms, answer),
        )
        replaced = self._parked.add(
            waiter, node_id, partition.replica_directory_id, is_voter=node_id in self._voters
        )
        return [*effects, *map(self._answer_now, replaced), *self._watch_parked()]

    def _note_fetch(self, node_id: int, partition: FetchPartition, now_ms: int) -> Effects:
        """Note a valid fetch offset: the replica has everything below it, on its disk if it votes (Q25,
        X17)."""
        if node_id < 0 or node_id == self._quorum.node_id:
            return []
        replica = self._replica(node_id, partition.replica_directory_id)
        replica.fetches(
            partition.fetch_offset,
            leader_end_offset=self._quorum.log.end_offset,
            now_ms=now_ms,
        )
        newest = self._quorum.log.newest_snapshot_id
        self._downloads.reaches(
            _key(replica),
            partition.fetch_offset,
            newest_snapshot=0 if newest is None else newest.offset,
            now_ms=now_ms,
        )
        effects = self._contact(node_id, now_ms)
        if node_id in self._voters:
            effects += self.update_high_watermark(now_ms)
        return effects

    def _note_snapshot(
        self,
        node_id: int,
        partition: FetchPartition | FetchSnapshotPartition,
        snapshot_id: OffsetAndEpoch,
        now_ms: int,
    ) -> Replica:
        """Note that a replica needs a snapshot: it is alive, and the snapshot is kept for it."""
        if node_id < 0 or node_id == self._quorum.node_id:
            return Replica(node_id, ZERO_UUID)
        replica = self._replica(node_id, partition.replica_directory_id)
        replica.asked_ms = max(replica.asked_ms, now_ms)
        self._downloads.needs(_key(replica), snapshot_id, now_ms)
        return replica

    def held_offset(self, now_ms: int) -> int | None:
        """The log start must not pass this offset: replicas are about to fetch from there (X12)."""
        return self._downloads.lowest(now_ms)

    def _replica(self, node_id: int, directory_id: Uuid) -> Replica:
        """Return the state of a replica. A static voter is known by its id alone (kraft.version 0)."""
        voter = self._voters.get(node_id)
        if voter is not None:
            return voter
        key, observers = (node_id, directory_id), self._observers
        found = observers.get(key)
        if found is None:
            if len(observers) >= OBSERVERS_MAX:
                del observers[min(observers, key=lambda each: observers[each].fetched_ms)]
            found = observers[key] = Replica(node_id, directory_id)
        return found

    def _fetch_response(self, verdict: Verdict, offset: int, max_bytes: int) -> wire.FetchResponse:
        quorum = self._quorum
        diverging = snapshot_id = None
        records = b""
        if isinstance(verdict, Diverging):
            diverging = (verdict.epoch, verdict.end_offset)
        elif isinstance(verdict, SnapshotNeeded):
            snapshot_id = verdict.snapshot_id
        else:
            records = quorum.log.read(offset, max_bytes=max_bytes)
        return wire.fetch_response(
            Code.NONE,
            quorum.leader_and_epoch,
            log_start_offset=quorum.log.start_offset,
            high_watermark=quorum.high_watermark,
            records=records,
            diverging=diverging,
            snapshot_id=snapshot_id,
        )

    def _wake(self, now_ms: int, *, is_high_watermark_new: bool = False) -> Effects:
        """Answer the delayed fetches that are complete. They are old requests, so they count as no
        contact."""
        end_offset = self._quorum.log.end_offset
        ready = self._parked.take(
            lambda waiter: is_high_watermark_new or waiter.partition.fetch_offset < end_offset
        )
        if not ready:
            return []
        return [self._answer_now(waiter) for waiter in ready] + self._watch_parked()

    def _answer_now(self, waiter: Parked) -> Effect:
        partition = waiter.partition
        offset = partition.fetch_offset
        verdict = validate_fetch(self._quorum.log, offset, partition.last_fetched_epoch)
        return waiter.answer(self._fetch_response(verdict, offset, waiter.max_bytes))

    def _watch_parked(self) -> Effects:
        timers, first_ms = self._quorum.timers, self._parked.first_ms
        if first_ms is None:
            return timers.cancel("parked")
        if timers.at_ms("parked") == first_ms:
            return []
        return self._quorum.set_timer("parked", first_ms, self._expire_parked)

    def _expire_parked(self, now_ms: int) -> Effects:
        late = self._parked.take(lambda waiter: waiter.deadline_ms <= now_ms)
        return [self._answer_now(waiter) for waiter in late] + self._watch_parked()

    # ----------------------------------------------------------------------------------- snapshots

    def on_fetch_snapshot(
        self, request: wire.FetchSnapshotRequest, answer: ResponseCallback, now_ms: int
    ) -> Effects:
        """Serve one piece of a snapshot; it counts as contact like a Fetch (X7)."""
        quorum = self._quorum
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return [answer(wire.FetchSnapshotResponse(error_code=Code.INVALID_REQUEST))]
        partition = wire.only_partition(request)
        if partition is None:
            return [answer(wire.unknown_snapshot_partition(request, quorum.leader_and_epoch))]
        refused = self._refuse_leader_only(partition.current_leader_epoch)
        if refused is not None:
            return [answer(wire.fetch_snapshot_response(refused, quorum.leader_and_epoch))]
        wanted = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        chunk = serve_chunk(quorum.log, wanted, partition.position, request.max_bytes)
        if isinstance(chunk, KafkaError):
            return [answer(wire.fetch_snapshot_response(chunk.code, quorum.leader_and_epoch))]
        replica = self._note_snapshot(request.replica_id, partition, wanted, now_ms)
        effects = self._contact(request.replica_id, now_ms)
        if (
            partition.position == 0
            and self._downloads.begins(_key(replica), wanted) == BEGUN_IN_VAIN
        ):
            on_useless = quorum.listener.on_useless_snapshot
            effects += quorum.notify(on_useless, wanted, replica.node_id, now_ms)
        response = wire.fetch_snapshot_response(Code.NONE, quorum.leader_and_epoch, chunk=chunk)
        return [*effects, answer(response)]

    # ------------------------------------------------------------------------------------ describe

    def on_describe(
        self, request: wire.DescribeQuorumRequest, answer: ResponseCallback, now_ms: int
    ) -> Effects:
        """Answer DescribeQuorum: how far each replica is (KIP-595, KIP-836 times, KIP-853 addresses)."""
        quorum = self._quorum
        if wire.only_partition(request) is None:
            return [answer(run_to_completion(refusing_to_describe(request)))]
        if quorum.role is not Role.LEADER:
            error = k55.DescribeQuorumPartitionResult(
                error_code=Code.NOT_LEADER_OR_FOLLOWER,
                error_message="this node does not lead the metadata quorum",
            )
            return [answer(_described(error, []))]
        own = k55.QuorumReplicaState(
            replica_id=quorum.node_id,
            log_end_offset=quorum.log.end_offset,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
        voters = [_shown(replica) for replica in self._voters.values()]
        if quorum.is_voter:
            voters.append(own)
        result = k55.DescribeQuorumPartitionResult(
            partition_index=wire.PARTITION,
            error_message=None,
            leader_id=quorum.node_id,
            leader_epoch=quorum.epoch,
            high_watermark=_or_minus_one(quorum.high_watermark),
            current_voters=sorted(voters, key=lambda state: int(state.replica_id)),
            observers=[_shown(replica) for replica in self.live_observers(now_ms)],
        )
        listener = quorum.settings.listener_name
        nodes = [
            k55.QuorumNode(
                node_id=voter.node_id,
                listeners=[k55.QuorumListener(name=listener, host=voter.host, port=voter.port)],
            )
            for voter in quorum.voters.voters
        ]
        return [answer(_described(result, nodes))]

    @property
    def observers(self) -> int:
        """How many observers fetched lately."""
        return len(self._observers)

    def live_observers(self, now_ms: int) -> list[Replica]:
        """Return the observers that fetched lately, and forget the others."""
        self._observers = {
            key: replica
            for key, replica in self._observers.items()
            if now_ms - replica.last_request_ms < OBSERVER_SILENCE_MAX_MS
        }
        return list(self._observers.values())

    def live_offsets(self, now_ms: int) -> list[int]:
        """How far each other live replica is (Q51), counting the snapshot that it fetches. A voter that has
        not fetched yet counts as 0."""
        live = self.live_observers(now_ms)
        for replica in self._voters.values():
            if now_ms - max(replica.last_request_ms, self._began_ms) < OBSERVER_SILENCE_MAX_MS:
                live.append(replica)
        return [
            max(replica.end_offset, self._downloads.of(_key(replica), now_ms) or 0)
            for replica in live
        ]

    # ------------------------------------------------------------------------------------ refusals

    def _refuse_leader_only(self, epoch: int) -> Code | None:
        quorum = self._quorum
        if epoch < quorum.epoch:
            return Code.FENCED_LEADER_EPOCH
        if epoch > quorum.epoch:
            return Code.UNKNOWN_LEADER_EPOCH
        return None if quorum.role is Role.LEADER else Code.NOT_LEADER_OR_FOLLOWER

    def _refusal(self, code: Code) -> wire.FetchResponse:
        quorum = self._quorum
        return wire.fetch_response(
            code, quorum.leader_and_epoch, log_start_offset=quorum.log.start_offset
        )


class CommitTimes:
    """How long it took to commit appends: count, sum and maximum, in ms."""

    __slots__ = ("count", "max_ms", "sum_ms")

    def __init__(self) -> None:
        self.count = self.sum_ms = self.max_ms = 0

    def add(self, took_ms: int) -> None:
        """Count one append."""
        self.count += 1
        self.sum_ms += took_ms
        self.max_ms = max(self.max_ms, took_ms)


def _acknowledged(said: wire.ParsedResponse, now_ms: int) -> Effects | KafkaError | None:
    """A voter accepted BeginQuorumEpoch; its fetches will show it."""
    return [] if said.error == Code.NONE else refusal(said)


def _key(replica: Replica) -> tuple[int, Uuid]:
    return replica.node_id, replica.directory_id


def _or_minus_one(offset: int | None) -> int:
    return -1 if offset is None else offset


def _shown(replica: Replica) -> k55.QuorumReplicaState:
    return k55.QuorumReplicaState(
        replica_id=replica.node_id,
        replica_directory_id=replica.directory_id,
        log_end_offset=replica.end_offset,
        last_fetch_timestamp=replica.fetched_ms,
        last_caught_up_timestamp=replica.caught_up_ms,
    )


def _described(
    result: k55.DescribeQuorumPartitionResult, nodes: list[k55.QuorumNode]
) -> wire.DescribeQuorumResponse:
    topic = k55.DescribeQuorumTopicResult(topic_name=METADATA_TOPIC, partitions=[result])
    return wire.DescribeQuorumResponse(error_message=None, topics=[topic], nodes=nodes)


def refusing_to_describe(
    request: wire.DescribeQuorumRequest,
) -> Generator[None, None, wire.DescribeQuorumResponse]:
    """Return that each partition of the request is unknown here; yields after some partitions at a time."""
    topics = []
    left = _REFUSED_PER_STEP
    for topic in request.topics:
        rows: list[k55.DescribeQuorumPartitionResult] = []
        topics.append(k55.DescribeQuorumTopicResult(topic_name=topic.topic_name, partitions=rows))
        left -= 1
        for partition in topic.partitions:
            if left <= 0:
                yield
                left = _REFUSED_PER_STEP
            left -= 1
            rows.append(
                k55.DescribeQuorumPartitionResult(
                    partition_index=partition.partition_index,
                    error_code=Code.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message="only the metadata log has a quorum",
                )
            )
        if left <= 0:
            yield
            left = _REFUSED_PER_STEP
    return wire.DescribeQuorumResponse(error_message=None, topics=topics)
