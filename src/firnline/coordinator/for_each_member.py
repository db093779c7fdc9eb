"""Do something for every member of a group, in slices if there are many. PURE. Decision 0018."""

from collections.abc import Callable, Sequence

from firnline.base.background import SlicedTask
from firnline.base.effects import Effects
from firnline.coordinator.membership import Member, SyncResult

# Runs a task in slices, before any other task of the coordinator that begins later.
Later = Callable[[SlicedTask, int], Effects]
# Some 20 us each, with timer and socket.
MEMBERS_PER_SLICE = 100


def for_each(
    members: Sequence[Member],
    do: Callable[[Member, int], Effects],
    later: Later,
    now_ms: int,
    then: Callable[[int], Effects] | None = None,
) -> Effects:
    """Call `do` for each member in order, in slices of a hundred if there are more; `then` at the end.

    With more than a hundred members, nothing is done before the first slice. `do` must check the state at
    that time: the member may have left, and the next generation may have begun.
    """
    if len(members) > MEMBERS_PER_SLICE:
        return later(_in_slices(members, do, then), now_ms)
    effects: Effects = []
    for member in members:
        effects += do(member, now_ms)
    return effects if then is None else effects + then(now_ms)


def _in_slices(
    members: Sequence[Member],
    do: Callable[[Member, int], Effects],
    then: Callable[[int], Effects] | None,
) -> SlicedTask:
    now_ms = yield []
    for first in range(0, len(members), MEMBERS_PER_SLICE):
        effects: Effects = []
        for member in members[first : first + MEMBERS_PER_SLICE]:
            effects += do(member, now_ms)
        now_ms = yield effects
    return [] if then is None else then(now_ms)


def answer_sync(member: Member, result: SyncResult) -> Effects:
    """Answer the member's waiting sync, if there is one."""
    answer, member.sync_answer = member.sync_answer, None
    return [] if answer is None else [answer(result)]
