"""Reads of batches from the tier that several fetches share. PURE.

Clients repeat a Fetch that `remote.fetch.max.wait.ms` has answered without records. A store that is slower
than that must not read the same range for each of them: a later fetch joins the read in progress, and what
came too late is kept for a while. A read that waits for a thread is cancelled when nobody wants it any more.
Source: T36.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from firnline.base.effects import CancelSubmit, Effects, SetTimer
from firnline.base.ids import Uuid
from firnline.base.units import MIB, MINUTE_MS
from firnline.records.batch import headers
from firnline.tiered.hosted import Services
from firnline.tiered.objects.batches import Batches
from firnline.tiered.settings import store_timeout_ms

# How many bytes of late results are kept, besides the latest one, and for how long.
KEPT_BYTES = 32 * MIB
KEPT_MS = MINUTE_MS
_TIMER = ("tier", "late reads")

BatchesCallback = Callable[[Batches | Exception, int], Effects]


class RangeKey(NamedTuple):
    """A range of a segment: `offset` is in its first batch, `upto_offset` is exclusive."""

    segment_id: Uuid
    offset: int
    upto_offset: int


class _Kept(NamedTuple):
    """A result that came late."""

    until_ms: int
    batches: Batches


class SharedReads:
    """The reads of a node in progress, and late results."""

    def __init__(self, services: Services) -> None:
        self._services = services
        # Those who wait for a range, and the limit of each.
        self._waiting: dict[RangeKey, dict[BatchesCallback, int]] = {}
        self._kept: dict[RangeKey, _Kept] = {}  # oldest first
        self._kept_bytes = 0

    @property
    def in_progress(self) -> int:
        """How many reads are waited for."""
        return len(self._waiting)

    def has(self, key: RangeKey) -> bool:
        """Whether the range is being read, or has come late and is kept."""
        return key in self._waiting or key in self._kept

    def read(
        self,
        key: RangeKey,
        topic: str,
        work: Callable[[], Batches],
        max_bytes: int,
        then: BatchesCallback,
        now_ms: int,
    ) -> Effects:
        """Call back with about `max_bytes` of batches, at least one: from memory, or by `work` in a thread.

        A read in progress may have had a lower limit.
        """
        kept = self._kept.get(key)
        if kept is not None:
            return then(within(kept.batches, max_bytes), now_ms)
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting[then] = max_bytes
            return []
        self._waiting[key] = {then: max_bytes}
        return self._services.circuits.submit(
            "read",
            now_ms,
            name=f"read at {key.offset}",
            pool="read",
            work=work,
            then=partial(self._came, key, topic, now_ms),
            key=key,  # a read that nobody waits for may still run: it is joined, too
            run_timeout_ms=store_timeout_ms(max_bytes),
        )

    def leave(self, key: RangeKey, then: BatchesCallback) -> Effects:
        """The caller with this callback does not wait any more."""
        waiting = self._waiting.get(key)
        if waiting is None:
            return []
        waiting.pop(then, None)
        if waiting:
            return []
        del self._waiting[key]
        return [CancelSubmit(pool="read", key=key, only_waiting=True)]

    def _came(
        self,
        key: RangeKey,
        topic: str,
        began_ms: int,
        result: Batches | Exception,
        now_ms: int,
    ) -> Effects:
        waiting = self._waiting.pop(key, {})
        if isinstance(result, Exception):
            return [effect for then in waiting for effect in then(result, now_ms)]
        size_bytes = len(result[0])
        self._services.counters.add(topic, "fetch_bytes", size_bytes)
        self._services.fetch_times.note(now_ms - began_ms, now_ms)
        self._services.fetch_rate.note(size_bytes, now_ms)
        effects: Effects = []
        for then, limit in waiting.items():
            effects += then(within(result, limit), now_ms)
        is_late = now_ms - began_ms >= self._services.settings.fetch_max_wait_ms
        if size_bytes and (is_late or not waiting):
            effects += self._keep(key, _Kept(now_ms + KEPT_MS, result))
        return effects

    def _keep(self, key: RangeKey, kept: _Kept) -> Effects:
        self._forget(key)
        self._kept[key] = kept
        self._kept_bytes += len(kept.batches[0])
        while self._kept_bytes > KEPT_BYTES and len(self._kept) > 1:
            self._forget(next(iter(self._kept)))
        if len(self._kept) > 1:
            return []  # the timer of the oldest is set
        return [SetTimer(key=_TIMER, at_ms=kept.until_ms, then=self._forget_old)]

    def _forget(self, key: RangeKey) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._kept_bytes -= len(kept.batches[0])

    def _forget_old(self, now_ms: int) -> Effects:
        for key, kept in list(self._kept.items()):
            if kept.until_ms > now_ms:
                return [SetTimer(key=_TIMER, at_ms=kept.until_ms, then=self._forget_old)]
            self._forget(key)
        return []


def within(batches: Batches, max_bytes: int) -> Batches:
    """Return the first batches within `max_bytes`, at least one."""
    data, end_offset, end_position = batches
    if len(data) <= max_bytes:
        return batches
    end = 0
    for header in headers(data):
        after = header.position + header.size_bytes
        if end and after > max_bytes:
            break
        end, end_offset = after, header.next_offset
    return Batches(data[:end], end_offset, end_position - len(data) + end)
