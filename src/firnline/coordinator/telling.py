"""Answers to all members of a group, who wait for one and the same event. PURE. Decision 0018."""

from collections.abc import Callable, Sequence

from firnline.base.background import Work
from firnline.base.effects import Effect, Effects
from firnline.coordinator.membership import JoinResult, Member, SyncResult

# A member and its answer, to be made when it is sent; None: it waits for none.
Told = tuple[Member, Callable[[], Effect] | None]
# Has work done a slice at a time, before any other work of the coordinator that begins later.
Later = Callable[[Work, int], Effects]
# Some 20 us each, with timer and socket.
_TOLD_PER_SLICE = 100


class Telling:
    """Answers members in their order, of many some hundred in a slice.

    What follows from the answers is decided on before the first of them leaves; a member counts as one that
    waits until its own does.

    begin_session(member, now_ms)  is called for each when it is told; it may have left the group
    """

    __slots__ = ("_begin_session", "_later")

    def __init__(self, later: Later, begin_session: Callable[[Member, int], Effects]) -> None:
        self._later = later
        self._begin_session = begin_session

    def tell(self, waiting: list[Told], now_ms: int) -> Effects:
        """Answer members, and begin their sessions."""
        if len(waiting) <= _TOLD_PER_SLICE:
            return self._tell_now(waiting, now_ms)
        for member, _ in waiting:
            member.is_being_told = True
        return self._later(self._in_slices(waiting), now_ms)

    def tell_many(
        self, members: Sequence[Member], take: Callable[[Member], Told | None], now_ms: int
    ) -> Effects:
        """As `tell`, of so many members that each is asked for its answer only when it is told.

        take(member)  takes the answer that waits; None where there is none any more
        """
        return self._later(self._taken_in_slices(members, take), now_ms)

    def _taken_in_slices(
        self, members: Sequence[Member], take: Callable[[Member], Told | None]
    ) -> Work:
        now_ms = yield []
        for first in range(0, len(members), _TOLD_PER_SLICE):
            asked = map(take, members[first : first + _TOLD_PER_SLICE])
            now_ms = yield self._tell_now([told for told in asked if told is not None], now_ms)

    def _in_slices(self, waiting: list[Told]) -> Work:
        now_ms = yield []
        for first in range(0, len(waiting), _TOLD_PER_SLICE):
            now_ms = yield self._tell_now(waiting[first : first + _TOLD_PER_SLICE], now_ms)

    def _tell_now(self, waiting: list[Told], now_ms: int) -> Effects:
        effects: Effects = []
        for member, answer in waiting:
            member.is_being_told = False
            if answer is not None:
                effects.append(answer())
            effects += self._begin_session(member, now_ms)
        return effects


def answer_join(member: Member, result: JoinResult) -> Effects:
    """Answer the join of the member that waits, if one does."""
    answer, member.join_answer = member.join_answer, None
    return [] if answer is None else [answer(result)]


def answer_sync(member: Member, result: SyncResult) -> Effects:
    """Answer the sync of the member that waits, if one does."""
    answer, member.sync_answer = member.sync_answer, None
    return [] if answer is None else [answer(result)]
