"""Circuit breakers of a node's remote store: while one is open the store gets probes, and no work. PURE.

Without them each retry of each partition costs requests and metadata records for as long as a store is down.
All work for the store begins here (`submit`) and its outcomes are counted here, so no caller can forget it.
There is one circuit for each kind of operation:

    operation  work                                     probe
    read       records, indexes, auxiliary state        get of cluster.json
    write      catalogs, names, marks of deleted topics put of a small object
    copy       segments                                 none: the next copy is the probe
    delete     segments, files of deleted topics        delete of the small object

A circuit opens after FAILURES_TO_OPEN failures in a row. Then the operation is refused with StoreUnavailable,
and so are those that need it: nothing is written to a store that cannot be read, and nothing is copied or
deleted where no catalog can be written. The first probe is sent at once, the others with backoff, one at a
time for all circuits. A probe that succeeds closes its circuit. A small object may fit into a full store, so
it does not prove that segments do: one copy is let through at a time until one succeeds.

A store that hangs shows itself by calls that have no answer for SLOW_MS. Then probes are sent though the
circuits are closed, one after the other for what the call needs; one that fails opens its circuit. So a large
copy may take its time while the store answers probes. A call that should have had its answer is logged, and
is a problem for the operator (`unanswered`).

A plug-in that is no object store cannot be probed, and its operations are independent: each circuit lets one
operation through at a time. Source: docs/decisions/0037-circuit-breakers.md; F3, F14, F21.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from firnline.base.effects import CancelTimer, Effects, Pool, SetTimer, Submit
from firnline.base.errors import FirnlineError, WorkFailed, WorkTimedOut
from firnline.base.log_lines.tier import STORE_ANSWERS_AGAIN, STORE_FAILS
from firnline.base.units import MINUTE_MS, SECOND_MS
from firnline.stores.port import ObjectMissing, ObjectStore, RemoteStorageError
from firnline.tiered.objects.probe import Operation, probe
from firnline.tiered.objects.unanswered import Unanswered, UnansweredCalls
from firnline.tiered.settings import STORE_TIMEOUT_MS, store_timeout_ms
from firnline.tiered.spi import CustomMetadataTooLarge, DamagedObject

OPERATIONS: tuple[Operation, ...] = ("read", "write", "copy", "delete")
FAILURES_TO_OPEN = 3
# A call that has no answer for so long makes the circuits ask whether the store still answers. It is reported
# if it moves few bytes; a larger one after the time that its bytes may take besides.
SLOW_MS = 10 * SECOND_MS
# A probe is one small request: a store that takes longer for it is of no use.
PROBE_TIMEOUT_MS = 5 * SECOND_MS
# One operation is let through; if nothing has come of it after this time, another one is.
TRIAL_MS = 2 * STORE_TIMEOUT_MS
# Each copy that fails leaves records, so the wait before the next one grows further than other waits.
COPY_WAIT_MAX_MS = 10 * MINUTE_MS
_TIMER = ("tier", "store probe")

# The circuits that have to be closed for an operation, and those whose failures it counts.
_NEEDS: dict[Operation, tuple[Operation, ...]] = {
    "read": ("read",),
    "write": ("read", "write"),
    "copy": ("read", "write", "copy"),
    "delete": ("read", "write", "delete"),
}
_COUNTS: dict[Operation, tuple[Operation, ...]] = {
    "read": ("read",),
    "write": ("write",),
    "copy": ("write", "copy"),
    "delete": ("delete",),
}
# Operations with a probe, in the order in which they are probed.
_PROBED: tuple[Operation, ...] = ("read", "write", "delete")
_ALONE: dict[Operation, tuple[Operation, ...]] = {each: (each,) for each in OPERATIONS}

_WORK: dict[Operation, str] = {
    "read": "reads of records in the tier",
    "write": "catalogs",
    "copy": "copies of segments",
    "delete": "deletions",
}
# Errors of a store that works.
_ANSWERS = (ObjectMissing, DamagedObject, CustomMetadataTooLarge)

T = TypeVar("T")
Backoff = Callable[[int, int | None], int]


class StoreUnavailable(RemoteStorageError):
    """The store has failed before, and was not asked again: a retry succeeds once a probe has succeeded."""


class OpenCircuit(NamedTuple):
    """A circuit that is open: since when, and the error of the last attempt."""

    operation: Operation
    opened_ms: int
    problem: str


class Permit(NamedTuple):
    """An operation may begin. It is void once one of the circuits that it counts for opens.

    openings  of each of these circuits
    """

    operation: Operation
    openings: tuple[int, ...]


class _Circuit:
    """One circuit.

    failures   in a row; of operations that began while it was closed
    openings   since the start; outcomes of operations from before the last one do not count
    relapses   openings since the last operation that succeeded; not counted where there is a probe
    opened_ms  None: it is closed
    due_ms     without a probe: when the next operation is let through
    is_logged  a probe, or an operation that was let through, has failed, and that is logged
    """

    __slots__ = (
        "due_ms",
        "failures",
        "has_probe",
        "is_logged",
        "opened_ms",
        "openings",
        "operation",
        "problem",
        "relapses",
    )

    def __init__(self, operation: Operation, *, has_probe: bool) -> None:
        self.operation = operation
        self.has_probe = has_probe
        self.failures = self.openings = self.relapses = self.due_ms = 0
        self.opened_ms: int | None = None
        self.problem = ""
        self.is_logged = False

    @property
    def is_open(self) -> bool:
        return self.opened_ms is not None

    @property
    def failures_to_open(self) -> int:
        return 1 if self.is_open or self.relapses else FAILURES_TO_OPEN

    def refusal(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"the store of the tier fails ({self.operation}), and is not used until it answers:"
            f" {self.problem}"
        )


class _Watched:
    """Work for the store while it runs. `more_ms`: how long it may take besides SLOW_MS."""

    __slots__ = (
        "_circuits",
        "_is_ended",
        "_is_overdue",
        "_more_ms",
        "_name",
        "_operation",
        "_ran_ms",
    )

    def __init__(
        self, circuits: "StoreCircuits", operation: Operation, name: str, more_ms: int
    ) -> None:
        self._circuits = circuits
        self._operation: Operation = operation
        self._name = name
        self._more_ms = more_ms
        self._ran_ms = 0
        self._is_overdue = self._is_ended = False

    def slow(self, now_ms: int) -> Effects:
        """It has run for another SLOW_MS."""
        if self._is_ended:
            return []
        self._ran_ms += SLOW_MS
        effects = self._circuits.suspect(self._operation, now_ms)
        if self._is_overdue or self._ran_ms < SLOW_MS + self._more_ms:
            return effects
        self._is_overdue = True
        began_ms = now_ms - self._ran_ms
        return [*self._circuits.overdue(self._name, began_ms, now_ms), *effects]

    def ended(self, problem: Exception | None, now_ms: int) -> Effects:
        """It has a result; or it was given up."""
        self._is_ended = True
        return self._circuits.ended(self._name, problem, now_ms, was_overdue=self._is_overdue)


class _Probe:
    """A probe, whose result is kept for the case that nobody waits for it any more."""

    __slots__ = ("_work", "has_succeeded")

    def __init__(self, work: Callable[[], tuple[int, Exception | None]]) -> None:
        self._work = work
        self.has_succeeded = False

    def run(self) -> tuple[int, Exception | None]:
        """Send it. Runs on a thread; the loop looks at `has_succeeded` when that has ended."""
        result = self._work()
        self.has_succeeded = result[1] is None
        return result


class StoreCircuits:
    """The circuits of a node's store, on its event loop.

    store        what is probed; None for a plug-in that is no object store
    check_owner  raises, in a worker thread, if the store belongs to another cluster; None: not checked
    backoff_ms   returns the wait after so many failures in a row; None: with the usual maximum
    """

    def __init__(
        self,
        store: ObjectStore | None,
        check_owner: Callable[[], None] | None,
        backoff_ms: Backoff,
    ) -> None:
        self._store = store
        self._check_owner = check_owner
        self._backoff_ms = backoff_ms
        self._needs = _ALONE if store is None else _NEEDS
        self._counts = _ALONE if store is None else _COUNTS
        self._circuits = {
            each: _Circuit(each, has_probe=store is not None and each in _PROBED)
            for each in OPERATIONS
        }
        # A probe runs, or its timer is set; the timer is set; and the number of probes in a row that failed.
        self._is_probing = self._is_waiting = False
        self._failed_probes = 0
        # Operations whose circuits are closed, and that have to be probed because a call is slow.
        self._suspects: list[Operation] = []
        self._unanswered = UnansweredCalls()
        self._is_over = False
        # A probe has failed, or an operation that was let through, since all circuits were closed. A store
        # whose first probe succeeds was never down: operations failed for reasons of their own.
        self._was_down = False
        # Called when a store that was down fails for no operation any more: what waited for that need not
        # wait longer.
        self.on_answering: Callable[[int], Effects] = _nothing

    @property
    def is_any_open(self) -> bool:
        """Whether the store fails for some operation."""
        return any(circuit.is_open for circuit in self._circuits.values())

    @property
    def _is_logged(self) -> bool:
        """Whether an outage is in the log, and its end is not."""
        return any(circuit.is_logged for circuit in self._circuits.values())

    def is_open(self, operation: Operation) -> bool:
        """Whether the circuit is open; also while it lets an operation through."""
        return self._circuits[operation].is_open

    def problems(self) -> list[OpenCircuit]:
        """Return the circuits that are open."""
        return [
            OpenCircuit(c.operation, c.opened_ms, c.problem)
            for c in self._circuits.values()
            if c.opened_ms is not None
        ]

    def unanswered(self, now_ms: int) -> Unanswered | None:
        """Return the call that should have had its answer for the longest time, or None."""
        return self._unanswered.first(now_ms)

    def open_ms(self, now_ms: int) -> dict[str, int | None]:
        """Return how long each circuit has been open; None for one that is closed."""
        circuits = self._circuits.values()
        return {
            c.operation: None if c.opened_ms is None else now_ms - c.opened_ms for c in circuits
        }

    def close(self) -> None:
        """Send no more probes: the node stops."""
        self._is_over = True

    # --------------------------------------------------------------------------------- operations

    def refusal(self, operation: Operation, now_ms: int) -> StoreUnavailable | None:
        """Return the error that the operation would get now, or None if it may begin."""
        for name in self._needs[operation]:
            circuit = self._circuits[name]
            is_let_through = name == operation and not circuit.has_probe
            if circuit.is_open and not (is_let_through and now_ms >= circuit.due_ms):
                return circuit.refusal()
        return None

    def admit(self, operation: Operation, now_ms: int) -> Permit | StoreUnavailable:
        """Return a permit, for work that is prepared first; only one at a time if the circuit is open."""
        refusal = self.refusal(operation, now_ms)
        if refusal is not None:
            return refusal
        own = self._circuits[operation]
        if own.is_open:
            own.due_ms = now_ms + TRIAL_MS
        counted = self._counts[operation]
        return Permit(operation, tuple(self._circuits[name].openings for name in counted))

    def void(self, permit: Permit) -> StoreUnavailable | None:
        """Return the error of an operation whose permit is void: a circuit that it needs has opened."""
        counted = self._counts[permit.operation]
        for name, openings in zip(counted, permit.openings):
            if self._circuits[name].openings != openings:
                return self._circuits[name].refusal()
        for name in self._needs[permit.operation]:
            if name not in counted and self._circuits[name].is_open:
                return self._circuits[name].refusal()
        return None

    def submit(
        self,
        operation: Operation | Permit,
        now_ms: int,
        *,
        name: str,
        pool: Pool,
        work: Callable[[], T],
        then: Callable[[T | Exception, int], Effects],
        run_timeout_ms: int,
        queue_timeout_ms: int = 0,
        owner: str = "",
        key: Hashable = None,
        ended: Callable[[int], Effects] | None = None,
        failure_of: Callable[[T], Exception | None] | None = None,
    ) -> Effects:
        """Do work for the store in a thread, as Submit; or call `then` now, with StoreUnavailable.

        failure_of  returns the error of the store from a result that has one; None: such work raises it
        """
        permit = operation if isinstance(operation, Permit) else self.admit(operation, now_ms)
        refused = permit if isinstance(permit, StoreUnavailable) else self.void(permit)
        if refused is not None:
            return then(refused, now_ms)
        assert isinstance(permit, Permit)

        # The time that the bytes and requests of the work may take, besides that of a small call.
        watched = _Watched(
            self, permit.operation, name, max(run_timeout_ms - store_timeout_ms(), 0)
        )

        def came(result: T | Exception, at_ms: int) -> Effects:
            # Only Submit knows whether work that timed out has waited for a thread, or for the store.
            has_waited = queue_timeout_ms > 0 and isinstance(result, WorkTimedOut)
            problem = result if isinstance(result, Exception) else None
            if not isinstance(result, Exception) and failure_of is not None:
                problem = failure_of(result)
            effects = watched.ended(problem, at_ms)
            effects += [] if has_waited else self._note(permit, problem, at_ms)
            return [*effects, *then(result, at_ms)]

        return [
            Submit(
                name=name,
                pool=pool,
                work=work,
                then=came,
                owner=owner,
                key=key,
                run_timeout_ms=run_timeout_ms,
                queue_timeout_ms=queue_timeout_ms,
                slow_ms=SLOW_MS,
                slow=watched.slow,
                ended=ended,
            )
        ]

    def _note(self, permit: Permit, problem: Exception | None, now_ms: int) -> Effects:
        """Count an outcome, once for each circuit that has not opened since the operation began."""
        effects: Effects = []
        for name, openings in zip(self._counts[permit.operation], permit.openings):
            circuit = self._circuits[name]
            if circuit.openings != openings:
                continue
            if problem is None or isinstance(problem, _ANSWERS):
                circuit.relapses = 0
                effects += self._close(circuit, now_ms)
            elif is_failure_of_store(problem):
                effects += self._failed(circuit, problem, now_ms)
        return effects

    def _failed(self, circuit: _Circuit, problem: Exception, now_ms: int) -> Effects:
        circuit.failures += 1
        if circuit.failures < circuit.failures_to_open:
            return []
        effects = self._log(circuit, problem) if circuit.is_open else []
        return [*effects, *self.open(circuit.operation, problem, now_ms)]

    def open(self, operation: Operation, problem: Exception, now_ms: int) -> Effects:
        """Open a circuit; send the first probe."""
        circuit = self._circuits[operation]
        circuit.failures = 0
        circuit.openings += 1
        circuit.problem = str(problem)
        circuit.opened_ms = now_ms if circuit.opened_ms is None else circuit.opened_ms
        if circuit.has_probe:
            return self._probe(now_ms)
        circuit.relapses += 1
        longest_ms = COPY_WAIT_MAX_MS if operation == "copy" else None
        circuit.due_ms = now_ms + self._backoff_ms(circuit.relapses, longest_ms)
        return []

    def _close(self, circuit: _Circuit, now_ms: int) -> Effects:
        opened_ms, was_logged = circuit.opened_ms, circuit.is_logged
        circuit.opened_ms, circuit.is_logged, circuit.failures = None, False, 0
        if opened_ms is None:
            return []
        effects: Effects = []
        if self._was_down and not self.is_any_open:
            self._was_down = False
            self._unanswered.store_answers()
            effects = self.on_answering(now_ms)
        if was_logged:
            seconds = (now_ms - opened_ms) // SECOND_MS
            again = STORE_ANSWERS_AGAIN(operation=circuit.operation, after_s=seconds)
            effects = [again, *effects]
        return effects

    def _log(self, circuit: _Circuit, problem: Exception) -> Effects:
        """Log the first failure that shows that the store is down; not those after it."""
        circuit.problem = str(problem)
        self._was_down = True
        if circuit.is_logged:
            return []
        circuit.is_logged = True
        stopped = [_WORK[each] for each in OPERATIONS if circuit.operation in self._needs[each]]
        stops = ", ".join(stopped)
        return [STORE_FAILS(operation=circuit.operation, stopped=stops, error=problem)]

    # ------------------------------------------------------------------------------------- probes

    def suspect(self, operation: Operation, now_ms: int) -> Effects:
        """A call has no answer for a long time: ask the store whether it answers at all."""
        needed = [each for each in self._needs[operation] if self._circuits[each].has_probe]
        if not needed:
            return []
        self._suspects = [each for each in _PROBED if each in needed or each in self._suspects]
        return self._probe(now_ms)

    def overdue(self, name: str, began_ms: int, now_ms: int) -> Effects:
        """A call should have had its answer by now."""
        effects = self._unanswered.overdue(name, began_ms, now_ms)
        return [] if self._is_logged else effects  # a circuit has logged why

    def ended(
        self, name: str, problem: Exception | None, now_ms: int, *, was_overdue: bool
    ) -> Effects:
        """A call has ended. The error of a client that has waited long enough is no answer of the store."""
        is_answered = problem is None or isinstance(problem, _ANSWERS)
        effects = self._unanswered.ended(
            name, now_ms, was_overdue=was_overdue, is_answered=is_answered
        )
        return [] if self._is_logged else effects  # a circuit will log its end

    def _probe(self, now_ms: int) -> Effects:
        if self._is_probing:
            return []
        self._is_probing = True
        return self._send_probe(now_ms)

    def _send_probe(self, now_ms: int) -> Effects:
        due = tuple(each for each in _PROBED if self._circuits[each].is_open)
        if due:
            self._suspects = []
        elif self._suspects:
            due = (self._suspects.pop(0),)
        if self._is_over or not due:
            self._is_probing = False
            return []
        assert self._store is not None
        self._is_waiting = False
        sent = _Probe(partial(probe, self._store, self._check_owner, due))
        return [
            Submit(
                name="probe the store of the tier",
                pool="probe",
                work=sent.run,
                then=partial(self._probed, due),
                run_timeout_ms=PROBE_TIMEOUT_MS,
                ended=partial(self._probe_ended, sent),
            )
        ]

    def _probe_ended(self, sent: "_Probe", now_ms: int) -> Effects:
        """A probe that was given up has ended. If it has succeeded the store may be back: do not wait."""
        if not sent.has_succeeded or not self._is_waiting:
            return []
        return [CancelTimer(key=_TIMER), *self._send_probe(now_ms)]

    def _probed(
        self,
        due: Sequence[Operation],
        result: tuple[int, Exception | None] | Exception,
        now_ms: int,
    ) -> Effects:
        succeeded, problem = (0, result) if isinstance(result, Exception) else result
        if isinstance(problem, WorkTimedOut):  # as an operator would say it
            problem = WorkTimedOut(
                f"the store has not answered within {PROBE_TIMEOUT_MS / 1000:g} s"
            )
        effects: Effects = []
        for name in due[:succeeded]:
            if self._circuits[name].is_open:
                effects += self._close(self._circuits[name], now_ms)
        copying = self._circuits["copy"]
        if "write" in due[:succeeded] and copying.is_open and copying.relapses <= 1:
            # Copies failed as other writes did. The first one that fails now opens it again, for longer.
            effects += self._close(copying, now_ms)
        if problem is not None:
            failed = self._circuits[due[succeeded]]
            if not failed.is_open:  # it was sent because of a call that is slow
                if not is_failure_of_store(problem):
                    self._suspects = []
                    return [*effects, *self._send_probe(now_ms)]
                effects += self.open(failed.operation, problem, now_ms)
            self._failed_probes += 1
            effects += self._log(failed, problem)
            at_ms = now_ms + self._backoff_ms(self._failed_probes, None)
            self._is_waiting = True
            return [*effects, SetTimer(key=_TIMER, at_ms=at_ms, then=self._send_probe)]
        self._failed_probes = 0
        return [*effects, *self._send_probe(now_ms)]


def _nothing(_now_ms: int) -> Effects:
    return []


def is_failure_of_store(problem: Exception) -> bool:
    """Whether the error shows that the store did not do what it should; plug-ins may raise anything.

    A pool that is full has not asked the store. Objects that are missing or damaged are answers of it.
    """
    if isinstance(problem, RemoteStorageError | WorkTimedOut | WorkFailed):
        return True
    return not isinstance(problem, FirnlineError)
