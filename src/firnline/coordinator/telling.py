"""What concerns all members of a group at the same time, some of them in a slice. PURE. Decision 0018."""

from collections.abc import Callable, Sequence

from firnline.base.background import Work
from firnline.base.effects import Effects
from firnline.coordinator.membership import Member, SyncResult

# Has work done a slice at a time, before any other work of the coordinator that begins later.
Later = Callable[[Work, int], Effects]
# Some 20 us each, with timer and socket.
MEMBERS_PER_SLICE = 100


def for_each(
    members: Sequence[Member],
    do: Callable[[Member, int], Effects],
    later: Later,
    now_ms: int,
    then: Callable[[int], Effects] | None = None,
) -> Effects:
    """Do it for each member in order, of many some hundred in a slice; `then` at the end.

    Of many, nothing is done before the first slice. `do` gets the time, and judges by what is so then: the
    member may have left, and the next generation may have begun.
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
) -> Work:
    now_ms = yield []
    for first in range(0, len(members), MEMBERS_PER_SLICE):
        effects: Effects = []
        for member in members[first : first + MEMBERS_PER_SLICE]:
            effects += do(member, now_ms)
        now_ms = yield effects
    return [] if then is None else then(now_ms)


def answer_sync(member: Member, result: SyncResult) -> Effects:
    """Answer the sync of the member that waits, if one does."""
    answer, member.sync_answer = member.sync_answer, None
    return [] if answer is None else [answer(result)]
