"""Requests to copy partitions to the tier now: who waits for which partition, and until when. PURE."""

from collections.abc import Callable, Collection, Mapping
from functools import partial

from firnline.base.effects import CancelTimer, Effects, SetTimer
from firnline.base.errors import Code, FirnlineError, KafkaError
from firnline.tiered.hosted import Hosted, Services

Flushed = Callable[[dict[int, FirnlineError | None], int], Effects]


class Flush:
    """One request: `then` is called once, with an outcome for each partition; None: all of it is copied.

    It is called when all have one, or at the deadline with why the others have none: a store that hangs
    must not look like a broker that is dead.

    number  of this request, on this node
    """

    def __init__(self, number: int, partitions: Collection[int], then: Flushed) -> None:
        self.waiting = set(partitions)
        self._outcomes: dict[int, FirnlineError | None] = {}
        self._then = then
        self._key = ("tier", "flush", number)

    def deadline(self, at_ms: int, late: Callable[["Flush", int], Effects]) -> Effects:
        """Have `late(flush, now_ms)` called at that time, unless all partitions have an outcome before."""
        if not self.waiting:
            return []
        return [SetTimer(key=self._key, at_ms=at_ms, then=partial(late, self))]

    def arrived(self, partition: int, error: FirnlineError | None, now_ms: int) -> Effects:
        """The partition has an outcome. One that comes after the deadline is nobody's."""
        if partition not in self.waiting:
            return []
        self.waiting.discard(partition)
        self._outcomes[partition] = error
        if self.waiting:
            return []
        return [CancelTimer(key=self._key), *self._then(self._outcomes, now_ms)]

    def end(self, errors: Mapping[int, FirnlineError], now_ms: int) -> Effects:
        """The deadline is over: answer with `errors` for the partitions that have no outcome."""
        self._outcomes |= {partition: errors[partition] for partition in self.waiting}
        self.waiting.clear()
        return self._then(self._outcomes, now_ms)


def why_late(
    services: Services, hosted: Hosted, *, is_copying: bool, timeout_ms: int, now_ms: int
) -> KafkaError:
    """Return which offsets of a partition were not copied in time, and why as far as that is known."""
    covered, end = hosted.covered_offset(services.metadata), hosted.log.log_end_offset - 1
    within = f"within {timeout_ms / 1000:g} s"
    if not isinstance(covered, int):
        why = "the metadata of the tier is not read yet"
        return KafkaError(Code.REQUEST_TIMED_OUT, f"nothing was copied {within}: {why}")
    why = _reason(services, hosted, covered, is_copying=is_copying, now_ms=now_ms)
    if covered >= end:
        said = f"all is copied, but the catalog of the tier does not say so {within}: {why}"
    else:
        said = f"offsets {covered + 1} to {end} were not copied {within}: {why}"
    return KafkaError(Code.REQUEST_TIMED_OUT, said)


def _reason(
    services: Services, hosted: Hosted, covered: int, *, is_copying: bool, now_ms: int
) -> str:
    failing = [circuit.problem for circuit in services.circuits.problems()]
    if failing:
        return f"the store fails: {failing[0]}"
    if hosted.problem is not None:
        return hosted.problem.text
    if not hosted.may_copy:
        return "copying to the tier is disabled for the topic"
    stable = hosted.log.last_stable_offset
    if covered + 1 >= stable and stable < hosted.log.log_end_offset:
        return f"from offset {stable} on, a transaction is open or a replica is behind"
    if services.copy_rate.throttle_ms(now_ms):
        return "remote.log.manager.copy.max.bytes.per.second delays copies"
    if is_copying:
        return "a copy is in progress, and goes on; the store has not answered"
    return "the copy has not begun"
