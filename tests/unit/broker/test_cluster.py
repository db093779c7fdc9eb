"""Nodes of one role or two together: joining, deciding elsewhere, and controllers that come and go."""

from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from firnline.base.effects import Send, Unanswered
from firnline.base.errors import Code, ConfigError
from firnline.base.ids import OFFSETS_TOPIC
from firnline.metadata.features import CONTROLLER_REGISTRATION_SINCE
from firnline.protocol.messages.k01_fetch import FetchRequest
from firnline.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from firnline.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from firnline.protocol.messages.k58_envelope import EnvelopeRequest
from firnline.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from firnline.protocol.messages.k62_broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from firnline.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from firnline.protocol.messages.k64_unregister_broker import UnregisterBrokerRequest
from tests.worlds.chance import SeededRng
from tests.worlds.cluster import CLIENT_PORT, CONTROLLER_PORT, Member, Rig

pytestmark = pytest.mark.slow

THREE = {1: "controller", 2: "controller", 3: "controller"}
BOTH = dict.fromkeys((1, 2, 3), "broker,controller")
SESSION_MS = 9_000
OTHER_CLUSTER = "BBBBBBBBBBBBBBBBBBBBBg"


def active(rig: Rig) -> int:
    node_id = rig.active()
    assert node_id is not None, "nobody is active"
    return node_id


def next_active(rig: Rig, gone: int) -> int:
    """Let an election happen; return who is active now."""
    rig.until(lambda: rig.active() not in (None, gone))
    return active(rig)


# --------------------------------------------------------------------------------------- joining


def test_a_broker_joins_controllers_elsewhere_and_serves() -> None:
    rig = Rig({**THREE, 4: "broker"}).start()
    assert rig.create_topic(4, "t").error_code == 0
    rig.until(lambda: rig[4].broker.partitions)
    assert rig[4].broker.partitions["t", 0].is_leader


def test_a_client_is_not_taken_before_the_image_says_that_the_broker_is_there() -> None:
    """Otherwise the first Metadata answer would have no brokers at all."""
    rig = Rig({**THREE, 4: "broker"}).start()
    assert not rig[4].broker.image.brokers[4].fenced
    found = rig.ask(4, MetadataRequest(topics=[]), 12)
    assert [(b.node_id, b.port) for b in found.brokers] == [(4, CLIENT_PORT + 4)]
    assert found.controller_id == 4, "clients look for the controller among the brokers"


def test_a_broker_without_a_controller_asks_until_there_is_one() -> None:
    rig = Rig({**THREE, 4: "broker"})
    rig[4].start()
    rig.pass_time(20_000)
    assert not rig[4].is_running
    for node_id in THREE:
        rig[node_id].start()
    assert rig.until(lambda: rig[4].is_running) < 5_000


def test_a_broker_gives_up_when_nobody_registers_it_in_time() -> None:
    rig = Rig({**THREE, 4: "broker"})
    rig[4].start()
    rig.pass_time(59_000)
    with pytest.raises(ConfigError, match=r"initial\.broker\.registration\.timeout\.ms"):
        rig.pass_time(2_000)


def test_a_broker_of_another_cluster_learns_which_file_to_repair() -> None:
    rig = Rig({**THREE, 4: "broker"})
    rig[4].format(OTHER_CLUSTER)
    for node_id in THREE:
        rig[node_id].start()
    rig[4].start()
    with pytest.raises(ConfigError, match=r"another cluster.*controller\.quorum\.voters"):
        rig.pass_time(10_000)


def test_a_broker_killed_and_started_at_once_waits_for_its_own_session_to_end() -> None:
    """I34: to a controller elsewhere the dead incarnation lives until its session is over."""
    rig = Rig({**THREE, 4: "broker"}).start()
    first = rig[4].broker.broker_epoch
    rig[4].kill()
    rig[4].start()
    took_ms = rig.until(lambda: rig[4].is_running)
    assert SESSION_MS - 2_000 < took_ms < SESSION_MS + 9_000
    assert rig[4].broker.broker_epoch > first
    assert any("DUPLICATE_BROKER_REGISTRATION" in line for line in rig[4].warnings)


def answer_first(rig: Rig, answers: list[BrokerRegistrationResponse]) -> None:
    """Answer the next requests of broker 4 to be registered so, and have nobody decide on them."""
    ask = rig.send

    def spoilt(asker: Member, effect: Send) -> None:
        if asker.node_id == 4 and isinstance(effect.request, BrokerRegistrationRequest) and answers:
            answer = answers.pop(0)
            rig.at(rig.now_ms + 1, lambda _: asker.run(effect.then(answer, rig.now_ms)))
        else:
            ask(asker, effect)

    rig.send = spoilt  # type: ignore[method-assign]


def test_an_answer_that_nobody_can_mean_does_not_end_a_broker_that_registers() -> None:
    """One byte of it flipped on the way, or whoever answered was no controller: it asks again."""
    rig = Rig({**THREE, 4: "broker"}).start()
    rig[4].kill()
    codes = [Code.BROKER_ID_NOT_REGISTERED, Code.OFFSET_OUT_OF_RANGE, Code.UNKNOWN_SERVER_ERROR]
    answers = [BrokerRegistrationResponse(error_code=code) for code in codes]
    answer_first(rig, answers)
    rig[4].start()
    rig.until(lambda: rig[4].is_running)
    assert not answers


@pytest.mark.parametrize("more", [1 << 15, -1, -(1 << 40)])
def test_a_broker_that_got_a_wrong_epoch_goes_by_what_metadata_says(more: int) -> None:
    """It waited for metadata that would never come, or for somebody to start it again."""
    rig = Rig({**THREE, 4: "broker"})
    for node_id in THREE:
        rig[node_id].start()
    ask = rig.send

    def spoilt(asker: Member, effect: Send) -> None:
        def then(answer: Any, now_ms: int) -> Any:
            if isinstance(answer, BrokerRegistrationResponse) and answer.error_code == 0:
                answer.broker_epoch += more
            return effect.then(answer, now_ms)

        ask(asker, replace(effect, then=then))

    rig.send = spoilt  # type: ignore[method-assign]
    rig[4].start()
    rig.until(lambda: rig[4].is_running, 20_000)
    assert rig[4].broker.broker_epoch == rig[4].broker.image.brokers[4].epoch
    assert rig.create_topic(4, "t").error_code == 0
    rig.until(lambda: rig[4].broker.partitions)
    assert rig[4].broker.partitions["t", 0].is_leader


@pytest.mark.parametrize("epoch", [-1, 0, 1 << 40])
def test_a_broker_that_was_notified_in_vain_that_it_is_registered_asks_again(epoch: int) -> None:
    """Its last incarnation is still there: it took that for another process in its place."""
    rig = Rig({**THREE, 4: "broker"}).start()
    rig[4].kill()
    answers = [BrokerRegistrationResponse(broker_epoch=epoch)]
    answer_first(rig, answers)
    rig[4].start()
    rig.until(lambda: rig[4].is_running, 3 * SESSION_MS)
    assert not answers
    assert not superseded(rig)


def test_a_broker_that_was_notified_in_vain_for_long_has_all_its_time_to_be_registered_again() -> (
    None
):
    """The time was that since its start: it was over, and the first refusal ended the process."""
    rig = Rig({**THREE, 4: "broker"}, initial_broker_registration_timeout_ms="10000")
    for node_id in THREE:
        rig[node_id].start()
    rig.until(lambda: rig.active() is not None)
    answers = [
        BrokerRegistrationResponse(broker_epoch=1 << 40),
        BrokerRegistrationResponse(error_code=Code.UNKNOWN_SERVER_ERROR),
    ]
    answer_first(rig, answers)
    rig[4].start()
    rig.until(lambda: len(answers) == 1)
    rig.cut = {(4, n) for n in THREE}  # nobody says that the epoch is wrong
    rig.pass_time(11_000)
    assert len(answers) == 1
    rig.cut = set()
    rig.until(lambda: not answers)
    rig.cut = {(4, n) for n in THREE}
    rig.pass_time(9_000)
    rig.cut = set()
    rig.until(lambda: rig[4].is_running)


def silent_and_replaced(*topics: str) -> Rig:
    """Broker 4 was cut off for longer than its session; an old request to register its id arrived then."""
    rig = Rig({**THREE, 4: "broker"}).start()
    for topic in topics:
        assert rig.create_topic(4, topic).error_code == 0
    late = next(m for _, _, m in rig.sent if isinstance(m, BrokerRegistrationRequest))
    epoch = rig[4].broker.broker_epoch
    rig.cut = {(4, n) for n in THREE}
    rig.until(lambda: fenced(rig) == [4], 3 * SESSION_MS)
    late = copy(late)
    late.incarnation_id = b"\x99" * 16
    answer = rig.ask(active(rig), late, 4, controller=True)
    assert (answer.error_code, answer.broker_epoch > epoch) == (0, True)
    return rig


def superseded(rig: Rig) -> list[str]:
    return [line for line in rig[4].warnings if "registered by another process" in line]


def test_a_broker_whose_place_was_taken_while_it_was_silent_says_so_and_stays_up() -> None:
    """It would be refused for ever, and nobody would know; started again it waits for a session."""
    rig = silent_and_replaced()
    rig.cut.clear()
    rig.pass_time(59_000)
    assert len(superseded(rig)) == 1
    assert "start it again" in superseded(rig)[0]
    rig.pass_time(60_000)
    assert len(superseded(rig)) == 2
    rig[4].kill()
    rig[4].start()
    assert rig.until(lambda: rig[4].is_running) < 3 * SESSION_MS


def test_a_broker_whose_place_was_taken_acknowledges_nothing_that_the_other_one_leads() -> None:
    """Both have one id: what metadata says of the other it took for itself, and said that it led nothing."""
    rig = silent_and_replaced("t")
    partition = rig[4].broker.partitions["t", 0]
    epoch = rig[active(rig)].controller.image.brokers[4].epoch
    heartbeat = BrokerHeartbeatRequest(
        broker_id=4, broker_epoch=epoch, current_metadata_offset=1 << 40
    )
    assert not rig.ask(active(rig), heartbeat, 1, controller=True).is_fenced
    rig.cut.clear()
    rig.until(lambda: rig[4].broker.image.brokers[4].epoch == epoch)
    rig.pass_time(5_000)
    state = rig[4].broker.image.partition("t", 0)
    assert state is not None
    assert (state.leader, state.isr) == (4, (4,))
    assert not partition.is_leader
    assert rig[4].broker.hosted.find("t", 0) is partition, "its files stay"


def test_a_living_broker_that_is_unregistered_stays_up_and_comes_back_with_a_start() -> None:
    """One request ended it, and the controller that was in the same process."""
    rig = Rig({**THREE, 1: "broker,controller", 4: "broker"}).start()
    rig.create_topic(4, "t", replicas=2)
    for broker_id in (1, 4):
        answer = rig.ask(
            active(rig), UnregisterBrokerRequest(broker_id=broker_id), 0, controller=True
        )
        assert answer.error_code == 0
    rig.pass_time(30_000)
    assert superseded(rig)
    assert not rig[1].is_stopped
    for node_id in (1, 4):
        rig[node_id].kill()
        rig[node_id].start()
    rig.until(lambda: rig[1].is_running and rig[4].is_running, 3 * SESSION_MS)


def test_a_broker_whose_place_was_taken_leaves_when_it_is_asked_to() -> None:
    rig = silent_and_replaced()
    rig[4].run(rig[4].broker.shutdown(rig.now_ms))
    rig.cut.clear()
    rig.until(lambda: rig[4].is_stopped, 2_000)


def test_nothing_is_hosted_before_the_image_has_the_registration() -> None:
    """rel-R4: what the log on disk says of the last incarnation is not acted on.
    Method: the broker may fetch until it has asked to be registered, and then no more for a while."""
    rig = Rig({**THREE, 4: "broker"}).start()
    rig.create_topic(4, "t")
    rig.until(lambda: rig[4].broker.partitions)
    rig[4].kill()
    rig.until(lambda: fenced(rig) == [4], 3 * SESSION_MS)
    send, asked = rig.send, []

    def without_fetches(asker: Any, effect: Send) -> None:
        asked.append(type(effect.request))
        is_late = BrokerRegistrationRequest in asked and asker.node_id == 4
        if is_late and isinstance(effect.request, FetchRequest):
            silent = Unanswered(why="cut off")
            rig.at(rig.now_ms + 50, lambda serial: asker.resume(asker.life, effect.then, silent))
            return
        send(asker, effect)

    rig.send = without_fetches  # type: ignore[method-assign]
    rig[4].start()
    rig.until(lambda: rig[4].broker.broker_epoch > 0)
    rig.pass_time(1_000)
    assert rig[4].broker.partitions == {}
    assert not rig[4].broker.lifecycle.is_registered
    rig.send = send  # type: ignore[method-assign]
    rig.until(lambda: rig[4].is_running)
    assert rig[4].broker.partitions["t", 0].is_leader


def test_two_brokers_with_one_directory_id_are_refused_with_the_remedy() -> None:
    """Method: format both with the same chance; the incarnations differ all the same."""
    rig = Rig({**THREE, 4: "broker", 5: "broker"})
    for member in (rig[4], rig[5]):
        member.rng = SeededRng(4)
        member.format()
        member.rng = SeededRng(70 + member.node_id)
    for node_id in (*THREE, 4):
        rig[node_id].start()
    rig.until(lambda: rig[4].is_running)
    rig[5].start()
    with pytest.raises(ConfigError, match=r"log\.dirs was copied"):
        rig.pass_time(5_000)


# ------------------------------------------------------------------------------------- controllers


def test_every_controller_writes_down_where_it_listens() -> None:
    rig = Rig({**THREE, 4: "broker"}).start()
    rig.until(lambda: len(rig[4].broker.image.controllers) == 3)
    found = rig.ask(2, DescribeClusterRequest(endpoint_type=2), 2, controller=True)
    assert [(row.broker_id, row.port) for row in found.brokers] == [
        (n, CONTROLLER_PORT + n) for n in THREE
    ]
    assert found.controller_id == rig.active()
    before = rig[active(rig)].controller.quorum.next_offset
    rig.pass_time(450)
    assert rig[active(rig)].controller.quorum.next_offset - before <= 1, "it is written once"


def test_a_restarted_controller_is_written_down_anew() -> None:
    rig = Rig(THREE).start()
    standby = next(n for n in THREE if n != active(rig))
    rig.until(lambda: len(rig[standby].controller.image.controllers) == 3)
    rig[standby].kill()
    rig[standby].start()
    wanted = rig[standby].controller.registration
    rig.until(lambda: rig[standby].controller.image.controllers.get(standby) == wanted)
    assert CONTROLLER_REGISTRATION_SINCE > 0


def test_topics_are_made_under_each_controller_in_turn() -> None:
    """The broker keeps its epoch, finds whoever decides, and clients hear of no election."""
    rig = Rig({**THREE, 4: "broker"}).start()
    epoch = rig[4].broker.broker_epoch
    led: list[int] = []
    for turn in range(4):
        leader = active(rig)
        led.append(leader)
        assert rig.create_topic(4, f"before-{turn}").error_code == 0
        rig[leader].kill()
        assert rig.create_topic(4, f"during-{turn}").error_code == 0
        assert next_active(rig, leader) != leader
        rig[leader].start()
        rig.pass_time(3_000)
    assert len(dict.fromkeys(led)) > 1
    names = rig[4].broker.image.topics_by_name
    assert len(names) == 8
    assert rig[4].broker.broker_epoch == epoch
    assert not rig[4].broker.image.brokers[4].fenced


def test_a_wiped_controller_catches_up_and_may_lead() -> None:
    rig = Rig({**THREE, 4: "broker"}).start()
    rig.create_topic(4, "t")
    standby = next(n for n in THREE if n != active(rig))
    rig[standby].kill()
    rig[standby].format()
    rig[standby].start()
    rig.until(lambda: "t" in rig[standby].controller.image.topics_by_name)
    rig.pass_time(3_000)
    for node_id in THREE:
        if node_id != standby and rig[standby].controller.quorum.is_active is False:
            rig[node_id].kill()
            rig.pass_time(8_000)
            rig[node_id].start()
            rig.pass_time(3_000)
    assert "t" in rig[active(rig)].controller.image.topics_by_name


def test_a_controller_that_leaves_hands_over_before_its_files_are_closed() -> None:
    rig = Rig(THREE).start()
    leader = active(rig)
    rig[leader].run(rig[leader].controller.shutdown(rig.now_ms))
    rig.until(lambda: rig[leader].is_stopped, 6_000)
    rig[leader].node = None
    began_ms = rig.now_ms
    next_active(rig, leader)
    assert rig.now_ms - began_ms < 1_500, "nobody waited for a fetch timeout"


def test_a_controller_alone_in_its_quorum_leads_without_a_network() -> None:
    rig = Rig({1: "controller"})
    rig[1].start()
    assert rig.until(lambda: rig.active() == 1) == 0
    assert rig.sent == []
    rig[1].run(rig[1].controller.shutdown(rig.now_ms))
    assert rig[1].is_stopped


def test_three_combined_nodes_lose_the_active_one_and_go_on() -> None:
    both = "broker,controller"
    rig = Rig({1: both, 2: both, 3: both}).start()
    leader = active(rig)
    other = next(n for n in (1, 2, 3) if n != leader)
    assert rig.create_topic(leader, "at-the-leader").error_code == 0
    assert rig.create_topic(other, "elsewhere").error_code == 0
    rig[leader].kill()
    assert rig.create_topic(other, "after").error_code == 0
    again = next_active(rig, leader)
    rig.until(lambda: rig[again].broker.image.brokers[leader].fenced, 2 * SESSION_MS)
    rig[leader].start()
    rig.until(lambda: rig[leader].is_running)
    assert not rig[again].broker.image.brokers[leader].fenced


# ------------------------------------------------------------------------------------------ fencing


def fenced(rig: Rig) -> list[int]:
    brokers = rig[active(rig)].controller.image.brokers
    return [n for n in sorted(brokers) if brokers[n].fenced]


def test_a_broker_that_fell_silent_is_fenced_when_its_session_is_over_and_not_before() -> None:
    rig = Rig({**THREE, 4: "broker", 5: "broker"}).start()
    rig[4].kill()
    rig.pass_time(SESSION_MS - 2_500)  # it was heard at most one heartbeat before
    assert fenced(rig) == []
    rig.until(lambda: fenced(rig) == [4], 5_500)
    rig.pass_time(2 * SESSION_MS)
    assert fenced(rig) == [4], "who beats stays"


def test_brokers_that_fell_silent_are_fenced_one_by_one_the_longest_silent_first() -> None:
    """I6: the elections of one are seen by the decision about the next, and both are of one look."""
    rig = Rig({**THREE, 4: "broker", 5: "broker", 6: "broker"}).start()
    order: list[tuple[int, int]] = []
    controller = rig[active(rig)].controller

    def watch(delta: Any, image: Any, now_ms: int) -> list[Any]:
        order.extend((n, now_ms) for n in delta.brokers if image.brokers[n].fenced)
        return []

    reported = controller.image_published
    controller.image_published = lambda *news: watch(*news) + reported(*news)  # type: ignore[method-assign]
    rig.cut.update({(node_id, n) for n in THREE for node_id in (4, 5)})
    contacts = controller.controller._brokers._contact_ms
    contacts[4], contacts[5] = rig.now_ms - 2 * SESSION_MS, rig.now_ms - 3 * SESSION_MS
    rig.until(lambda: len(order) == 2, SESSION_MS)
    assert [node_id for node_id, _ in order] == [5, 4]
    assert order[1][1] - order[0][1] < 100, "the next one does not wait for the next look"


def test_a_new_controller_gives_every_broker_a_full_session() -> None:
    """I7: what the last one had heard is not known; nobody is fenced for that."""
    rig = Rig({**THREE, 4: "broker"}).start()
    leader = active(rig)
    rig[4].kill()
    rig.pass_time(SESSION_MS - 3_000)
    rig[leader].kill()
    next_active(rig, leader)
    rig.pass_time(SESSION_MS - 1_000)
    assert fenced(rig) == []
    rig.until(lambda: fenced(rig) == [4], 4_000)


def test_a_controller_that_is_no_longer_active_fences_nobody() -> None:
    rig = Rig({**THREE, 4: "broker"}).start()
    leader = active(rig)
    rest = [n for n in THREE if n != leader]
    rig.cut.update({(leader, n) for n in rest} | {(n, leader) for n in rest} | {(4, leader)})
    rig.until(lambda: not rig[leader].controller.quorum.is_active, 10_000)
    assert ("controller", "fencing") not in rig[leader].timers
    rig.pass_time(3 * SESSION_MS)
    assert not rig[leader].controller.image.brokers[4].fenced


# -------------------------------------------------------------------------------------- forwarding


def test_a_client_waits_for_the_next_controller_and_never_learns_of_it() -> None:
    rig = Rig({**THREE, 4: "broker"}).start()
    rig[active(rig)].kill()
    asked_ms = rig.now_ms
    assert rig.create_topic(4, "t").error_code == 0
    assert rig.now_ms - asked_ms > 500, "there was an election in between"


def test_a_client_is_notified_when_nobody_decides_in_its_time() -> None:
    rig = Rig({**THREE, 4: "broker"}).start()
    for node_id in THREE:
        rig[node_id].kill()
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    asked_ms = rig.now_ms
    found = rig.ask(4, CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 7)
    assert found.topics[0].error_code == Code.REQUEST_TIMED_OUT
    assert 5_000 <= rig.now_ms - asked_ms < 5_500


def test_a_standby_controller_sends_its_clients_to_the_active_one() -> None:
    """KIP-919: who asks a controller directly finds out; only brokers pass things on."""
    rig = Rig({**THREE, 4: "broker"}).start()
    standby = next(n for n in THREE if n != active(rig))
    made = rig.create_topic(standby, "t", controller=True)
    assert made.error_code == Code.NOT_CONTROLLER
    made = rig.create_topic(active(rig), "t", controller=True)
    assert made.error_code == 0


def test_a_broker_that_believes_in_the_old_controller_asks_again_elsewhere() -> None:
    """Method: the broker's fetches are cut off, so that it hears late of the new leader."""
    rig = Rig({**THREE, 4: "broker"}).start()
    leader = active(rig)
    rest = [n for n in THREE if n != leader]
    rig.cut.update({(leader, n) for n in rest} | {(n, leader) for n in rest})
    rig.until(lambda: not rig[leader].controller.quorum.is_active, 10_000)
    rig.until(lambda: any(rig[n].controller.quorum.is_active for n in rest), 10_000)
    assert rig.create_topic(4, "t").error_code == 0
    assert any(isinstance(request, EnvelopeRequest) for _, _, request in rig.sent)


def test_what_clients_create_without_saying_so_goes_to_the_controller_too() -> None:
    rig = Rig({**THREE, 4: "broker"}).start()
    wanted = [MetadataRequestTopic(name="auto")]
    rig.ask(4, MetadataRequest(topics=wanted, allow_auto_topic_creation=True), 12)
    rig.until(lambda: rig[4].broker.image.topic("auto") is not None)
    rig.ask(4, FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    rig.until(lambda: rig[4].broker.image.topic(OFFSETS_TOPIC) is not None)


def test_while_nobody_decides_a_topic_created_by_the_way_has_no_leader_yet() -> None:
    rig = Rig({**THREE, 4: "broker"}).start()
    for node_id in THREE:
        rig[node_id].kill()
    wanted = [MetadataRequestTopic(name="auto")]
    found = rig.ask(4, MetadataRequest(topics=wanted, allow_auto_topic_creation=True), 12)
    assert found.topics[0].error_code == Code.LEADER_NOT_AVAILABLE


def test_producers_of_two_brokers_never_get_one_id() -> None:
    rig = Rig({**THREE, 4: "broker", 5: "broker"}).start()
    ids = [
        rig.ask(node_id, InitProducerIdRequest(transactional_id=None), 4).producer_id
        for node_id in (4, 5, 4, 5)
    ]
    assert len(dict.fromkeys(ids)) == 4
    assert min(ids) >= 0


# ----------------------------------------------------------------------------------------- leaving


def test_a_broker_leaves_when_the_controller_took_away_what_it_leads() -> None:
    rig = Rig({**THREE, 4: "broker", 5: "broker"}).start()
    rig.create_topic(4, "t")
    rig.until(lambda: rig[4].broker.image.topic("t") is not None)
    rig[4].run(rig[4].broker.shutdown(rig.now_ms))
    assert rig.until(lambda: rig[4].is_stopped) < 2_000
    assert rig[active(rig)].controller.image.brokers[4].in_controlled_shutdown or fenced(rig) == [4]
    rig[4].node = None
    rig[4].fs = rig[4].fs.crash(rig[4].rng, keep="none")
    rig[4].start()
    rig.until(lambda: rig[4].is_running)


def test_a_broker_whose_controllers_decide_nothing_leaves_after_a_session() -> None:
    """They are there, and may agree on one of them again: to leave before that strands what is led here."""
    rig = Rig({**THREE, 4: "broker"}).start()
    rig.cut = {(one, other) for one in THREE for other in THREE}
    rig.pass_time(5_000)
    assert rig.active() is None
    rig[4].run(rig[4].broker.shutdown(rig.now_ms))
    assert SESSION_MS <= rig.until(lambda: rig[4].is_stopped) < SESSION_MS + 6_000


@pytest.mark.parametrize("gone_ms", [0, 10_000])
def test_a_broker_whose_controllers_are_gone_does_not_wait_a_session(gone_ms: int) -> None:
    rig = Rig({**THREE, 4: "broker"}).start()
    for node_id in THREE:
        rig[node_id].kill()
    rig.pass_time(gone_ms)
    rig[4].run(rig[4].broker.shutdown(rig.now_ms))
    assert 1_000 <= rig.until(lambda: rig[4].is_stopped) < 4_000


def test_three_combined_nodes_that_stop_at_once_all_hand_over_and_go() -> None:
    rig = Rig(BOTH).start()
    for node_id in BOTH:
        assert rig.create_topic(node_id, f"t{node_id}", replicas=3).error_code == 0
    rig.pass_time(2_000)
    for node_id in BOTH:
        rig[node_id].run(rig[node_id].broker.shutdown(rig.now_ms))

    def are_gone() -> bool:
        for node_id in BOTH:
            if rig[node_id].is_stopped:
                rig[node_id].node = None  # its process has ended
        return all(rig[node_id].node is None for node_id in BOTH)

    image = rig[active(rig)].broker.image
    assert not any(broker.fenced for broker in image.brokers.values())
    # A request to a process that has just ended is lost here for its whole two seconds.
    assert rig.until(are_gone) < 2_500, "nobody waited for a session, nor for a successor"


def test_a_controller_does_not_wait_for_ever_for_a_broker_that_died_while_it_left() -> None:
    rig = Rig({**THREE, 4: "broker", 5: "broker"}).start()
    rig.create_topic(4, "t", partitions=2, replicas=2)
    leader = active(rig)
    rig.cut = {(5, leader)}
    rig[4].run(rig[4].broker.shutdown(rig.now_ms))
    rig.until(lambda: rig[leader].controller.image.brokers[4].in_controlled_shutdown)
    rig[4].kill()
    rig[leader].run(rig[leader].controller.shutdown(rig.now_ms))
    assert 2_000 <= rig.until(lambda: rig[leader].is_stopped) < 3_000


def test_the_last_of_three_combined_nodes_stops_without_the_others() -> None:
    """Two were killed: nobody can let this one go, and nobody will."""
    rig = Rig(BOTH).start()
    last = active(rig)
    for node_id in BOTH:
        if node_id != last:
            rig[node_id].kill()
    rig[last].run(rig[last].broker.shutdown(rig.now_ms))
    assert rig.until(lambda: rig[last].is_stopped) < 4_500


def test_a_broker_that_shall_stop_before_it_is_registered_stops_at_once() -> None:
    rig = Rig({**THREE, 4: "broker"})
    rig[4].start()
    rig.pass_time(500)
    rig[4].run(rig[4].broker.shutdown(rig.now_ms))
    assert rig[4].is_stopped
    rig.pass_time(10_000)


def test_an_operator_is_notified_once_that_the_controller_is_silent() -> None:
    rig = Rig({**THREE, 4: "broker"}).start()
    rig.cut.update({(4, n) for n in THREE})
    rig.pass_time(20_000)
    assert len([line for line in rig[4].warnings if "does not answer" in line]) == 1
    rig.cut.clear()
    rig.until(lambda: not rig[4].broker.image.brokers[4].fenced and fenced(rig) == [])


def test_a_lost_answer_to_the_registration_gives_no_second_epoch() -> None:
    """I3: the same incarnation asks again, and gets what it had."""
    rig = Rig({**THREE, 4: "broker"})
    for node_id in THREE:
        rig[node_id].start()
    rig.until(lambda: rig.active() is not None)
    dropped: list[int] = []
    send = rig.send

    def lossy(asker: Any, effect: Send) -> None:
        if isinstance(effect.request, BrokerRegistrationRequest) and not dropped:
            dropped.append(1)
            send(asker, replace(effect, then=lambda answer, now_ms: []))
            lost = Unanswered(why="the answer was lost")
            rig.at(rig.now_ms + 50, lambda serial: asker.resume(asker.life, effect.then, lost))
            return
        send(asker, effect)

    def written() -> list[int]:
        active = rig.active()
        brokers = rig[active].controller.image.brokers if active is not None else {}
        return [brokers[4].epoch] if 4 in brokers else []

    rig.send = lossy  # type: ignore[method-assign]
    rig[4].start()
    rig.until(written)
    first = written()
    rig.until(lambda: rig[4].is_running)
    assert written() == first
    registered = [r for _, to, r in rig.sent if isinstance(r, BrokerRegistrationRequest)]
    assert len(registered) == 2
    assert rig[4].broker.broker_epoch == rig[4].broker.image.brokers[4].epoch
