"""What a cluster must survive, and the faults that stay within this budget. SIM.

A replica is dirty from a lossy crash (power cut, replaced disk) until it again has everything that is
committed. Within the budget at most min.insync.replicas - 1 replicas of a partition are dirty, and an ISR
always has a running clean member. Or its only member has everything that was acknowledged on its disk; then
it may lose power. After clean stops a dirty replica may still be alone in the ISR and lead again: the last
replica standing, which is exempt, and counted. Source: reliability (c), 'Fault atlas'; I25; rel-P4.
"""

from collections.abc import Iterable
from typing import Any

from firnline.formats.names import LOG
from firnline.metadata.image import EMPTY_IMAGE, ClusterImage, PartitionImage
from firnline.replica.partition import Partition
from firnline.sim.cluster.draw import broker_ids
from firnline.sim.cluster.ledger import Ledger, PartitionKey
from firnline.sim.disk import Keep
from firnline.sim.durable import durable_end
from firnline.sim.faults import Fault, Faults
from firnline.sim.host import Host
from firnline.sim.quorum_node import DATA
from firnline.sim.world import MS, SECOND, Chance

_MIN_ISR = "min.insync.replicas"


class DirtyReplicas:
    """Which replicas are dirty. `image` is the newest one that is committed anywhere.

    min_isr      min.insync.replicas of topics without an override
    directories  log.dirs of each broker
    """

    def __init__(
        self,
        hosts: dict[int, Host],
        ledger: Ledger,
        min_isr: int = 1,
        directories: tuple[str, ...] = (DATA,),
    ) -> None:
        self.min_isr = min_isr
        self.directories = directories
        self.image: ClusterImage = EMPTY_IMAGE
        self._hosts = hosts
        self._ledger = ledger
        self._dirty: dict[tuple[int, PartitionKey], None] = {}
        self._isr_sizes: dict[PartitionKey, dict[int, int]] = {}  # by partition epoch
        self._owed: dict[
            tuple[int, PartitionKey], int
        ] = {}  # acknowledged, and on the disk that lost power
        self._rotten: dict[
            tuple[int, PartitionKey], str
        ] = {}  # the directory in which bits flipped

    def partition(self, key: PartitionKey) -> PartitionImage | None:
        """The partition in the controller's image."""
        topic = self.image.topics_by_id.get(key[0])
        return None if topic is None else topic.partitions.get(key[1])

    def note_isr(self, key: PartitionKey, state: PartitionImage) -> None:
        """Note a committed ISR."""
        self._isr_sizes.setdefault(key, {})[state.partition_epoch] = len(state.isr)

    def largest_isr(self, key: PartitionKey, after: int, upto: int) -> int:
        """The largest ISR in the partition epochs (after, upto]; 0 if there is none of them."""
        sizes = self._isr_sizes.get(key, {})
        return max((size for epoch, size in sizes.items() if after < epoch <= upto), default=0)

    def is_deposed(self, key: PartitionKey, leader_epoch: int) -> bool:
        """Whether the controller has a newer epoch of the partition, or none of it."""
        found = self.partition(key)
        return found is None or found.leader_epoch > leader_epoch

    def is_dirty(self, node_id: int, key: PartitionKey) -> bool:
        return (node_id, key) in self._dirty

    def is_alone(self, node_id: int, key: PartitionKey) -> bool:
        """Whether the node is the only member of the ISR."""
        found = self.partition(key)
        return found is not None and found.isr == (node_id,)

    def has_caught_up(self, node_id: int, key: PartitionKey) -> None:
        """The replica again has everything that is committed, unless bits flipped on its disk."""
        if self.is_rotten(node_id, key):
            return
        self._dirty.pop((node_id, key), None)
        self._owed.pop((node_id, key), None)

    def is_kept(self, node_id: int, key: PartitionKey) -> bool:
        """Whether it is the only member of the ISR, with everything that was acknowledged on its disk."""
        state = self.partition(key)
        if state is None or state.isr != (node_id,) or self._has_flipped_batches(node_id, key):
            return False
        if len(state.replicas) > 1:
            found = self._hosted(node_id, key)
            if (
                found is None
                or (found.leader_id, found.leader_epoch) != (node_id, state.leader_epoch)
                or found.maximal_isr != (node_id,)
            ):
                return False  # others may truncate it, or have records that it lacks
        return self.durable_end(node_id, key) >= self._ledger.of(key).acked_end

    def _has_flipped_batches(self, node_id: int, key: PartitionKey) -> bool:
        """Whether a bit of a batch flipped there.

        Others were in sync when it did, and fell out since. After a power cut the recovery point may be an
        older one, and above it recovery cannot tell such a batch from a torn write, so it truncates the log
        there. Two faults of the only copy are beyond the budget.
        """
        files = self._hosts[node_id].fs.files(self.path_of(node_id, key))
        return any(each.flipped for name, each in files.items() if name.endswith(LOG))

    def durable_end(self, node_id: int, key: PartitionKey) -> int:
        """The end of what is on the platter."""
        path, has_gaps = self.path_of(node_id, key), self._ledger.of(key).is_compacted
        return durable_end(self._hosts[node_id].fs, path, has_gaps=has_gaps)

    def path_of(self, node_id: int, key: PartitionKey) -> str:
        """The path of that replica, or where it would be: in one directory of a broker."""
        name, fs = f"{self.image.topics_by_id[key[0]].name}-{key[1]}", self._hosts[node_id].fs
        paths = [f"{directory}/{name}" for directory in self.directories]
        found = list(filter(fs.exists, paths)) or paths
        hosted = self._hosted(node_id, key) if len(found) > 1 else None
        # If there are two copies, one is old; a running broker serves the right one.
        return hosted.log.path if hosted is not None and hosted.log.path in found else found[0]

    def owes(self, node_id: int, key: PartitionKey) -> int:
        """How far a replica must have everything after only it lost power."""
        return self._owed.get((node_id, key), 0)

    def owes_nothing(self, key: PartitionKey) -> None:
        """A leader from outside the ISR was elected: nothing is required of others any more."""
        for owed in [each for each in self._owed if each[1] == key]:
            del self._owed[owed]

    def _hosted(self, node_id: int, key: PartitionKey) -> Partition | None:
        process = self._hosts[node_id].process
        if process is None or not process.is_ready or process.machine.broker is None:
            return None
        found: Partition | None = process.machine.broker.hosted.by_id.get(key)
        return found

    def is_hosted(self, node_id: int, key: PartitionKey) -> bool:
        """Whether that broker runs, and has a log of the partition."""
        return self._hosted(node_id, key) is not None

    def hosted(self, node_id: int) -> list[tuple[PartitionKey, str, PartitionImage]]:
        """The partitions with a replica there, in order of their names."""
        return [
            ((topic.topic_id, index), topic.name, topic.partitions[index])
            for topic in sorted(self.image.topics_by_name.values(), key=lambda topic: topic.name)
            for index in sorted(topic.partitions)
            if node_id in topic.partitions[index].replicas
        ]

    def within(self, node_id: int, directory: str) -> list[PartitionKey]:
        """The replicas in one directory of a broker."""
        return [
            key
            for key, _, _ in self.hosted(node_id)
            if self.path_of(node_id, key).startswith(f"{directory}/")
        ]

    def loses(self, node_id: int) -> None:
        """A lossy crash: every replica there is dirty."""
        self.loses_some(node_id, [key for key, _, _ in self.hosted(node_id)])

    def loses_some(self, node_id: int, keys: Iterable[PartitionKey]) -> None:
        """These replicas lost data: they are dirty."""
        for key in keys:
            if self.is_kept(node_id, key):
                self._owed[(node_id, key)] = self._ledger.of(key).acked_end
            self._dirty[(node_id, key)] = None

    def may_lose(self, node_id: int, *, is_wipe: bool) -> bool:
        """Whether a lossy crash of that broker is within the budget."""
        for key, _, state in self.hosted(node_id):
            if not is_wipe and self.is_kept(node_id, key):
                continue
            if not self._is_affordable(node_id, key, state):
                return False
        return True

    def may_lose_one(self, node_id: int, key: PartitionKey) -> bool:
        """Whether the loss of that replica is within the budget."""
        state = self.partition(key)
        return state is None or self._is_affordable(node_id, key, state)

    def _is_affordable(self, node_id: int, key: PartitionKey, state: PartitionImage) -> bool:
        """Whether that replica may become dirty, besides those that are."""
        dirty = [each for each in state.replicas if self.is_dirty(each, key)]
        topic = self.image.topics_by_id[key[0]].name
        given = self.image.topic_config_overrides(topic).get(_MIN_ISR)
        least = self.min_isr if given is None else int(given)
        least = min(least, len(state.replicas))
        return len({*dirty, node_id}) <= least - 1 and bool(self._clean(key, state, node_id))

    def may_stop(self, node_id: int) -> bool:
        """Whether every partition with a dirty replica keeps a running clean member of its ISR without it."""
        return all(
            self._clean(key, state, node_id)
            for key, _, state in self.hosted(node_id)
            if len(state.replicas) > 1
            and any(self.is_dirty(each, key) for each in state.replicas if each != node_id)
        )

    # ---- bits that flip

    def may_rot(self, node_id: int, key: PartitionKey, state: PartitionImage) -> bool:
        """Whether bits of that replica may flip: only one replica at a time, while a clean one runs in the
        ISR.
        """
        if any(self.is_rotten(each, key) for each in state.replicas):
            return False
        return self._is_affordable(node_id, key, state)

    def rots(self, node_id: int, key: PartitionKey, directory: str) -> None:
        """A bit of that replica flipped."""
        self._rotten[(node_id, key)] = directory
        self._dirty[(node_id, key)] = None

    def is_rotten(self, node_id: int, key: PartitionKey) -> bool:
        """Whether a file of that replica still has a flipped bit, or leader epochs are lost by one."""
        directory = self._rotten.get((node_id, key))
        if directory is None:
            return False
        if self.has_flipped_bits(node_id, key) or self.has_lost_lineage(node_id, key):
            return True
        del self._rotten[(node_id, key)]
        return False

    def has_flipped_bits(self, node_id: int, key: PartitionKey) -> bool:
        """Whether a file with a flipped bit of that replica still exists."""
        directory = self._rotten.get((node_id, key), "")
        return any(each.flipped for each in self._hosts[node_id].fs.files(directory).values())

    def has_lost_lineage(self, node_id: int, key: PartitionKey) -> bool:
        """Whether bits flipped there, and leader epochs of records that only the tier has are missing.

        While it is not served, it may be so.
        """
        history, directory = self._ledger.of(key), self._rotten.get((node_id, key), "")
        if not history.is_tiered or not self._hosts[node_id].fs.files(directory):
            return False
        hosted = self._hosted(node_id, key)
        if hosted is None or hosted.is_offline:
            return True
        log, entries = hosted.log, hosted.log.epochs.entries()
        begin = entries[0][1] if entries else log.log_end_offset
        return begin > max(log.log_start_offset, history.start_offset)

    def rotten(self) -> list[tuple[int, str]]:
        """The nodes and directories with flipped bits."""
        return [
            (node_id, directory)
            for (node_id, key), directory in list(self._rotten.items())
            if self.is_rotten(node_id, key) and self.has_flipped_bits(node_id, key)
        ]

    def is_spare(self, node_id: int, key: PartitionKey) -> bool:
        """Whether another clean member of the ISR runs. A deleted partition needs none."""
        state = self.partition(key)
        return state is None or bool(self._clean(key, state, node_id))

    def has_gaps(self, key: PartitionKey) -> bool:
        """Whether any replica of it was ever compacted."""
        return self._ledger.of(key).is_compacted

    def committed_end(self, key: PartitionKey) -> int:
        """The end of the committed records of the partition."""
        return self._ledger.of(key).end_offset

    def _clean(self, key: PartitionKey, state: PartitionImage, without: int) -> list[int]:
        """Members of the ISR that run, are unfenced, and have everything."""
        found = []
        for member in state.isr:
            broker = self.image.brokers.get(member)
            process = self._hosts[member].process
            if (
                member != without
                and not self.is_dirty(member, key)
                and broker is not None
                and not broker.fenced
                and process is not None
                and process.is_ready
                and not process.is_paused
                and not self._hosts[member].has_bad_disk
                and process.machine.broker.broker_epoch == broker.epoch
            ):
                found.append(member)
        return found


class ClusterFaults(Faults):
    """Faults on brokers too, within the budget of `DirtyReplicas`."""

    def __init__(self, *given: Any, dirty: DirtyReplicas, mode: str) -> None:
        super().__init__(*given, mode=mode)
        self.dirty = dirty

    def _brokers(self) -> list[Host]:
        return [self._hosts[node_id] for node_id in broker_ids(self._options)]

    def _node(self, chance: Chance) -> Host:
        """Choose any node, the leader of the quorum, or a broker; never one whose stop would break the
        budget.
        """
        which = chance.below(3)
        host = super()._node(chance) if which < 2 else chance.pick(self._brokers())
        if self._mode == "broken" or self.dirty.may_stop(host.node_id):
            return host
        allowed = [each for each in self._hosts.values() if self.dirty.may_stop(each.node_id)]
        return chance.pick(allowed or list(self._hosts.values()))

    def _cut_power(self, host: Host, chance: Chance, keep: Keep = "some") -> None:
        """If a loss is beyond the budget, the page cache survives."""
        if self.may_lose(host):
            self.dirty.loses(host.node_id)
            host.cut_power(chance, keep=keep)
        else:
            host.kill()

    def _power_all(self, fault: Fault, chance: Chance) -> None:
        """Cut the power of all nodes, except those that must keep what others lose."""
        self._note(fault, "all that may, lose power")
        for host in self._hosts.values():
            if self.dirty.may_stop(host.node_id):
                self._cut_power(host, chance, keep=chance.pick(("some", "none")))
                self._keep_down(host, chance.spread(10 * MS, 4 * SECOND))

    def may_lose(self, host: Host) -> bool:
        """Nodes that are not brokers have the quorum's budget."""
        return host.node_id not in broker_ids(self._options) or self.dirty.may_lose(
            host.node_id, is_wipe=False
        )

    def _wipe_disk(self, fault: Fault, chance: Chance) -> None:
        if self._mode == "broken":
            self._lose_partition(fault, chance)
            return
        host = chance.pick(self._brokers())
        is_voter = host.node_id in self._options.voter_ids
        if is_voter or chance.below(3) == 0:
            if self._options.cluster is not None and not self._options.cluster.is_combined:
                super()._wipe_disk(fault, chance)
            return
        if self.dirty.may_lose(host.node_id, is_wipe=True) and self.dirty.may_stop(host.node_id):
            self._note(fault, f"the disk of broker {host.node_id} is replaced")
            self.dirty.loses(host.node_id)
            self._replace(host, chance.spread(1 * MS, 4 * SECOND))

    def _wipeable(self) -> list[Host]:
        return [self._hosts[node_id] for node_id in self._options.voter_ids]

    # ---- what profiles ask for

    def _slow(self, fault: Fault, chance: Chance, what: str, links: list[tuple[int, int]]) -> None:
        extra_us = chance.spread(100 * MS, 3 * SECOND)
        duration_us = chance.spread(500 * MS, 6 * SECOND)
        self._note(fault, f"{what} is {extra_us // MS} ms slower for {duration_us // MS} ms")
        for link in links:
            self._network.slow(*link, extra_us)

        def undo() -> None:
            for link in links:
                self._network.slow(*link, -extra_us)

        self._last(duration_us, undo)

    def _slow_to_controllers(self, fault: Fault, chance: Chance) -> None:
        one = chance.pick(self._brokers()).node_id
        links = [(one, voter) for voter in self._options.voter_ids if voter != one]
        self._slow(fault, chance, f"the way of {one} to controllers", links)

    def _slow_from_controllers(self, fault: Fault, chance: Chance) -> None:
        one = chance.pick(self._brokers()).node_id
        links = [(voter, one) for voter in self._options.voter_ids if voter != one]
        self._slow(fault, chance, f"the way of controllers to {one}", links)

    def _deaf_to_controllers(self, fault: Fault, chance: Chance) -> None:
        """The controllers hear a broker that does not hear them; connections close now and then."""
        one = chance.pick(self._brokers()).node_id
        links = [(voter, one) for voter in self._options.voter_ids if voter != one]
        duration_us = chance.spread(200 * MS, 4 * SECOND)
        self._note(fault, f"{one} does not hear controllers for {duration_us // MS} ms")
        self._cut_links(links, duration_us)
        for voter in self._options.voter_ids:
            self._world.after(duration_us // 2, self._network.reset, one, voter)

    def _elect(self, fault: Fault, chance: Chance) -> None:
        """Fence a leader for a moment: nobody hears it."""
        leaders = sorted({state.leader for _, _, state in self._partitions() if state.leader >= 0})
        leaders = [each for each in leaders if self.dirty.may_stop(each)]
        if not leaders:
            return
        one = chance.pick(leaders)
        duration_us = chance.spread(500 * MS, 4 * SECOND)
        links = [(one, voter) for voter in self._options.voter_ids if voter != one]
        self._note(fault, f"controllers do not hear leader {one} for {duration_us // MS} ms")
        self._cut_links(links, duration_us)

    def _leave_alone(self, fault: Fault, chance: Chance) -> None:
        """Let a leader's followers fall out of its ISR; then take it away for long, or cut it off the
        controllers.
        """
        leaders = sorted({state.leader for _, _, state in self._partitions() if state.leader >= 0})
        leaders = [each for each in leaders if self.dirty.may_stop(each)]
        if not leaders:
            return
        one = chance.pick(leaders)
        others = [host.node_id for host in self._brokers() if host.node_id != one]
        alone_us, gone_us = (
            chance.spread(2 * SECOND, 4 * SECOND),
            chance.spread(3 * SECOND, 10 * SECOND),
        )
        apart_us = alone_us + chance.spread(1 * MS, gone_us)
        self._note(fault, f"no broker hears {one} for {apart_us // MS} ms, then it is gone")
        self._cut_links([(one, other) for other in others], apart_us)
        self._cut_links([(other, one) for other in others], apart_us)
        self._world.after(alone_us, self._take_away, one, gone_us, chance)

    def _take_away(self, one: int, gone_us: int, chance: Chance) -> None:
        if self._is_over or not self.dirty.may_stop(one):
            return
        if chance.below(2):
            self._hosts[one].kill()
            self._keep_down(self._hosts[one], gone_us)
        else:
            # It keeps leading, and takes records from clients that have not heard of the new leader either.
            self._cut_links([(one, voter) for voter in self._options.voter_ids], gone_us)
            self._cut_links([(voter, one) for voter in self._options.voter_ids], gone_us)

    def _rejoin(self, fault: Fault, chance: Chance) -> None:
        """A follower is back in sync, and restarts before its leader's proposal reaches the controller."""
        pairs = [
            (state.leader, other)
            for _, _, state in self._partitions()
            for other in state.isr
            if state.leader >= 0 and other != state.leader
        ]
        if not pairs:
            return
        leader, other = chance.pick(pairs)
        apart_us, extra_us = (
            chance.spread(1_500 * MS, 3 * SECOND),
            chance.between(1_300 * MS, 1_700 * MS),
        )
        restart_us = apart_us + chance.between(200 * MS, 600 * MS)
        self._note(
            fault,
            f"{other} is apart from {leader} for {apart_us // MS} ms, comes back, and restarts",
        )
        self._cut_links([(other, leader), (leader, other)], apart_us)
        self._world.after(apart_us, self._slow_leader, leader, extra_us)
        self._world.after(restart_us, self._leave_briefly, other, chance)

    def _slow_leader(self, leader: int, extra_us: int) -> None:
        if self._is_over:
            return
        links = [(leader, voter) for voter in self._options.voter_ids]
        for link in links:
            self._network.slow(*link, extra_us)

        def undo() -> None:
            for link in links:
                self._network.slow(*link, -extra_us)

        self._last(2 * extra_us, undo)

    def _leave_briefly(self, node_id: int, chance: Chance) -> None:
        """Stop in order: after a crash the controller would wait for the session to end."""
        host = self._hosts[node_id]
        if self._is_over or host.process is None or not self.dirty.may_stop(node_id):
            return
        down_us = chance.spread(1 * MS, 50 * MS)

        def stopped() -> None:
            if self._is_over:
                host.start()
            else:
                self._keep_down(host, down_us)

        host.stop(stopped)

    def _partitions(self) -> list[tuple[PartitionKey, str, PartitionImage]]:
        return [row for host in self._brokers() for row in self.dirty.hosted(host.node_id)]

    def _lose_partition(self, fault: Fault, chance: Chance) -> None:
        """All replicas of a partition lose their disks at once."""
        topics = sorted(self.dirty.image.topics_by_name.values(), key=lambda topic: topic.name)
        states = [topic.partitions[index] for topic in topics for index in sorted(topic.partitions)]
        if not states or self.beyond_budget:
            return
        replicas = chance.pick(states).replicas
        names = ", ".join(map(str, replicas))
        self._note(
            fault, f"brokers {names}, all of a partition, lose what they had: beyond the budget"
        )
        self.beyond_budget.append(self.injected[-1])
        for node_id in replicas:
            host, down_us = self._hosts[node_id], chance.spread(1 * MS, 100 * MS)
            if node_id in self._options.voter_ids:
                # The quorum has its own budget, and stays within it.
                host.cut_power(chance, keep="none")
                self._keep_down(host, down_us)
            else:
                self._replace(host, down_us)
