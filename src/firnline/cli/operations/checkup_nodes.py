"""What `firnline doctor` finds about nodes: who does not answer, and what brokers say of themselves. WORLD.

`firnline cluster status` reports the same; here each has what mends it.
"""

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from firnline.cli.operations.checkup_groups import Trouble
from firnline.cli.operations.words import count_of
from firnline.client.status import ALIVE, FENCED, NO_ANSWER, BrokerState, Survey

# By kinds of `firnline.api.health`.
REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "appends-fail": "free space on that disk, or give it a larger one: `firnline log-dirs --by topic`"
        " says what is large; producers and followers go on by themselves",
        "disk-nearly-full": "`firnline log-dirs --by topic` says what is large; `firnline topic alter TOPIC"
        " --set retention.ms=MS` deletes old records",
        "disk-silent": "dmesg on that machine says more; if the disk does not come back, replace it, and"
        " restart the broker",
        "clock-doubted": "if the clock of that machine is wrong, set it and restart the broker; if not, there"
        " is nothing to do",
        "tier-store-fails": "mend the store, its network or its credentials: `firnline tier status` has its"
        " error; copies go on by themselves",
        "tier-copies-fail": "`firnline tier status` says for each partition why; copies go on by themselves"
        " when that is mended",
        "tier-copies-behind": "`firnline tier status` says what waits, and why",
        "metadata-lost": "`firnline quorum snapshots`; docs/OPERATIONS.md, Metadata snapshots, says how it"
        " takes part again",
        "snapshot-fails": "look at the space and the state of that disk; the node tries again by itself",
        "snapshot-damaged": "`firnline quorum snapshots`; docs/OPERATIONS.md, Metadata snapshots",
    }
)
# Found by the check of directories; what is over, and shown by `firnline cluster status`; and what only
# controllers say, whose lines the doctor repeats.
ELSEWHERE = frozenset({"log-directory-offline", "loop-held-up", "no-leader"})
_REFUSED = "refused"


def look_at_nodes(found: Survey, topics: Collection[str] = ()) -> Iterator[Trouble]:
    """Yield what is wrong with controllers and brokers, by their silence and by their own account.

    topics  if only these are looked at, what is not about their partitions is left out: what brokers say of
            themselves, and one controller among others that is silent, for instance because it starts
    """
    if found.state.quorum is None or not topics:
        yield from _controllers(found)
    for broker in found.state.brokers:
        if broker.state == ALIVE and topics:
            continue
        if broker.state == ALIVE:
            yield from _by_its_own_account(broker, found.probes[broker.broker_id].status)
        elif broker.state == NO_ANSWER:
            yield _silent(broker, found.probes[broker.broker_id].why or "")
        elif broker.state != FENCED:
            what = f"it is in {broker.state}: it hands over its partitions, and ends"
            yield Trouble("broker-leaves", _where(broker), what, "start it again when it has ended")
        elif not broker.replicas:  # else it is found with its partitions
            back = ways_back(found).get(broker.broker_id, "start it")
            remedy = f"{back}; or, if it never comes back: `firnline broker unregister {broker.broker_id}`"
            yield Trouble("broker-not-alive", _where(broker), "it is fenced", remedy)


def _controllers(found: Survey) -> Iterator[Trouble]:
    lines = [line for line in found.state.problems if line.startswith("controller ")]
    if found.state.quorum is None:
        yield Trouble(
            "no-controller",
            "controllers",
            "; ".join(["no controller is active, so nothing can be changed", *lines]),
            "start controllers until a majority of them runs; `firnline quorum status` says which do",
        )
        return
    for line in lines:
        remedy = "start it, or mend its network; its log, and `firnline quorum status`, say more"
        yield Trouble("controller", "controllers", line, remedy)


def _by_its_own_account(broker: BrokerState, status: Any) -> Iterator[Trouble]:
    for each in [] if status is None else status.problems:
        if each.kind not in ELSEWHERE:
            remedy = REMEDIES.get(each.kind, f"see {each.see}")
            yield Trouble(each.kind, _where(broker), each.what, remedy)


def _silent(broker: BrokerState, why: str) -> Trouble:
    what = f"it does not answer at {broker.address}: {why}"
    if broker.leads:
        what += f"; it was the leader of {count_of(broker.leads, 'partition')}"
    return Trouble("broker-silent", _where(broker), what, _way_back(why))


def ways_back(found: Survey) -> dict[int, str]:
    """Return for each fenced broker what brings it back, by whether its process answers."""
    fenced = [each.broker_id for each in found.state.brokers if each.state == FENCED]
    return {each: _way_back(found.probes[each].why) for each in fenced if each in found.probes}


def _way_back(why: str | None) -> str:
    """Return what to do about a broker that is not there. why: why it does not answer; None: it answers."""
    if why is None:
        return "its process runs and answers, but no controller counts it in: the end of its log says why"
    if _REFUSED in why:
        return "start it: no process listens there; the end of its log says why"
    return (
        "its process hangs, or was stopped (kill -CONT PID lets it go on), or is cut off: mend that,"
        " or restart it"
    )


def _where(broker: BrokerState) -> str:
    return f"broker {broker.broker_id}"
