"""`firnline doctor` finds what `firnline cluster status` finds: nodes that are silent, or complain."""

from firnline.api.health import KINDS
from firnline.cli import doctor
from firnline.cli.operations.checkup_nodes import ELSEWHERE, REMEDIES, look_at_nodes, ways_back
from firnline.client.probes import Probe
from firnline.client.quorum import QuorumInfo
from firnline.client.status import ALIVE, FENCED, NO_ANSWER, BrokerState, ClusterState, Survey
from firnline.protocol.messages.k32003_cluster_status import (
    ClusterStatusProblem,
    ClusterStatusResponse,
)

QUORUM = QuorumInfo("c", 1, 1, 0, 0, [])
NOBODY_RULES = "no controller is active (see `firnline quorum status`)"


def broker(state: str, *, leads: int = 0, replicas: int = 0) -> BrokerState:
    return BrokerState(7, "h:9092", None, state, ALIVE, 1, leads, replicas, 0, 0)


def surveyed(
    of: BrokerState, probe: Probe, *problems: str, quorum: QuorumInfo | None = QUORUM
) -> list[tuple[str, str, str]]:
    state = ClusterState(
        "c", quorum is not None, quorum, {}, [of], 0, 0, 0, 0, 0, 0, list(problems), []
    )
    found = list(look_at_nodes(Survey(state, {of.broker_id: probe})))
    assert all(each.remedy for each in found)
    return [(each.kind, each.where, each.what) for each in found]


def test_every_problem_of_a_broker_has_what_mends_it_or_is_found_elsewhere() -> None:
    assert set(KINDS) == REMEDIES.keys() | ELSEWHERE
    assert not REMEDIES.keys() & ELSEWHERE


def test_what_a_broker_says_of_itself_is_found() -> None:
    """A full disk, on which every append failed, was `nothing is wrong`."""
    rows = [ClusterStatusProblem(kind=kind, what=f"{kind}!", see="`df`") for kind in KINDS]
    status = ClusterStatusResponse(problems=rows)
    found = surveyed(broker(ALIVE), Probe(None, status))
    assert found == [(kind, "broker 7", f"{kind}!") for kind in KINDS if kind not in ELSEWHERE]
    only_t = Survey(state_of(broker(ALIVE)), {7: Probe(None, status)})
    assert list(look_at_nodes(only_t, ["t"])) == []
    later = ClusterStatusResponse(
        problems=[ClusterStatusProblem(kind="of-a-later-release", what="w", see="`df`")]
    )
    assert surveyed(broker(ALIVE), Probe(None, later)) == [("of-a-later-release", "broker 7", "w")]
    assert surveyed(broker(ALIVE), Probe(None)) == [], "Kafka's brokers say nothing of themselves"


def test_a_broker_that_is_silent_is_told_from_one_that_is_gone() -> None:
    (dead,) = look_at_nodes(
        Survey(state_of(broker(NO_ANSWER, leads=1)), {7: Probe("Connection refused")})
    )
    assert dead.what == (
        "it does not answer at h:9092: Connection refused; it was the leader of 1 partition"
    )
    assert dead.remedy.startswith("start it: no process listens there")
    (hangs,) = look_at_nodes(Survey(state_of(broker(NO_ANSWER)), {7: Probe("no answer in time")}))
    assert "kill -CONT" in hangs.remedy


def state_of(of: BrokerState) -> ClusterState:
    return ClusterState("c", True, QUORUM, {}, [of], 0, 0, 0, 0, 0, 0, [], [])


def test_a_fenced_broker_is_found_once() -> None:
    """With replicas it is found with the partitions that miss it."""
    assert surveyed(broker(FENCED, replicas=1), Probe("x")) == []
    assert surveyed(broker(FENCED), Probe("x")) == [
        ("broker-not-alive", "broker 7", "it is fenced")
    ]


def test_controllers_are_found() -> None:
    lines = (NOBODY_RULES, "controller 2 does not answer: refused")
    assert surveyed(broker(ALIVE), Probe(None), *lines, quorum=None) == [
        (
            "no-controller",
            "controllers",
            "no controller is active, so nothing can be changed; controller 2 does not answer: refused",
        )
    ]
    silent = "controller 3 is silent (see `firnline quorum status`)"
    assert surveyed(broker(ALIVE), Probe(None), silent) == [("controller", "controllers", silent)]
    of_a_topic = Survey(state_of(broker(ALIVE))._replace(problems=[silent]), {7: Probe(None)})
    assert list(look_at_nodes(of_a_topic, ["t"])) == []


def test_partitions_that_cannot_be_compared_are_one_row() -> None:
    report = doctor._Report()
    for number in range(1000):
        report.add("not-compared", f"t-{number}", "broker 1 does not answer")
    report.add("not-compared", "t-7", "broker 2: no")
    report.add("replicas-differ", "t-1", "x")
    report.add("replicas-differ", "t-2", "x")
    assert [(each.kind, each.where) for each in report.findings] == [
        ("not-compared", "t-0, t-1, t-2, t-3, t-4 and 995 more"),
        ("not-compared", "t-7"),
        ("replicas-differ", "t-1"),
        ("replicas-differ", "t-2"),
    ]


def test_a_fenced_broker_whose_process_runs_is_not_to_be_started() -> None:
    """One that was stopped for longer than its session, or hangs, was to be started."""
    rows = [broker(FENCED, replicas=1), broker(ALIVE)._replace(broker_id=8)]
    state = state_of(rows[0])._replace(brokers=rows)

    def back(why: str | None) -> str:
        (found,) = ways_back(Survey(state, {7: Probe(why), 8: Probe(None)})).items()
        assert found[0] == 7
        return found[1]

    assert back("Connection refused").startswith("start it: ")
    assert "kill -CONT" in back("no answer in time")
    assert back(None).startswith("its process runs and answers")
