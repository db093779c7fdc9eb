"""Topics that the node makes for itself, when one of its parts first needs them. PURE.

Who asks while one is being made waits for the same answer: a second creation would only fail.
Source: spec C2 (the offsets topic), T17 (the tier's metadata topic).
"""

from collections.abc import Callable, Sequence

from firnline.base.effects import Effects, Warn
from firnline.base.errors import Code, KafkaError

Then = Callable[[KafkaError | None, int], Effects]


# Create a topic; `then(error or None, now_ms)` runs once it is committed and hosted.
Create = Callable[[str, Then, int], Effects]


class InternalTopics:
    """Makes each topic of `names` once, on demand."""

    __slots__ = ("_create", "_exists", "_names", "_said", "_waiting")

    def __init__(
        self, *, names: Sequence[str], exists: Callable[[str], bool], create: Create
    ) -> None:
        self._names = tuple(names)
        self._exists = exists
        self._create = create
        self._waiting: dict[str, list[Then]] = {}
        self._said: dict[str, str] = {}

    def ensure(self, name: str, then: Then, now_ms: int) -> Effects:
        """Answer `then(None, now_ms)` once the topic is there, or with why it cannot be."""
        if self._exists(name):
            return then(None, now_ms)
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting.append(then)
            return []
        if name not in self._names:
            return then(_NOT_OURS, now_ms)
        self._waiting[name] = [then]
        return self._create(name, lambda error, now: self._made(name, error, now), now_ms)

    def _made(self, name: str, error: KafkaError | None, now_ms: int) -> Effects:
        if error is not None and error.code == Code.TOPIC_ALREADY_EXISTS:
            error = None
        effects = self._say(name, error)
        for then in self._waiting.pop(name):
            effects += then(error, now_ms)
        return effects

    def _say(self, name: str, error: KafkaError | None) -> Effects:
        """Clients are told only that there is no coordinator: say why, once while it stays the same."""
        if error is None:
            self._said.pop(name, None)
        elif not error.is_retriable and self._said.get(name) != str(error):
            self._said[name] = str(error)
            return [Warn(line=f"{name} could not be made, and is tried again on demand: {error}")]
        return []


_NOT_OURS = KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION, "this node does not make that topic")
