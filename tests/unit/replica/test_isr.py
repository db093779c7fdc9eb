"""A leader and its in-sync replicas: who joins, who leaves, what counts meanwhile, what an answer means.

The leader is broker 1; the others are 2 and 3. Epochs of brokers are a hundred times their ids.
"""

import pytest

from firnline.base.errors import Code, KafkaError
from firnline.base.replicas import IsrAnswer, IsrChange, IsrMember
from firnline.config.topic import TopicConfig
from firnline.replica.isr import BrokerFact
from firnline.replica.partition import ACKS_ALL, Partition
from firnline.replica.read import Local
from tests.worlds.list_log import NODE_ID, ListLog, batch, log_of, partition

LAG_MS = 30_000


class Brokers:
    """What the image of the leader says of the others."""

    lag_max_ms = LAG_MS
    own_epoch = 100

    def __init__(self) -> None:
        self.facts = {2: BrokerFact(200, True), 3: BrokerFact(300, True)}

    def fact(self, broker_id: int) -> BrokerFact | None:
        return self.facts.get(broker_id)


class Lead:
    """A led partition, its image, and a clock."""

    def __init__(self, isr: tuple[int, ...] = (1,), *, min_isr: int = 1, records: int = 0) -> None:
        self.brokers = Brokers()
        log = ListLog()
        log.config = TopicConfig(min_insync_replicas=min_isr)
        if records:
            log.append_as_leader(batch(records), leader_epoch=0, now_ms=0)
        self.p = Partition(
            log,  # type: ignore[arg-type]
            node_id=NODE_ID,
            fsync_rule="auto",
            brokers=self.brokers,
        )
        self.now_ms = 1_000_000
        self.news(isr, leader_epoch=3, partition_epoch=7)

    def news(
        self, isr: tuple[int, ...], *, leader_epoch: int = 3, partition_epoch: int, leader: int = 1
    ) -> None:
        """Metadata of the partition."""
        self.p.update(
            leader_id=leader,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            replicas=(1, 2, 3),
            isr=isr,
            now_ms=self.now_ms,
        )

    def append(self, records: int = 1) -> None:
        done = self.p.append(batch(records), acks=1, now_ms=self.now_ms)
        assert not isinstance(done, KafkaError), done

    def fetch(self, broker: int, offset: int, *, epoch: int | None = None) -> KafkaError | None:
        """A follower's Fetch, as the serving side handles it."""
        broker_epoch = 100 * broker if epoch is None else epoch
        refused = self.p.follower_refusal(broker, leader_epoch=3, broker_epoch=broker_epoch)
        if refused is None:
            self.p.follower_fetched(
                broker, offset, self.now_ms, broker_epoch=broker_epoch, log_start_offset=0
            )
        return refused

    def answer(self, outcome: IsrAnswer | KafkaError) -> object:
        assert self.p.proposed is not None, "nothing is under way"
        return self.p.altered(self.p.proposed, outcome, self.now_ms)

    def agree(self) -> None:
        """The controller takes the proposal."""
        assert self.p.proposed is not None
        isr = tuple(broker for broker, _ in self.p.proposed.new_isr)
        self.answer(IsrAnswer(1, 3, isr, self.p.partition_epoch + 1))

    @property
    def wanted(self) -> tuple[int, ...] | None:
        change = self.p.proposed
        return None if change is None else tuple(broker for broker, _ in change.new_isr)

    @property
    def high_watermark(self) -> int:
        return log_of(self.p).high_watermark


# ----------------------------------------------------------------------------------------- joining


def test_a_follower_that_caught_up_is_proposed_with_the_epochs_that_were_reported() -> None:
    lead = Lead()
    lead.append(5)
    lead.fetch(2, 5)
    assert lead.p.proposed == IsrChange(
        lead.p.topic_id, 0, 3, 7, (IsrMember(1, 100), IsrMember(2, 200))
    )


def test_a_follower_below_the_watermark_is_not_proposed() -> None:
    lead = Lead()
    lead.append(5)
    assert lead.high_watermark == 5
    lead.fetch(2, 4)
    assert lead.wanted is None


def test_a_follower_below_the_start_of_the_leader_epoch_is_not_proposed() -> None:
    """X25: what lies between the watermark and that start may be committed, and it has none of it."""
    lead = Lead((1, 3), records=10)
    assert (lead.high_watermark, lead.p.epoch_start_offset) == (0, 10)
    lead.fetch(2, 9)
    assert lead.wanted is None
    lead.fetch(2, 10)
    assert lead.wanted == (1, 2, 3)


def test_what_was_fetched_in_an_older_leader_epoch_brings_nobody_into_the_isr() -> None:
    lead = Lead((1, 3), records=10)
    lead.append(5)
    lead.fetch(2, 15)
    lead.news((1, 3), leader_epoch=4, partition_epoch=8)
    assert lead.p.followers[2].end_offset == -1
    assert lead.p.followers[2].broker_epoch == 200, "we led before: its epoch is known (I13)"


def test_a_new_leader_knows_no_epoch_of_a_follower() -> None:
    lead = Lead((1, 2))
    lead.fetch(2, 0)
    lead.news((2,), leader=2, leader_epoch=4, partition_epoch=8)
    lead.news((1, 2), leader=1, leader_epoch=5, partition_epoch=9)
    assert lead.p.followers[2].broker_epoch is None


@pytest.mark.parametrize(
    ("fact", "why"),
    [
        (BrokerFact(201, True), "the image knows a newer incarnation"),
        (BrokerFact(199, True), "the image does not know this incarnation yet"),
        (BrokerFact(200, False), "fenced, or on its way out"),
        (None, "not registered"),
    ],
)
def test_who_may_not_be_in_an_isr_is_not_proposed(fact: BrokerFact | None, why: str) -> None:
    """Race 5 and X19: the epoch that counts is the one in the Fetch, against our image."""
    lead = Lead()
    if fact is None:
        del lead.brokers.facts[2]
    else:
        lead.brokers.facts[2] = fact
    lead.fetch(2, 0)
    assert lead.wanted is None, why


def test_the_epoch_is_that_of_the_fetch_and_not_that_of_the_image() -> None:
    """X19: the image may already know the incarnation that has lost the records."""
    lead = Lead((1, 2))
    lead.fetch(2, 0)
    lead.brokers.facts[2] = BrokerFact(999, True)
    lead.fetch(3, 0)
    assert lead.p.proposed is not None
    assert lead.p.proposed.new_isr == ((1, 100), (2, 200), (3, 300))


def test_a_follower_of_an_old_protocol_is_proposed_without_an_epoch() -> None:
    lead = Lead()
    lead.fetch(2, 0, epoch=-1)
    assert lead.p.proposed is not None
    assert lead.p.proposed.new_isr == ((1, 100), (2, -1))


def test_a_member_that_did_not_fetch_yet_is_stated_without_an_epoch() -> None:
    """I17: it was in the ISR before us, so the controller knows it."""
    lead = Lead((1, 2))
    lead.fetch(3, 0)
    assert lead.p.proposed is not None
    assert lead.p.proposed.new_isr == ((1, 100), (2, -1), (3, 300))


def test_one_change_is_under_way_at_a_time() -> None:
    lead = Lead()
    lead.fetch(2, 0)
    first = lead.p.proposed
    lead.fetch(3, 0)
    assert lead.p.proposed is first
    lead.agree()
    lead.fetch(3, 0)
    assert lead.wanted == (1, 2, 3)


# --------------------------------------------------------------------- a Fetch of a dead incarnation


def test_a_late_fetch_of_a_dead_incarnation_is_refused_without_a_trace() -> None:
    """Race 6 and X20: it says that B has records which the new incarnation may have lost."""
    lead = Lead((1, 2))
    lead.append(5)
    lead.fetch(2, 3)
    lead.brokers.facts[2] = BrokerFact(201, True)
    before = {name: getattr(lead.p.followers[2], name) for name in lead.p.followers[2].__slots__}
    lead.now_ms += 5
    refused = lead.fetch(2, 5, epoch=200)
    assert refused is not None
    assert refused.code == Code.NOT_LEADER_OR_FOLLOWER
    after = {name: getattr(lead.p.followers[2], name) for name in lead.p.followers[2].__slots__}
    assert after == before
    assert lead.high_watermark == 3


def test_the_new_incarnation_is_taken_before_the_image_knows_it() -> None:
    lead = Lead((1, 2))
    assert lead.fetch(2, 0, epoch=201) is None
    assert lead.p.followers[2].broker_epoch == 201


def test_a_replica_that_we_know_nothing_of_shall_ask_again() -> None:
    lead = Lead()
    refused = lead.p.follower_refusal(9, leader_epoch=3, broker_epoch=900)
    assert refused is not None
    assert refused.code == Code.UNKNOWN_LEADER_EPOCH
    refused = lead.p.follower_refusal(9, leader_epoch=-1, broker_epoch=900)
    assert refused is not None
    assert refused.code == Code.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("epoch", "code"), [(2, Code.FENCED_LEADER_EPOCH), (4, Code.UNKNOWN_LEADER_EPOCH)]
)
def test_a_follower_of_another_leader_epoch_is_refused(epoch: int, code: Code) -> None:
    lead = Lead((1, 2))
    refused = lead.p.follower_refusal(2, leader_epoch=epoch, broker_epoch=200)
    assert refused is not None
    assert refused.code == code


# ----------------------------------------------------------------------------------------- leaving


def test_a_silent_follower_is_proposed_to_leave() -> None:
    lead = Lead((1, 2, 3))
    lead.append()
    lead.now_ms += LAG_MS + 1
    lead.fetch(3, 1)
    lead.p.shrink(lead.now_ms)
    assert lead.wanted == (1, 3)


def test_a_follower_has_the_time_of_a_lag_to_say_something() -> None:
    lead = Lead((1, 2))
    lead.append()
    lead.now_ms += LAG_MS
    lead.p.shrink(lead.now_ms)
    assert lead.wanted is None


def test_a_new_epoch_of_the_same_leader_waits_for_nobody_outside_of_the_isr() -> None:
    """Who was put out because it was slow is not about to catch up: appends would wait for it for a lag."""
    lead = Lead((1, 2))
    lead.append(5)
    lead.fetch(2, 5)
    lead.fetch(3, 2)  # too slow, and known by its broker epoch
    assert lead.high_watermark == 5
    lead.now_ms += LAG_MS + 1
    lead.fetch(2, 5)
    lead.news((1, 2), leader_epoch=4, partition_epoch=8)
    lead.append(1)
    lead.p.follower_fetched(2, 6, lead.now_ms, broker_epoch=200, log_start_offset=0)
    assert lead.high_watermark == 6


def test_a_silent_follower_that_has_all_stays() -> None:
    """I20: nothing was written since; it loses nothing."""
    lead = Lead((1, 2))
    lead.append()
    lead.fetch(2, 1)
    lead.now_ms += 10 * LAG_MS
    lead.p.shrink(lead.now_ms)
    assert lead.wanted is None


def test_a_follower_that_is_always_a_little_behind_on_a_busy_partition_stays() -> None:
    lead = Lead((1, 2))
    for _ in range(5):
        end = log_of(lead.p).log_end_offset
        lead.append()
        lead.now_ms += LAG_MS // 2
        lead.fetch(2, end)
    lead.p.shrink(lead.now_ms)
    assert lead.wanted is None


def test_a_follower_that_fetches_and_does_not_catch_up_is_proposed_to_leave() -> None:
    lead = Lead((1, 2))
    for _ in range(5):
        lead.append(10)
        lead.now_ms += LAG_MS // 2
        lead.fetch(2, 1)
    lead.p.shrink(lead.now_ms)
    assert lead.wanted == (1,)


# ------------------------------------------------------------------------- what counts meanwhile


def test_who_is_to_leave_counts_until_the_controller_agrees() -> None:
    """X22: refused, the watermark would have passed what a member of the ISR does not have."""
    lead = Lead((1, 2))
    lead.append(5)
    lead.now_ms += LAG_MS + 1
    lead.p.shrink(lead.now_ms)
    lead.append(1)
    assert (lead.wanted, lead.high_watermark) == ((1,), 0)
    lead.agree()
    assert lead.high_watermark == 6


def test_who_is_to_join_counts_at_once() -> None:
    """X23: the controller may have agreed, and elect it, before we hear of it."""
    lead = Lead()
    lead.append(5)
    lead.fetch(2, 5)
    lead.append(1)
    assert lead.wanted == (1, 2)
    lead.now_ms += 10 * LAG_MS
    lead.append(1)
    assert lead.high_watermark == 5
    lead.fetch(2, 7)
    assert lead.high_watermark == 7


def test_the_watermark_waits_for_one_that_is_about_to_catch_up() -> None:
    """I21: otherwise it runs away from a follower of a busy partition, which never joins."""
    lead = Lead((1, 2))
    lead.append(5)
    lead.fetch(3, 5)
    lead.answer(KafkaError(Code.INELIGIBLE_REPLICA))
    lead.fetch(2, 5)
    lead.append(5)
    lead.fetch(2, 10)
    assert lead.high_watermark == 5
    lead.now_ms += LAG_MS + 1
    lead.fetch(2, 10)
    assert lead.high_watermark == 10


@pytest.mark.parametrize("fact", [BrokerFact(300, False), BrokerFact(301, True), None])
def test_one_that_may_not_join_does_not_hold_the_watermark(fact: BrokerFact | None) -> None:
    """X26: fenced, another incarnation, or gone."""
    lead = Lead((1, 2))
    lead.append(5)
    lead.fetch(3, 5)
    lead.answer(KafkaError(Code.INELIGIBLE_REPLICA))
    if fact is None:
        del lead.brokers.facts[3]
    else:
        lead.brokers.facts[3] = fact
    lead.append(5)
    lead.fetch(2, 10)
    assert lead.high_watermark == 10


def test_the_watermark_stands_while_the_isr_is_too_small() -> None:
    """X26: with min.insync.replicas 2 nothing is committed by one replica."""
    lead = Lead((1, 2), min_isr=2)
    lead.append(5)
    lead.fetch(2, 5)
    assert lead.high_watermark == 5
    lead.news((1,), partition_epoch=8)
    lead.append(5)
    lead.now_ms += 10 * LAG_MS
    lead.append(1)
    assert lead.high_watermark == 5


def test_a_proposal_does_not_make_an_isr_large_enough() -> None:
    """rel-R13: acks=all counts what the controller has, not what we asked for."""
    lead = Lead(min_isr=2)
    lead.fetch(2, 0)
    assert lead.wanted == (1, 2)
    refused = lead.p.append(batch(), acks=ACKS_ALL, now_ms=lead.now_ms)
    assert isinstance(refused, KafkaError)
    assert refused.code == Code.NOT_ENOUGH_REPLICAS


def test_a_topic_that_asks_for_more_replicas_than_it_has_still_commits() -> None:
    p = partition(isr=(1,))
    log_of(p).config = TopicConfig(min_insync_replicas=2)
    p.append(batch(), acks=1, now_ms=0)
    assert log_of(p).high_watermark == 1


def test_an_answer_that_waits_for_a_joining_replica_needs_no_disk() -> None:
    lead = Lead()
    lead.fetch(2, 0)
    lead.append(1)
    assert not lead.p.needs_flush(ACKS_ALL)
    lead.answer(KafkaError(Code.INELIGIBLE_REPLICA))
    assert lead.p.needs_flush(ACKS_ALL)


# --------------------------------------------------------------------------------- what is answered


def test_an_agreed_change_is_committed_with_its_partition_epoch() -> None:
    lead = Lead()
    lead.fetch(2, 0)
    lead.answer(IsrAnswer(1, 3, (1, 2), 8))
    assert (lead.p.isr, lead.p.maximal_isr, lead.p.partition_epoch) == ((1, 2), (1, 2), 8)
    assert lead.p.proposed is None


def test_an_answer_with_the_epoch_we_have_says_that_it_is_so_already() -> None:
    """I9: nothing changed at the controller; without this we would wait for ever."""
    lead = Lead()
    lead.fetch(2, 0)
    lead.answer(IsrAnswer(1, 3, (1, 2), 7))
    assert (lead.p.isr, lead.p.proposed) == ((1, 2), None)


@pytest.mark.parametrize("answer", [IsrAnswer(1, 4, (1, 2), 9), IsrAnswer(1, 3, (1, 2), 6)])
def test_an_answer_of_another_time_changes_nothing(answer: IsrAnswer) -> None:
    lead = Lead()
    lead.fetch(2, 0)
    lead.answer(answer)
    assert (lead.p.isr, lead.p.maximal_isr, lead.p.partition_epoch) == ((1,), (1, 2), 7)


@pytest.mark.parametrize("code", [Code.INELIGIBLE_REPLICA, Code.OPERATION_NOT_ATTEMPTED])
def test_a_refused_change_is_taken_back_and_not_asked_again(code: Code) -> None:
    """X21, races 2 to 4 and 8."""
    lead = Lead()
    lead.append(5)
    lead.fetch(2, 5)
    assert lead.answer(KafkaError(code)) == []
    assert (lead.p.isr, lead.p.maximal_isr, lead.p.proposed) == ((1,), (1,), None)


@pytest.mark.parametrize(
    "code",
    [
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.UNKNOWN_TOPIC_ID,
        Code.FENCED_LEADER_EPOCH,
        Code.INVALID_UPDATE_VERSION,
        Code.INVALID_REQUEST,
        Code.NEW_LEADER_ELECTED,
    ],
)
def test_an_answer_that_only_metadata_explains_leaves_the_change_under_way(code: Code) -> None:
    """X21, X29 and race 11: the change may have been made; taken back, we would count too few."""
    lead = Lead()
    lead.fetch(2, 0)
    assert lead.answer(KafkaError(code)) == []
    assert lead.p.maximal_isr == (1, 2)
    lead.news((1,), partition_epoch=8)
    assert (lead.p.maximal_isr, lead.p.proposed) == ((1,), None)


@pytest.mark.parametrize(
    "code",
    [Code.NOT_CONTROLLER, Code.NETWORK_EXCEPTION, Code.REQUEST_TIMED_OUT, Code.STALE_BROKER_EPOCH],
)
def test_an_answer_that_says_nothing_is_asked_for_again(code: Code) -> None:
    """rel-R7 and race 12: nobody knows whether the change was made."""
    lead = Lead()
    lead.fetch(2, 0)
    assert lead.answer(KafkaError(code)) is None
    assert lead.p.maximal_isr == (1, 2)


def test_a_follower_that_died_on_its_way_into_the_isr_does_not_hold_the_watermark_for_ever() -> (
    None
):
    """Nobody fetches and nobody appends: without a look those who wait for the commit would wait."""
    lead = Lead()
    lead.append(5)
    lead.fetch(2, 5)
    lead.answer(KafkaError(Code.INELIGIBLE_REPLICA))
    lead.append(1)
    notified: list[int] = []
    lead.p.produce_waiters.add(6, lambda now_ms: notified.append(now_ms) or [])
    lead.p.look(lead.now_ms)
    assert (lead.high_watermark, notified) == (5, [])
    lead.now_ms += LAG_MS + 1
    lead.p.look(lead.now_ms)
    assert (lead.high_watermark, notified) == (6, [lead.now_ms])


def test_time_alone_takes_no_proposal_back() -> None:
    lead = Lead()
    lead.fetch(2, 0)
    change = lead.p.proposed
    lead.now_ms += 100 * LAG_MS
    lead.p.shrink(lead.now_ms)
    lead.append()
    assert lead.p.proposed is change
    assert lead.high_watermark == 0


def test_the_same_metadata_again_takes_no_proposal_back() -> None:
    """rel-R7: it is from before the proposal, which may have been taken meanwhile."""
    lead = Lead()
    lead.fetch(2, 0)
    lead.news((1,), partition_epoch=7)
    assert lead.p.maximal_isr == (1, 2)
    lead.append()
    assert lead.high_watermark == 0


def test_newer_metadata_overrides_a_proposal_and_its_answer() -> None:
    lead = Lead()
    lead.fetch(2, 0)
    change = lead.p.proposed
    assert change is not None
    lead.news((1, 3), partition_epoch=8)
    assert (lead.p.maximal_isr, lead.p.proposed) == ((1, 3), None)
    assert lead.p.altered(change, IsrAnswer(1, 3, (1, 2), 8), lead.now_ms) == []
    assert lead.p.isr == (1, 3)


def test_a_deposed_leader_proposes_nothing() -> None:
    lead = Lead((1, 2))
    lead.append()
    lead.now_ms += LAG_MS + 1
    lead.news((2,), leader=2, leader_epoch=4, partition_epoch=8)
    lead.p.shrink(lead.now_ms)
    assert lead.wanted is None


# ------------------------------------------------------------------------------- what a follower reads


def test_a_follower_reads_what_is_not_committed_yet_and_a_consumer_does_not() -> None:
    lead = Lead((1, 2))
    lead.append(5)
    for is_follower, size in ((True, len(log_of(lead.p).batches[0][1])), (False, 0)):
        found = lead.p.read(0, max_bytes=1 << 20, isolation=0, is_follower=is_follower)
        assert isinstance(found, Local)
        assert len(found.records) == size
