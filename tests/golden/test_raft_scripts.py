"""The quorum as text: each script in `raft/` is a story of replicas, what they hear and what they do.

Lines that a replica prints begin with its id: `save` is quorum-state on its disk, `->` a request that leaves,
`<-` an answer that leaves, `sync` asks the disk, `timer` a moment from now in ms, `received` is the listener.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from firnline.base.effects import Effects, Flush, Reply, Send, SetTimer
from firnline.base.errors import Code, FirnlineError
from firnline.base.log_lines.line import WARNING, Log
from firnline.raft.election_state import ElectionState
from firnline.raft.node import RaftNode
from firnline.raft.settings import QuorumSettings
from firnline.records.batch import headers
from tests.datadriven import run_script
from tests.worlds import raft as raft_rig
from tests.worlds.chance import CountingRng
from tests.worlds.effects import said
from tests.worlds.raft import Disk, Flight, Listener, Member, Net, part
from tests.worlds.timers import WorldTimers

SCRIPTS = sorted((Path(__file__).parent / "raft").glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_quorum_does_as_recorded(script: Path) -> None:
    run_script(script, Story())


def test_there_are_stories() -> None:
    assert len(SCRIPTS) >= 12


class RecordingDisk(Disk):
    """Says what is written to it."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__()
        self.report = report

    def save(self, state: ElectionState, then: Any = None, now_ms: int = 0) -> Effects:
        self.report(f"save {said_state(state)}")
        return super().save(state, then, now_ms)

    def truncate_to(self, offset: int, then: Any, now_ms: int) -> Effects:
        self.report(f"cut to {offset}")
        return super().truncate_to(offset, then, now_ms)

    def append_fetched(self, data: bytes, *, now_ms: int) -> Any:
        problem = super().append_fetched(data, now_ms=now_ms)
        self.report(f"append to {self.end_offset}" if problem is None else "refuse the records")
        return problem

    def append(self, batch: bytearray, *, epoch: int, now_ms: int) -> int:
        offset = super().append(batch, epoch=epoch, now_ms=now_ms)
        self.report(f"write {offset} in epoch {epoch}")
        return offset

    def install(self, part: Any, begun: Any, then: Any, now_ms: int) -> Effects:
        self.report(f"install {part.snapshot_id.offset}-{part.snapshot_id.epoch}")
        return super().install(part, begun, then, now_ms)


class RecordingMember(Member):
    """Says what its replica wants done, then does it."""

    story: "Story"

    def report(self, what: str) -> None:
        self.story.lines.append(f"{self.node_id}: {what}")

    def on_send(self, effect: Send[Any]) -> None:
        self.report(f"-> {effect.peer.node_id} {said_request(effect.request)}")
        super().on_send(effect)

    def on_reply(self, effect: Reply[Any]) -> None:
        unknown = isinstance(effect.context, list)
        asker = "" if unknown else f"{effect.context.sender.node_id} "
        self.report(f"<- {asker}{said_response(effect.message)}")
        super().on_reply(effect)

    def on_flush(self, effect: Flush) -> None:
        self.report("sync")
        super().on_flush(effect)

    def on_set_timer(self, effect: SetTimer) -> None:
        _, name, *_ = cast(tuple[str, ...], effect.key)
        self.report(f"timer {name} {effect.at_ms - self.net.now_ms}")
        super().on_set_timer(effect)

    def on_log(self, effect: Log) -> None:
        if effect.level >= WARNING:
            self.report(f"warn {said(effect)}")
        super().on_log(effect)


class RecordingListener(Listener):
    def __init__(self, report: Callable[[str], None]) -> None:
        class Received(list[str]):
            def append(self, what: str) -> None:
                report(f"heard {what}")
                super().append(what)

        self.received = Received()


class Story:
    """Runs the commands of one script on one quorum."""

    def __init__(self) -> None:
        self.net = Net(())
        self.lines: list[str] = []

    def __call__(self, text: str) -> str:
        verb, *words = text.split()
        self.lines = []
        try:
            getattr(self, f"do_{verb.replace('-', '_')}")(words)
        except (FirnlineError, AssertionError) as problem:
            why = getattr(problem, "why", problem)
            self.lines.append(f"the node stops: {why}")
        return "\n".join(self.lines)

    # ---- the stage

    def do_quorum(self, words: list[str]) -> None:
        """Voter ids; observers=9; key=value of the settings."""
        options: dict[str, Any] = dict(word.split("=") for word in words if "=" in word)
        voters = [int(word) for word in words if "=" not in word]
        observers = [int(n) for n in options.pop("observers", "").split(",") if n]
        numbers: dict[str, Any] = {key: int(value) for key, value in options.items()}
        settings = QuorumSettings(**numbers)
        self.net = Net(voters, observers, settings=settings)
        for node_id in (*voters, *observers):
            member = RecordingMember(
                self.net, node_id, raft_rig.directory(node_id), rng=CountingRng(1_001)
            )
            member.story = self
            member.disk = RecordingDisk(member.report)
            member.holds_flushes = True
            self.net.members[node_id] = member

    def do_start(self, words: list[str]) -> None:
        """Ids; epoch=7 leader=2 voted=1: what is saved."""
        saved = {k: int(v) for k, v in (word.split("=") for word in words if "=" in word)}
        for node_id in (int(word) for word in words if "=" not in word):
            member = self.net[node_id]
            if saved:
                state = ElectionState(
                    saved["epoch"], saved.get("leader", -1), saved.get("voted", -1)
                )
                member.disk.saved.append(state)
            member.listener = RecordingListener(member.report)  # type: ignore[attr-defined]
            start_with(member)
            self.do_show([str(node_id)])

    def do_log(self, words: list[str]) -> None:
        """Id, then epochs of one record each: what its log holds, synced."""
        member = self.net[int(words[0])]
        for offset, epoch in enumerate(words[1:]):
            batch = raft_rig.one_record(offset, int(epoch), f"{offset}@{epoch}".encode())
            member.disk.batches.append(batch)
        member.disk.synced_offset = member.disk.end_offset

    def do_snapshot(self, words: list[str]) -> None:
        """Id, end offset, content; the epoch is that of its last record."""
        self.net[int(words[0])].disk.take_snapshot(int(words[1]), data=words[2].encode())

    def do_retire(self, words: list[str]) -> None:
        self.net[int(words[0])].disk.retire_snapshots(int(words[1]), now_ms=1)

    def do_crash(self, words: list[str]) -> None:
        """Ids: the process is gone."""
        for node_id in map(int, words):
            self.net[node_id].crash(power=False)

    def do_power_cut(self, words: list[str]) -> None:
        """Ids: and what was not synced too."""
        for node_id in map(int, words):
            self.net[node_id].crash(power=True)
            self.do_show([str(node_id)])

    def do_wipe(self, words: list[str]) -> None:
        """Ids of nodes that are down: their disks are replaced by empty ones."""
        for node_id in map(int, words):
            member = self.net[node_id]
            assert isinstance(member, RecordingMember)
            member.disk = RecordingDisk(member.report)

    def do_speak(self, words: list[str]) -> None:
        """API key and version: nobody knows a newer one."""
        self.net.versions[int(words[0])] = int(words[1])

    def do_cut(self, words: list[str]) -> None:
        self.net.cut(*map(int, words))

    def do_heal(self, words: list[str]) -> None:
        self.net.heal()

    # ---- what happens

    def do_fire(self, words: list[str]) -> None:
        """Id, timer."""
        self.net[int(words[0])].fire(words[1])

    def do_wait(self, words: list[str]) -> None:
        self.net.now_ms += int(words[0])

    def do_sync(self, words: list[str]) -> None:
        for node_id in map(int, words):
            self.net[node_id].sync()

    def do_pass(self, words: list[str]) -> None:
        """Bring messages to their end: sender and target as 1>2, of the request; none for all, once."""
        for flight in self._flights(words):
            self.net.deliver(flight)

    def do_lose(self, words: list[str]) -> None:
        for flight in self._flights(words):
            self.net.lose(flight)

    def _flights(self, words: list[str]) -> list[Flight]:
        ways = [tuple(map(int, word.split(">"))) for word in words]
        return [f for f in self.net.flights if not ways or (f.sender.node_id, f.target_id) in ways]

    def do_settle(self, words: list[str]) -> None:
        """Deliver and sync until nothing moves; say only who stands where then."""
        for member in self.net.members.values():
            member.holds_flushes = False
        self.net.settle()
        for member in self.net.members.values():
            member.holds_flushes = True
        self.lines = []
        self.do_show([str(n) for n, member in self.net.members.items() if member.is_up])

    def do_propose(self, words: list[str]) -> None:
        self.net[int(words[0])].propose(words[1].encode())

    def do_resign(self, words: list[str]) -> None:
        member = self.net[int(words[0])]
        member.run(member.node.resign(self.net.now_ms))

    def do_show(self, words: list[str]) -> None:
        for node_id in map(int, words):
            member = self.net[node_id]
            end = f"log {member.disk.start_offset}-{member.disk.end_offset}"
            if not member.is_up:
                self.lines.append(f"{node_id}: is down, {end}")
                continue
            node = member.node
            known = f" of {node.leader_id}" if node.leader_id >= 0 else ""
            high = "unknown" if node.high_watermark is None else node.high_watermark
            self.lines.append(
                f"{node_id}: is {node.role.value}{known} in epoch {node.epoch}, {end},"
                f" high watermark {high}"
            )

    # ---- what strangers ask

    def do_vote(self, words: list[str]) -> None:
        """Of whom, from whom, epoch, last=offset-epoch, pre, for=voter, disk=other."""
        asked, candidate, epoch, *more = words
        options = dict(word.split("=") for word in more if "=" in word)
        offset, _, last_epoch = options.get("last", "0-0").partition("-")
        request = raft_rig.vote(
            int(epoch),
            int(candidate),
            last=(int(offset), int(last_epoch)),
            voter_id=int(options.get("for", asked)),
            voter_directory_id=b"x" * 16 if "disk" in options else bytes(16),
            is_pre_vote="pre" in more,
        )
        self._ask(int(asked), request)

    def do_begin(self, words: list[str]) -> None:
        asked, leader, epoch = map(int, words)
        self._ask(asked, raft_rig.begin(epoch, leader, voter_id=asked))

    def do_end(self, words: list[str]) -> None:
        asked, leader, epoch, *successors = map(int, words)
        order = [(node_id, bytes(16)) for node_id in successors]
        self._ask(asked, raft_rig.end(epoch, leader, order))

    def do_fetch(self, words: list[str]) -> None:
        """Of whom, by whom, epoch, offset-epoch."""
        asked, replica, epoch, at = words
        offset, _, last = at.partition("-")
        request = raft_rig.fetch(int(epoch), int(replica), (int(offset), int(last)))
        self._ask(int(asked), request)

    def do_fetch_snapshot(self, words: list[str]) -> None:
        """Of whom, by whom, epoch, offset-epoch, position."""
        asked, replica, epoch, at, position = words
        offset, _, last = at.partition("-")
        request = raft_rig.fetch_snapshot(
            int(epoch), int(replica), (int(offset), int(last)), int(position)
        )
        self._ask(int(asked), request)

    def _ask(self, node_id: int, request: Any) -> None:
        member = self.net[node_id]

        def answer(response: Any) -> Reply:
            return Reply(context=[], message=response)

        member.run(member.node.on_request(request, answer, self.net.now_ms))


def start_with(member: Member) -> None:
    """Start with the listener that tells."""
    listener = member.listener
    member.life += 1
    member.is_up, member.timers, member.flushes = True, WorldTimers(), []
    member.disk.high_watermark = member.disk.start_offset
    member.node = RaftNode(
        node_id=member.node_id,
        cluster_id=raft_rig.CLUSTER,
        directory_id=member.directory_id,
        voters=member.net.voters,
        log=member.disk,
        elections=member.disk,
        listener=listener,
        rng=member.rng,
        settings=member.net.settings,
    )
    member.run(member.node.start(member.net.now_ms))


def said_state(state: ElectionState) -> str:
    words = [f"epoch {state.epoch}"]
    words += [f"leader {state.leader_id}"] if state.leader_id >= 0 else []
    words += [f"voted {state.voted_id}"] if state.voted_id >= 0 else []
    return " ".join(words)


def said_request(request: Any) -> str:
    wanted = part(request)
    name = type(request).__name__.removesuffix("Request")
    if name == "Vote":
        kind = "pre-vote" if wanted.pre_vote else "vote"
        return f"{kind} epoch {wanted.replica_epoch} last {wanted.last_offset}-{wanted.last_offset_epoch}"
    if name == "Fetch":
        at = f"{wanted.fetch_offset}-{wanted.last_fetched_epoch}"
        return f"fetch epoch {wanted.current_leader_epoch} at {at}"
    if name == "FetchSnapshot":
        snapshot = wanted.snapshot_id
        return f"fetch-snapshot {snapshot.end_offset}-{snapshot.epoch} from {wanted.position}"
    if name == "EndQuorumEpoch":
        return f"end epoch {wanted.leader_epoch} successors {list(wanted.preferred_successors)}"
    return f"begin epoch {wanted.leader_epoch}"


def said_response(response: Any) -> str:
    if response.error_code:
        return Code(response.error_code).name
    found = part(response)
    current = getattr(found, "current_leader", found)
    known = f"epoch {current.leader_epoch}"
    known += f" leader {current.leader_id}" if current.leader_id >= 0 else ""
    return f"{_news(response, found)}, {known}"


def _news(response: Any, found: Any) -> str:
    name = type(response).__name__.removesuffix("Response")
    if found.error_code:
        return Code(found.error_code).name
    if name == "Vote":
        return "granted" if found.vote_granted else "refused"
    if name == "FetchSnapshot":
        data = bytes(found.unaligned_records).decode()
        return f"{data!r} at {found.position} of {found.size}"
    if name != "Fetch":
        return "noted"
    if found.diverging_epoch.epoch >= 0:
        return f"diverging {found.diverging_epoch.end_offset}-{found.diverging_epoch.epoch}"
    if found.snapshot_id.epoch >= 0:
        return f"snapshot {found.snapshot_id.end_offset}-{found.snapshot_id.epoch}"
    ends = [h.next_offset for h in headers(bytes(found.records))]
    records = f"records to {ends[-1]}" if ends else "nothing"
    return f"{records}, committed {found.high_watermark}"
