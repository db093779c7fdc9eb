"""What `firnline doctor` finds in a running cluster, each with the command that mends it. WORLD.

Partitions, leaders, directories and moves here; groups in `checkup_groups`. A check that the brokers do not
serve, or do not allow, is told apart from a check that found nothing.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from firnline.base.errors import Code, FirnlineError, KafkaError, some_of
from firnline.base.ids import TopicPartition
from firnline.cli.operations.checkup_groups import Trouble, look_at_groups
from firnline.cli.operations.words import count_of
from firnline.cli.show import bytes_of
from firnline.client.admin import Admin
from firnline.client.operations.brokers import Directory, directories
from firnline.client.operations.configs import BROKER_RESOURCE, Resource, describe
from firnline.client.operations.patience import NO_CONTROLLER
from firnline.client.operations.reassignments import Move, list_moves, with_progress

# As leader.imbalance.per.broker.percentage is by default.
_IMBALANCE = 0.1
_MIN_ISR = "min.insync.replicas"
# An election takes a second or two. The doctor has ten minutes, and does not wait for one so long.
_CONTROLLER_S = 5.0
_NO_CONTROLLER = Trouble(
    "no-controller",
    "the cluster",
    "no controller is active: no leader is elected, no topic is made, no ISR changes",
    "start controllers until a majority of them runs; `firnline cluster status` names those that do not"
    " answer",
)
# How long one check may take, and what it watches besides.
_CHECK_S = 5.0


_NO_WAYS: Mapping[int, str] = MappingProxyType({})


class Seen(NamedTuple):
    """What the checks share.

    topics          by name, with their partitions
    alive           the brokers of the metadata that answer
    silent          those that do not: each is a finding already
    has_controller  else nothing can be changed, and metadata is old
    ways_back       by id, what brings a broker back that is not there
    """

    topics: Mapping[str, Any]
    alive: Collection[int]
    silent: Collection[int]
    has_controller: bool
    ways_back: Mapping[int, str]


def check_cluster(
    admin: Admin,
    topics: Collection[str],
    watch_s: float,
    looked: Counter[str],
    *,
    silent: Collection[int] = (),
    has_controller: bool = True,
    ways_back: Mapping[int, str] = _NO_WAYS,
) -> list[Trouble]:
    """Run all checks on some topics, or on all; return what was found.

    A check that gets no answer takes some seconds, and is reported; the others go on.

    watch_s  over how long a lag or a move is watched, if there is one; 0: they are not watched
    looked   how much was looked at is counted here

    silent, has_controller, ways_back: see Seen.
    """
    answer = admin.metadata(sorted(topics) or None)
    seen = Seen(
        {topic.name: topic for topic in answer.topics if not topic.error_code},
        [row.node_id for row in answer.brokers if row.node_id not in silent],
        silent,
        has_controller,
        ways_back,
    )
    found: list[Trouble] = []
    checks: tuple[tuple[str, Callable[[Admin], Iterator[Trouble]]], ...] = (
        ("brokers", lambda _: _look_at_dead_brokers(seen)),
        ("leaders", lambda _: _look_at_leaders(seen, looked)),
        ("in-sync replicas", lambda admin: _look_at_isrs(admin, seen, looked)),
        ("replication factors", lambda admin: _look_at_factors(admin, seen, looked)),
        ("directories", lambda admin: _look_at_directories(admin, seen, looked)),
        ("moves", lambda admin: _look_at_moves(admin, seen, watch_s, looked)),
        ("groups", lambda admin: look_at_groups(admin, topics, watch_s, looked)),
    )
    for name, check in checks:
        try:
            with admin.brief(_CHECK_S + watch_s) as brief:
                found += check(brief)
        except KafkaError as problem:
            if problem.code == Code.UNSUPPORTED_VERSION:
                looked["checks that these brokers do not serve"] += 1
            elif problem.code in NO_CONTROLLER:
                found.insert(0, _NO_CONTROLLER)  # it has gone since `has_controller` was found
            else:
                found.append(_not_checked(name, problem))
        except FirnlineError as problem:
            found.append(_not_checked(name, problem))
    return found


def _not_checked(name: str, problem: FirnlineError) -> Trouble:
    return Trouble("not-checked", name, str(problem), "run this again when the cluster answers")


# ----------------------------------------------------------------------------------------- partitions


def _look_at_dead_brokers(seen: Seen) -> Iterator[Trouble]:
    """Yield the brokers that are to have replicas, and are not there."""
    missing: dict[int, list[TopicPartition]] = defaultdict(list)
    for name, topic in sorted(seen.topics.items()):
        for part in topic.partitions:
            for broker in part.replica_nodes:
                if broker not in seen.alive and broker not in seen.silent:
                    missing[broker].append(TopicPartition(name, part.partition_index))
    for broker, places in sorted(missing.items()):
        names = list(dict.fromkeys(place.topic for place in places))
        sizes = [len(part.replica_nodes) for name in names for part in seen.topics[name].partitions]
        move = _move(" ".join(names), seen.alive, max(sizes))
        back = seen.ways_back.get(broker, "start it")
        yield Trouble(
            "broker-not-alive",
            f"broker {broker}",
            f"{count_of(len(places), 'partition')} should have a replica on it",
            f"{back}; or, if it never comes back: {move}, then `firnline broker unregister {broker}`",
        )


def _look_at_leaders(seen: Seen, looked: Counter[str]) -> Iterator[Trouble]:
    preferred: Counter[int] = Counter()
    displaced: Counter[int] = Counter()
    for name, topic in sorted(seen.topics.items()):
        looked["partitions"] += len(topic.partitions)
        dead = [part for part in topic.partitions if part.leader_id < 0]
        if dead:
            yield _without_leader(name, dead, seen.alive)
        for part in topic.partitions:
            if part.leader_id >= 0 and part.replica_nodes:
                first = part.replica_nodes[0]
                preferred[first] += 1
                # While it is not in sync, an election would not help.
                displaced[first] += part.leader_id != first and first in part.isr_nodes
    for broker, count in sorted(displaced.items()):
        is_of_use = seen.has_controller and broker not in seen.silent
        if is_of_use and count > preferred[broker] * _IMBALANCE:
            yield Trouble(
                "leaders-elsewhere",
                f"broker {broker}",
                f"of the {preferred[broker]} partitions for which it is preferred, others lead {count}",
                "`firnline partition elect --all` (auto.leader.rebalance.enable does it by itself later)",
            )


def _without_leader(name: str, dead: Sequence[Any], alive: Collection[int]) -> Trouble:
    last_in_sync = sorted({broker for part in dead for broker in part.isr_nodes})
    missing = [broker for broker in last_in_sync if broker not in alive]
    start = f"start {_brokers(missing)}: all acknowledged records are there"
    if not missing:
        start = (
            f"{_brokers(last_in_sync)} cannot serve it, and no other replica is in sync: the log there says"
            " why, and what to put back (`partition is not served`)"
        )
    return Trouble(
        "no-leader",
        f"topic {name}",
        f"nobody leads {_partitions(dead)}",
        f"{start}; only if it never comes back, and records may be lost:"
        f" `firnline partition elect {_word(name, dead)} --unclean`",
    )


def _look_at_isrs(admin: Admin, seen: Seen, looked: Counter[str]) -> Iterator[Trouble]:
    for name, topic in sorted(seen.topics.items()):
        thin = [
            part
            for part in topic.partitions
            if part.leader_id >= 0 and len(part.isr_nodes) < len(part.replica_nodes)
        ]
        if not thin:
            continue
        looked["topics whose min.insync.replicas was read"] += 1
        text = admin.topic_configs(name, only_changed=False).get(_MIN_ISR) or "1"
        low = [part for part in thin if len(part.isr_nodes) < int(text)]
        if not low:
            continue
        missing = sorted({b for part in low for b in {*part.replica_nodes} - {*part.isr_nodes}})
        dead = [broker for broker in missing if broker not in seen.alive]
        if dead:
            size = max(len(part.replica_nodes) for part in low)
            move = _move(_word(name, low), seen.alive, size)
            remedy = f"start {_brokers(dead)}; or, if it never comes back: {move}"
        else:
            remedy = (
                f"{_brokers(missing)} must catch up: `firnline topic describe {name}` says how far. If one"
                " does not, its log says why: `replica does not follow its leader`"
            )
        what = f"acks=all is refused for {_partitions(low)}: fewer than {text} replicas are in sync"
        yield Trouble("under-min-isr", f"topic {name}", what, remedy)


def _look_at_factors(admin: Admin, seen: Seen, looked: Counter[str]) -> Iterator[Trouble]:
    """Compare the replicas of each topic with what a new topic would get."""
    if not seen.alive:
        return
    settings = {
        row.key: row.value
        for row in describe(admin, Resource(BROKER_RESOURCE, str(min(seen.alive))))
    }
    factor = int(settings.get("default.replication.factor") or 1)
    looked["topics whose replicas were counted"] += len(seen.topics)
    for name, topic in sorted(seen.topics.items()):
        least = min((len(part.replica_nodes) for part in topic.partitions), default=factor)
        if least >= factor:
            continue
        remedy = _move(name, seen.alive, factor, f" --replication-factor {factor}")
        yield Trouble(
            "few-replicas",
            f"topic {name}",
            f"{count_of(least, 'replica')}, where a new topic gets {factor}"
            " (default.replication.factor)",
            remedy,
        )


# ------------------------------------------------------------------------------ directories and moves


def _look_at_directories(admin: Admin, seen: Seen, looked: Counter[str]) -> Iterator[Trouble]:
    for each in directories(admin, None, None):
        if each.broker in seen.silent:
            continue
        looked["directories"] += 1
        if each.problem:
            yield _directory(each)


def _directory(each: Directory) -> Trouble:
    if not each.is_offline:
        where, remedy = f"broker {each.broker}", "run this again when the broker answers"
        return Trouble("not-asked", where, each.problem or "", remedy)
    return Trouble(
        "directory-offline",
        f"broker {each.broker}",
        f"{each.path}: {each.problem}",
        "mend or replace the disk (the broker's log says what failed), and restart the broker;"
        " `firnline log-dirs` shows the result",
    )


def _look_at_moves(
    admin: Admin, seen: Seen, watch_s: float, looked: Counter[str]
) -> Iterator[Trouble]:
    if not seen.has_controller:
        return  # none of them goes on, and nobody can tell which there are
    moves = list_moves(admin, most_s=_CONTROLLER_S)
    first = {row.place: row for row in moves if row.topic in seen.topics}
    looked["moves under way"] += len(first)
    for row in first.values():
        dead = [broker for broker in row.adding if broker not in seen.alive]
        if dead:
            yield Trouble(
                "move-to-dead-broker",
                str(row.place),
                f"it moves to {_brokers(dead)}, which is not alive",
                f"start it, or `firnline partition cancel {row.topic}:{row.partition}`",
            )
    if not first or not watch_s:
        return
    before = {row.place: row for row in with_progress(admin, list(first.values()))}
    time.sleep(watch_s)
    moves = list_moves(admin, most_s=_CONTROLLER_S)
    for row in with_progress(admin, [row for row in moves if row.place in before]):
        if _stands_still(before[row.place], row):
            copied, size = bytes_of(row.copied_bytes), bytes_of(row.size_bytes)
            yield Trouble(
                "move-stands-still",
                str(row.place),
                f"nothing was copied in {watch_s:g} s: {copied} of {size}",
                f"see the logs of {_brokers(row.adding)} and of the leader;"
                f" `firnline partition cancel {row.topic}:{row.partition}` calls it off",
            )


def _stands_still(before: Move, now: Move) -> bool:
    is_known = before.copied_bytes >= 0 and now.copied_bytes >= 0
    return is_known and now.copied_bytes <= before.copied_bytes and before.adding == now.adding


# -------------------------------------------------------------------------------------------- words


def _brokers(ids: Sequence[int]) -> str:
    return f"broker{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}"


def _partitions(parts: Sequence[Any]) -> str:
    numbers = [str(part.partition_index) for part in sorted(parts, key=_index)]
    return f"partition{'s' if len(numbers) > 1 else ''} {some_of(numbers)}"


def _word(name: str, parts: Sequence[Any]) -> str:
    """Return the partitions as a command takes them."""
    return f"{name}:{','.join(str(part.partition_index) for part in sorted(parts, key=_index))}"


def _index(part: Any) -> int:
    return int(part.partition_index)


def _move(words: str, alive: Collection[int], size: int, option: str = "") -> str:
    """Return the command that moves partitions with so many replicas to live brokers; ID is a new one."""
    lack = size - len(alive)
    ids = [*map(str, sorted(alive)), *["ID"] * lack]
    command = f"`firnline partition move {words} --brokers {','.join(ids)}{option}`"
    return f"start {count_of(lack, 'new broker')}, then {command}" if lack > 0 else command
