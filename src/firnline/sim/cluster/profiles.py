"""Fault profiles: options for runs that test one rule of replication. SIM.

One random run in hundreds meets the race that a rule is for; with the profile of that rule it is one in a
few. Source: reliability (c) and 'What the prototype taught'.
"""

from collections.abc import Callable
from typing import Any

from firnline.metadata.features import METADATA_VERSION_DEFAULT, METADATA_VERSION_MIN
from firnline.sim.cluster.shape import ALWAYS, BAD_DIRECTORY, IF_ASKED, TopicShape
from firnline.sim.options import Options
from firnline.sim.world import MS

_OFTEN = (200 * MS, 1_500 * MS)


def replicated(options: Options, **more: Any) -> Options:
    """Three brokers apart from the controllers, all partitions on all of them."""
    assert options.cluster is not None
    topics = (TopicShape("t0", 2, 3, 2), TopicShape("t1", 1, 3, 1))
    shape = options.cluster._replace(
        is_combined=False,
        topics=topics,
        session_timeout_ms=2_000,
        heartbeat_ms=250,
        lag_max_ms=1_000,
        fetch_wait_ms=300,
        backoff_ms=100,
        partition_fetch_bytes=1_048_576,
        **more,
    )
    return options._replace(voters=3, observers=3, cluster=shape, fault_gap_us=_OFTEN)


def _r1(options: Options) -> Options:
    """Brokers come back with less data, while their earlier requests are still on the way."""
    kinds = ("wipe", "power", "storm", "slow-to-controllers", *("rejoin",) * 6)
    return replicated(options)._replace(fault_kinds=kinds, fault_gap_us=(500 * MS, 3_000 * MS))


def _r3(options: Options) -> Options:
    """Requests of an old incarnation arrive after the next one has registered."""
    kinds = ("stop", "storm", "clog", *("slow-to-controllers",) * 3)
    return replicated(options)._replace(fault_kinds=kinds, fault_gap_us=(100 * MS, 800 * MS))


def _r4(options: Options) -> Options:
    """Brokers come back while the metadata is late."""
    kinds = ("power", "kill", "storm", "slow-from-controllers", "slow-from-controllers", "elect")
    return replicated(options)._replace(fault_kinds=kinds)


def _r6(options: Options) -> Options:
    """Replicas fall behind and catch up all the time."""
    kinds = ("slow-link", "pause", "cut", "clog", "kill", "slow-to-controllers")
    return replicated(options)._replace(fault_kinds=kinds)


def _r7(options: Options) -> Options:
    """Responses of the controllers are lost, or arrive after the brokers gave up on them."""
    kinds = ("deaf-to-controllers", "deaf-to-controllers", "pause", "kill", "clog", "slow-link")
    return replicated(options)._replace(fault_kinds=kinds)


def _r8(options: Options) -> Options:
    """Leaders change while followers lag."""
    kinds = ("elect", "elect", "kill", "slow-link", "pause", "cut")
    return replicated(options)._replace(fault_kinds=kinds)


def _r13(options: Options) -> Options:
    """ISRs shrink below min.insync.replicas and grow again."""
    kinds = ("kill", "pause", "isolate", "split", "stop")
    return replicated(options, plain_percent=0)._replace(fault_kinds=kinds)


def _r19(options: Options) -> Options:
    """Responses of old leaders arrive late, after the follower has a new leader."""
    kinds = ("elect", "elect", "slow-link", "slow-link", "clog", "reset", "kill")
    return replicated(options)._replace(fault_kinds=kinds)


def _unclean(options: Options) -> Options:
    """Leaders that are alone in the ISR go away; topics say whether others may lead without their data."""
    kinds = ("leave-alone", "leave-alone", "leave-alone", "kill", "power", "pause", "slow-link")
    topics = (
        TopicShape("t0", 2, 3, 2),
        TopicShape("t1", 1, 3, 1),
        TopicShape("t2", 2, 3, 1, ALWAYS),
        TopicShape("t3", 1, 3, 1, IF_ASKED),
    )
    bent = replicated(options, admin_gap_ms=1_000)
    assert bent.cluster is not None
    shape = bent.cluster._replace(topics=topics)
    return bent._replace(fault_kinds=kinds, cluster=shape, fault_gap_us=(1_500 * MS, 5_000 * MS))


def _late_answers(options: Options) -> Options:
    """Responses wait in sockets while the files they are read from change."""
    kinds = (*("late-answer",) * 4, "elect", "slow-link", "clog")
    bent = replicated(
        options, is_even=True, plain_percent=70, acks_one_percent=100, batch_gap_ms=60
    )
    return bent._replace(fault_kinds=kinds, fault_gap_us=(3_000 * MS, 8_000 * MS), socket_bytes=0)


def _late_copies(options: Options) -> Options:
    """Requests reach the controllers after the broker gave up on them and got an answer to the next one."""
    kinds = ("late-copy", "late-copy", "late-copy", "kill")
    bent = replicated(options, plain_percent=0)
    return bent._replace(fault_kinds=kinds, fault_gap_us=(4_000 * MS, 20_000 * MS))


def _groups(options: Options) -> Options:
    """Coordinators change while members commit, and loading the commits takes long."""
    kinds = ("elect", "elect", "kill", "stop", "pause", "clog", "isolate", "deaf-to-controllers")
    bent = replicated(options, members=3, commit_gap_ms=50, commit_bytes=1_000, min_isr=2)
    return bent._replace(
        fault_kinds=kinds, fault_gap_us=(500 * MS, 3_000 * MS), read_us_per_kib=2_000
    )


def _compacted(options: Options) -> Options:
    """Compacted topics with small segments, on leaders and followers that come and go."""
    kinds = ("kill", "kill", "pause", "slow-link", "elect", "stop", "cut")
    topics = (
        TopicShape("t0", 2, 3, 2, is_compacted=True),
        TopicShape("t1", 1, 3, 1, is_compacted=True),
        TopicShape("t2", 1, 3, 2),
    )
    bent = replicated(options, batch_gap_ms=60, flush_checkpoint_ms=500, segment_bytes=4_096)
    assert bent.cluster is not None
    shape = bent.cluster._replace(topics=topics)
    return bent._replace(fault_kinds=kinds, cluster=shape, fault_gap_us=(500 * MS, 4_000 * MS))


def _early(options: Options) -> Options:
    """As drawn, without options that were added later: seeds that once found a bug stay the same."""
    return options


def _rot(options: Options) -> Options:
    """Bits flip under leaders and followers that come and go."""
    kinds = ("kill", "elect", "elect", "stop", "slow-link", "cut", "wipe")
    topics = (TopicShape("t0", 2, 3, 2), TopicShape("t1", 2, 3, 2))
    bent = replicated(options, batch_gap_ms=60, flush_checkpoint_ms=500, segment_bytes=8_192)
    assert bent.cluster is not None
    return bent._replace(
        fault_kinds=kinds,
        cluster=bent.cluster._replace(topics=topics),
        fault_gap_us=(1_000 * MS, 4_000 * MS),
        late_kinds=("rot-log",),
        late_gap_us=(500 * MS, 2_000 * MS),
    )


def _raised(options: Options) -> Options:
    """metadata.version is raised level by level while controllers and brokers come and go."""
    kinds = ("kill", "kill", "power", "storm", "pause", "isolate", "elect", "reset")
    bent = replicated(
        options, levels=tuple(range(METADATA_VERSION_MIN, 1 + METADATA_VERSION_DEFAULT))
    )
    return bent._replace(fault_kinds=kinds, fault_gap_us=(500 * MS, 4_000 * MS))


def _slices(options: Options) -> Options:
    """Everything that can be done in slices is, one partition each, while leaders come and go."""
    kinds = ("kill", "elect", "elect", "stop", "power", "isolate", "slow-link", "stall")
    bent = replicated(options)
    return bent._replace(fault_kinds=kinds, fault_gap_us=(500 * MS, 3_000 * MS), slice_items=1)


def _cold(options: Options) -> Options:
    """Memory is short everywhere: part of what a Fetch reads comes from the disk."""
    kinds = ("kill", "elect", "elect", "stop", "power", "slow-link", "pause")
    bent = replicated(options)
    return bent._replace(fault_kinds=kinds, fault_gap_us=(500 * MS, 4_000 * MS), cold_percent=30)


def _directories(options: Options) -> Options:
    """Brokers with three log directories, of which one fails now and then."""
    kinds = ("kill", "elect", "stop", "pause", "cut")
    bent = replicated(options, directories=3)
    return bent._replace(
        fault_kinds=kinds,
        fault_gap_us=(1_000 * MS, 5_000 * MS),
        late_kinds=(BAD_DIRECTORY,),
        late_gap_us=(1_000 * MS, 6_000 * MS),
    )


PROFILES: dict[str, Callable[[Options], Options]] = {
    "r1": _r1,
    "r3": _r3,
    "r4": _r4,
    "r6": _r6,
    "r7": _r7,
    "r8": _r8,
    "r13": _r13,
    "r19": _r19,
    "groups": _groups,
    "late-copies": _late_copies,
    "late-answers": _late_answers,
    "unclean": _unclean,
    "compacted": _compacted,
    "early": _early,
    "rot": _rot,
    "raised": _raised,
    "directories": _directories,
    "slices": _slices,
    "cold": _cold,
}


def bend(options: Options, profile: str) -> Options:
    """Return the options changed by the profile."""
    return PROFILES[profile](options)
