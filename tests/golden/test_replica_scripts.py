"""A leader and its ISR as text: each script in `replica/` is a story of fetches, proposals and answers.

The leader is broker 1 of replicas 1, 2 and 3. What is printed is the partition after the command: the ISR as
the controller has it, the maximal one where it differs, what is proposed, and the high watermark of the log.
"""

from pathlib import Path

import pytest

from firnline.base.errors import Code, KafkaError
from firnline.base.replicas import IsrAnswer
from firnline.config.topic import TopicConfig
from firnline.replica.isr import BrokerFact, NoBrokers
from firnline.replica.partition import ACKS_ALL, Partition
from tests.datadriven import run_script
from tests.worlds.list_log import ListLog, batch, log_of

SCRIPTS = sorted((Path(__file__).parent / "replica").glob("*.txt"))
CODES = {code.name: code for code in Code}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_leader_does_as_recorded(script: Path) -> None:
    run_script(script, Story())


def test_there_are_stories() -> None:
    assert len(SCRIPTS) >= 3


class Image(NoBrokers):
    """What the leader's image says."""

    own_epoch = 100

    def __init__(self) -> None:
        self.facts: dict[int, BrokerFact] = {}

    def fact(self, broker_id: int) -> BrokerFact | None:
        return self.facts.get(broker_id)


class Story:
    """Runs the commands of one script on one partition."""

    def __init__(self) -> None:
        self.image = Image()
        self.now_ms = 1_000_000
        self.p: Partition

    def __call__(self, text: str) -> str:
        verb, *words = text.split()
        named = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        reported = getattr(self, f"do_{verb}")(plain, named)
        return reported if isinstance(reported, str) else self.state()

    def state(self) -> str:
        p = self.p
        parts = [f"isr {_ids(p.isr)}"]
        if p.maximal_isr != p.isr:
            parts.append(f"maximal {_ids(p.maximal_isr)}")
        if p.proposed is not None:
            members = " ".join(f"{b}:{epoch}" for b, epoch in p.proposed.new_isr)
            parts.append(f"proposed {members} at {p.proposed.partition_epoch}")
        if p.unanswered_proposals:
            members = ["+".join(str(b) for b, _ in copy.new_isr) for copy in p.unanswered_proposals]
            parts.append(f"may still come {' '.join(members)}")
        log = log_of(p)
        parts.append(f"watermark {log.high_watermark} of {log.log_end_offset}")
        return ", ".join(parts)

    def do_lead(self, plain: list[str], named: dict[str, str]) -> None:
        """ISR; min= for min.insync.replicas. The others are registered with epochs 200 and 300."""
        log = ListLog()
        log.config = TopicConfig(min_insync_replicas=int(named.get("min", "1")))
        self.image.facts = {2: BrokerFact(200, True), 3: BrokerFact(300, True)}
        self.p = Partition(
            log,  # type: ignore[arg-type]
            node_id=1,
            fsync_rule="auto",
            brokers=self.image,
        )
        self.do_metadata(plain, {"leader": "1", "epoch": "3", "version": "7"})

    def do_metadata(self, plain: list[str], named: dict[str, str]) -> None:
        """ISR; leader=, epoch=, version= where they change."""
        p = self.p
        p.update(
            leader_id=int(named.get("leader", p.leader_id)),
            leader_epoch=int(named.get("epoch", p.leader_epoch)),
            partition_epoch=int(named.get("version", p.partition_epoch)),
            replicas=(1, 2, 3),
            isr=tuple(int(each) for each in plain[0].split(",")),
            now_ms=self.now_ms,
        )

    def do_append(self, plain: list[str], named: dict[str, str]) -> str | None:
        """Number of records; acks=all."""
        acks = ACKS_ALL if named.get("acks") == "all" else 1
        done = self.p.append(batch(int(plain[0])), acks=acks, now_ms=self.now_ms)
        return done.code.name if isinstance(done, KafkaError) else None

    def do_fetch(self, plain: list[str], named: dict[str, str]) -> str | None:
        """Broker, offset; epoch= of the broker, where not the usual one."""
        broker, offset = (int(word) for word in plain)
        epoch = int(named.get("epoch", broker * 100))
        refused = self.p.follower_refusal(
            broker, leader_epoch=self.p.leader_epoch, broker_epoch=epoch
        )
        if refused is not None:
            return refused.code.name
        self.p.follower_fetched(broker, offset, self.now_ms, broker_epoch=epoch, log_start_offset=0)
        return None

    def do_broker(self, plain: list[str], named: dict[str, str]) -> str:
        """Broker, epoch; gone, fenced or leaving: what our image says of it now."""
        broker, epoch = int(plain[0]), int(named.get("epoch", int(plain[0]) * 100))
        if "gone" in plain:
            del self.image.facts[broker]
            return "image: gone"
        is_active = not {"fenced", "leaving"} & set(plain)
        self.image.facts[broker] = BrokerFact(epoch, is_active)
        return f"image: {broker}:{epoch} {'active' if is_active else 'not active'}"

    def do_wait(self, plain: list[str], named: dict[str, str]) -> str:
        self.now_ms += int(plain[0])
        return f"now {self.now_ms}"

    def do_shrink(self, plain: list[str], named: dict[str, str]) -> None:
        """The periodic look."""
        self.p.shrink(self.now_ms)

    def do_silence(self, plain: list[str], named: dict[str, str]) -> None:
        """What is proposed was sent, and nobody answered: it will be sent again."""
        assert self.p.proposed is not None, "nothing is proposed"
        self.p.unanswered(self.p.proposed)

    def do_look(self, plain: list[str], named: dict[str, str]) -> None:
        """The periodic look, with all it does."""
        self.p.look(self.now_ms)

    def do_answer(self, plain: list[str], named: dict[str, str]) -> str:
        """ok, or the name of an error: what the controller says to the proposal; same: it is so already."""
        change = self.p.proposed
        assert change is not None, "nothing is proposed"
        outcome: IsrAnswer | KafkaError
        if plain[0] == "ok":
            isr = tuple(broker for broker, _ in change.new_isr)
            outcome = IsrAnswer(1, change.leader_epoch, isr, change.partition_epoch + 1)
        elif plain[0] == "same":
            outcome = IsrAnswer(1, change.leader_epoch, self.p.isr, change.partition_epoch)
        else:
            outcome = KafkaError(CODES[plain[0]])
        again = self.p.altered(change, outcome, self.now_ms) is None
        return f"{'to be asked again; ' if again else ''}{self.state()}"


def _ids(isr: tuple[int, ...]) -> str:
    return ",".join(str(each) for each in isr)
