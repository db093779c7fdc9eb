"""The simulated network gives what TCP gives, and takes what TCP takes away."""

from typing import Any

from firnline.base.effects import Effects, Peer, Reply, Send, SetTimer, Unanswered
from firnline.protocol.messages.k52_vote import (
    VotePartition,
    VoteRequest,
    VoteResponse,
    VoteTopic,
)
from firnline.sim.host import Host, Process
from firnline.sim.net import Call, Network
from firnline.sim.options import draw_options
from firnline.sim.world import MS, SECOND, World

PEERS = {node_id: Peer(node_id, f"node-{node_id}", 9093) for node_id in (1, 2)}


def numbered(number: int) -> VoteRequest:
    return VoteRequest(
        topics=[VoteTopic(partitions=[VotePartition(replica_epoch=number, replica_id=1)])]
    )


def number_of(request: Any) -> int:
    number: int = request.topics[0].partitions[0].replica_epoch
    return number


class EchoMachine:
    """Notes what it is asked and answers at once, or when the test answers what it parked."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.is_parking = False
        self.parked: list[Call] = []
        self.fired: list[int] = []

    def start(self, now_ms: int) -> Effects:
        return []

    def takes(self, port: int) -> bool:
        return True

    def on_request(self, request: Any, call: Call, now_ms: int) -> Effects:
        self.asked.append(number_of(request))
        if self.is_parking:
            self.parked.append(call)
            return []
        return [call.answer(VoteResponse(error_code=0))]


class Rig:
    """Two machines and the network between them."""

    def __init__(self, **options: Any) -> None:
        self.world = World(1)
        self.options = draw_options(1)._replace(
            voters=2,
            observers=0,
            delay_us=MS,
            jitter_us=1,
            tail_percent=0,
            is_encoded=False,
            **options,
        )
        self.hosts = {node_id: Host(node_id, self.world, self.options, self) for node_id in (1, 2)}  # type: ignore[arg-type]
        self.network = Network(self.world, self.options, self.hosts, self)
        self.machines: dict[int, EchoMachine] = {}
        self.answers: list[tuple[int, str]] = []
        for host in self.hosts.values():
            host.start()

    # what processes need
    def send(self, process: Process, effect: Send) -> None:
        self.network.send(process, effect)

    def reply(self, process: Process, effect: Reply) -> None:
        self.network.reply(process, effect)

    def make(self, host: Host, process: Process, now_ms: int) -> Any:
        machine = self.machines[host.node_id] = EchoMachine()
        return machine

    def stepped(self, process: Process) -> None: ...

    def took(self, process: Process, what: str, taken_us: int) -> None: ...

    def failed(self, process: Process, problem: BaseException) -> None:
        raise problem

    def stopped(self, process: Process, *, is_power: bool) -> None:
        self.network.process_ended(process, is_power=is_power)

    # who looks at messages
    def sent(self, process: Process, to_id: int, effect: Send) -> None: ...

    def received(self, process: Process, call: Call) -> None: ...

    def answered(self, process: Process, call: Call, response: Any) -> None: ...

    def on_response(self, process: Process, effect: Send, response: Any) -> None: ...

    # what tests do
    def ask(self, number: int, *, timeout_ms: int = 1000, channel: str = "quorum") -> None:
        def then(answer: Any, now_ms: int) -> Effects:
            why = answer.why if isinstance(answer, Unanswered) else "answered"
            self.answers.append((number, why))
            return []

        effect = Send(
            peer=PEERS[2],
            request=numbered(number),
            timeout_ms=timeout_ms,
            then=then,
            channel=channel,
        )
        process = self.hosts[1].process
        assert process is not None
        process.step("asks", lambda now_ms: [effect])

    def run(self, duration_us: int) -> None:
        self.world.run_until(self.world.now_us + duration_us)


def test_requests_of_a_connection_arrive_in_order_and_are_answered_in_order() -> None:
    rig = Rig(fetch_timeout_ms=1000)
    for number in range(20):
        rig.ask(number)
    rig.run(SECOND)
    assert rig.machines[2].asked == list(range(20))
    assert rig.answers == [(number, "answered") for number in range(20)]


def test_one_request_of_a_connection_is_handled_at_a_time() -> None:
    """A parked Fetch holds up what comes behind it, as on a real connection."""
    rig = Rig()
    rig.machines[2].is_parking = True
    rig.ask(1)
    rig.ask(2)
    rig.run(100 * MS)
    assert rig.machines[2].asked == [1]
    server = rig.hosts[2].process
    assert server is not None
    server.step("answers", lambda now_ms: [rig.machines[2].parked[0].answer(VoteResponse())])
    rig.run(100 * MS)
    assert rig.machines[2].asked == [1, 2]
    assert rig.answers == [(1, "answered")]


def test_a_cut_holds_what_is_sent_and_loses_nothing() -> None:
    rig = Rig()
    rig.ask(0)
    rig.run(100 * MS)
    rig.network.cut(1, 2)
    rig.ask(1)
    rig.ask(2)
    rig.run(500 * MS)
    assert rig.machines[2].asked == [0]
    rig.network.repair(1, 2)
    rig.run(450 * MS)
    assert rig.machines[2].asked == [0, 1, 2]


def test_a_cut_of_the_way_back_lets_a_request_be_done_twice() -> None:
    """The answer is held, the asker gives up and asks again on another connection."""
    rig = Rig()
    rig.ask(1)
    rig.run(100 * MS)
    rig.network.cut(2, 1)
    rig.ask(7, timeout_ms=200)
    rig.run(300 * MS)
    assert rig.answers[1:] == [(7, "no answer in time")]
    rig.network.repair(2, 1)
    rig.run(600 * MS)
    rig.ask(7, timeout_ms=200)
    rig.run(600 * MS)
    assert rig.machines[2].asked == [1, 7, 7]
    assert rig.answers[2:] == [(7, "answered")]


def test_what_stalls_on_one_connection_comes_after_it_was_asked_again_on_another() -> None:
    rig = Rig()
    rig.ask(1)
    rig.run(100 * MS)
    stalled = rig.network.stall(1, 2)
    rig.ask(7, timeout_ms=200)
    rig.run(300 * MS)
    rig.ask(8, timeout_ms=200)
    rig.run(300 * MS)
    assert rig.answers[1:] == [(7, "no answer in time"), (8, "answered")]
    rig.network.release(stalled)
    rig.run(600 * MS)
    assert rig.machines[2].asked == [1, 8, 7]


def test_a_node_that_reads_for_long_answers_afterwards() -> None:
    """Goal: a loop that is held up is not asked meanwhile. Method: a step that reads a KiB, for 300 ms."""
    rig = Rig(read_us_per_kib=300_000)
    process, fs = rig.hosts[2].process, rig.hosts[2].fs
    assert process is not None
    rig.ask(1)
    rig.run(100 * MS)

    def read(now_ms: int) -> Effects:
        fs.open("/long", create=True).append(bytes(1024))
        fs.open("/long").read(0, 1024)
        return []

    process.step("reads", read)
    rig.ask(2)
    rig.run(250 * MS)
    assert rig.machines[2].asked == [1]
    rig.run(100 * MS)
    assert rig.machines[2].asked == [1, 2]


def test_who_asks_a_killed_node_is_refused_and_who_asks_a_dark_one_waits() -> None:
    rig = Rig()
    rig.hosts[2].kill()
    rig.ask(1)
    rig.run(100 * MS)
    assert rig.answers == [(1, "connection refused")]
    rig.run(SECOND)
    rig.hosts[2].cut_power(rig.world.chance("t"))
    rig.ask(2, timeout_ms=400)
    rig.run(300 * MS)
    assert len(rig.answers) == 1
    rig.run(200 * MS)
    assert rig.answers[1:] == [(2, "no answer in time")]


def test_after_a_failure_nobody_connects_again_at_once() -> None:
    rig = Rig()
    rig.hosts[2].kill()
    rig.ask(1)
    rig.run(10 * MS)
    rig.hosts[2].start()
    rig.ask(2)
    rig.run(10 * MS)
    assert rig.answers == [(1, "connection refused"), (2, "connection refused")]
    rig.run(60 * MS)
    rig.ask(3)
    rig.run(100 * MS)
    assert rig.answers[2:] == [(3, "answered")]


def test_a_restarted_node_does_not_know_the_connections_of_the_last_one() -> None:
    rig = Rig()
    rig.ask(1)
    rig.run(100 * MS)
    rig.hosts[2].cut_power(rig.world.chance("t"))
    rig.hosts[2].start()
    rig.ask(2)
    rig.run(100 * MS)
    assert rig.answers[1:] == [(2, "connection reset")]
    assert rig.machines[2].asked == []


def test_a_paused_node_handles_what_came_in_once_it_goes_on() -> None:
    rig = Rig()
    rig.ask(1)
    rig.run(100 * MS)
    rig.hosts[2].pause()
    rig.ask(2)
    rig.ask(3)
    rig.run(500 * MS)
    assert rig.machines[2].asked == [1]
    rig.hosts[2].resume()
    rig.run(100 * MS)
    assert rig.machines[2].asked == [1, 2, 3]


def test_a_timer_that_was_replaced_during_a_pause_does_not_fire() -> None:
    rig = Rig()
    process = rig.hosts[1].process
    assert process is not None
    fired: list[str] = []

    def timer(name: str, in_ms: int) -> SetTimer:
        def then(now_ms: int) -> Effects:
            fired.append(name)
            return []

        return SetTimer(key="k", at_ms=process.now_ms() + in_ms, then=then)

    process.step("sets", lambda now_ms: [timer("old", 10)])
    rig.hosts[1].pause()
    process.when_awake(process.step, "sets", lambda now_ms: [timer("new", 10)])
    rig.run(50 * MS)
    rig.hosts[1].resume()
    rig.run(50 * MS)
    assert fired == ["new"]


def test_messages_go_through_the_codec_where_the_seed_says_so() -> None:
    rig = Rig()
    rig.network._options = rig.options._replace(is_encoded=True)
    rig.ask(5)
    rig.run(100 * MS)
    assert rig.machines[2].asked == [5]
    assert rig.answers == [(5, "answered")]
