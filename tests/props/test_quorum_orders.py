"""Any order of deliveries, syncs, crashes and power cuts: one leader an epoch, nothing committed is lost."""

from random import Random

from hypothesis import given, note, settings
from hypothesis import strategies as st

from firnline.raft.role import Role
from firnline.raft.settings import QuorumSettings
from firnline.records.batch import headers
from tests.worlds.raft import Member, Net

# Few retries between the events that matter.
SLOW_RETRIES = QuorumSettings(retry_backoff_ms=300)
BATCHES_MAX = 120


class World:
    """A quorum at the mercy of `chance`, watched after every step."""

    def __init__(self, chance: Random, voters: int, observers: int) -> None:
        self.chance = chance
        ids = range(1, voters + 1 + observers)
        self.net = Net(ids[:voters], ids[voters:], settings=SLOW_RETRIES, seed=chance.randrange(99))
        for member in self.net.members.values():
            member.holds_flushes = True
        self.net.start()
        self.leaders: dict[int, int] = {}
        self.committed: dict[int, bytes] = {}  # base offset -> batch
        self.known: dict[int, tuple[int, int, int]] = {}  # node -> life, generation, offset checked
        self.votes: dict[tuple[int, int], int] = {}
        self.proposed = 0

    def step(self) -> None:
        """Do one thing that may happen."""
        kinds = (
            self.deliver,
            self.sync,
            self.fire,
            self.propose,
            self.fail,
            self.repair,
            self.snap,
        )
        (kind,) = self.chance.choices(kinds, weights=(60, 15, 15, 8, 2, 4, 1))
        kind()
        for member in self.net.members.values():
            if member.is_up and member.node.is_stopped:
                member.crash(power=False)
                member.start()
        self.check()

    def deliver(self) -> None:
        if self.net.flights:
            flight = self.chance.choice(self.net.flights[:6])
            (self.net.lose if self.chance.random() < 0.03 else self.net.deliver)(flight)

    def sync(self) -> None:
        member = self.anyone()
        if member.is_up and member.flushes:
            flush = member.flushes.pop(self.chance.randrange(len(member.flushes)))
            member.run(flush.then(None, self.net.now_ms))

    def fire(self) -> None:
        """The first timer; now and then another one, as clocks drift."""
        due = sorted(
            (timer.at_ms, member.node_id, str(key))
            for member in self.net.members.values()
            if member.is_up
            for key, timer in member.timers.items()
            if key != ("raft", "clean")
        )
        if due:
            at_ms, node_id, key = due[0] if self.chance.random() < 0.9 else self.chance.choice(due)
            member = self.net[node_id]
            (found,) = [k for k in member.timers if str(k) == key]
            self.net.now_ms = max(self.net.now_ms, min(at_ms, self.net.now_ms + 2_000))
            member.run(member.timers.pop(found).then(self.net.now_ms))

    def propose(self) -> None:
        for leader in self.net.leaders:
            if len(leader.disk.batches) < BATCHES_MAX:
                self.proposed += 1
                leader.propose(b"%d" % self.proposed)

    def fail(self) -> None:
        member = self.anyone()
        others_up = sum(m.is_up for m in self.net.members.values() if m is not member)
        if self.chance.random() < 0.4:
            self.net.cuts.add(tuple(self.chance.sample(list(self.net.members), 2)))  # type: ignore[arg-type]
        elif member.is_up and others_up:
            member.crash(power=self.chance.random() < 0.7)

    def repair(self) -> None:
        down = [m for m in self.net.members.values() if not m.is_up]
        if down and self.chance.random() < 0.7:
            self.chance.choice(down).start()
        else:
            self.net.heal()

    def snap(self) -> None:
        """Take a snapshot of what is committed; sometimes clean up to it; sometimes leave office."""
        member = self.anyone()
        if not member.is_up:
            return
        if self.chance.random() < 0.1:
            member.run(member.node.resign(self.net.now_ms))
            return
        newest = member.disk.newest_snapshot_id
        ends = [
            end
            for end in (next(headers(b)).next_offset for b in member.disk.batches)
            if end <= member.node._quorum.committed and (newest is None or end > newest.offset)
        ]
        if ends:
            end = self.chance.choice(ends)
            member.disk.take_snapshot(
                end, data=b"%d" % end + bytes(self.chance.randrange(3000)) + b"!"
            )
            if self.chance.random() < 0.5:
                member.disk.retire_snapshots(end, now_ms=1)

    def anyone(self) -> Member:
        return self.chance.choice(list(self.net.members.values()))

    # ---- what must hold

    def check(self) -> None:
        for member in self.net.members.values():
            self.check_votes(member)
            if member.is_up:
                self.check_leader(member)
                self.check_committed(member)

    def check_votes(self, member: Member) -> None:
        """rel-Q2."""
        if member.disk.saved:
            epoch, _, voted_id = member.disk.saved[-1]
            assert all(state.epoch <= epoch for state in member.disk.saved[-3:])
            if voted_id >= 0:
                assert self.votes.setdefault((member.node_id, epoch), voted_id) == voted_id

    def check_leader(self, member: Member) -> None:
        """rel-Q1, rel-Q6."""
        node = member.node
        if node.role is not Role.LEADER:
            return
        assert self.leaders.setdefault(node.epoch, member.node_id) == member.node_id
        if node.high_watermark is not None:
            durable = [
                voter_id
                for voter_id in self.net.voters.node_ids
                if self.net[voter_id].disk.synced_offset >= node.high_watermark
            ]
            assert len(durable) >= self.net.voters.majority

    def check_committed(self, member: Member) -> None:
        """rel-Q3: what two nodes call committed is the same, batch by batch."""
        quorum = member.node._quorum
        life, generation, checked = self.known.get(member.node_id, (0, 0, 0))
        if (life, generation) != (member.life, quorum.generation):
            checked = 0
        for batch in reversed(member.disk.batches) if quorum.committed > checked else ():
            header = next(headers(batch))
            if header.next_offset <= checked:
                break
            if header.next_offset <= quorum.committed:
                assert self.committed.setdefault(header.base_offset, batch) == batch
        self.known[member.node_id] = (member.life, quorum.generation, quorum.committed)

    def converge(self) -> None:
        """rel-Q4, rel-Q19: healed, all come to one log, with everything that was ever committed."""
        self.net.heal()
        for member in self.net.members.values():
            member.holds_flushes = False
            if member.node._election.is_leaving:
                member.crash(power=False)
            if not member.is_up:
                member.start()
        members = list(self.net.members.values())
        self.net.run_for(
            20_000,
            until=lambda: self.net.agree() and len({m.disk.end_offset for m in members}) == 1,
        )
        self.net.run_for(1_500)
        self.check()
        assert len({m.node.high_watermark for m in members}) == 1
        for member in members:
            assert member.node.high_watermark == member.disk.end_offset
            there = {next(headers(b)).base_offset: b for b in member.disk.batches}
            for base_offset, batch in self.committed.items():
                assert base_offset < member.disk.start_offset or there[base_offset] == batch


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    voters=st.sampled_from([2, 3, 3, 4, 5]),
    observers=st.integers(0, 1),
)
def test_nothing_that_was_committed_is_ever_lost(seed: int, voters: int, observers: int) -> None:
    world = World(Random(seed), voters, observers)
    for _ in range(1_500):
        world.step()
    note(f"{len(world.leaders)} leaders, {len(world.committed)} batches committed")
    world.converge()
