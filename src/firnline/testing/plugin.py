"""The pytest plugin: brokers, clusters and topics as fixtures. WORLD; docs/TESTING.md shows how to use it.

    def test_orders(firnline_topic):
        producer = Producer({"bootstrap.servers": firnline_topic.bootstrap})

    def test_orders_survive_their_leader(firnline_cluster):
        leader = firnline_cluster.leader_of("orders")
        firnline_cluster.kill_node(leader)

Of the session: `firnline_session_broker`, `firnline_session_cluster`; with xdist each worker has its own. Of
each test: `firnline_topic` in the session's broker; `firnline_broker`, `firnline_cluster`, `firnline_tier`,
`firnline_tiered_topic`. Imports only pytest and the standard library before a test uses it.
"""

import shutil
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from firnline.testing.broker import Broker as Broker  # it was here first
    from firnline.testing.cluster import Cluster
    from firnline.testing.process import DevProcess
    from firnline.testing.topic import Topic

    Running = TypeVar("Running", bound=DevProcess)

# Small enough that a few hundred records fill several segments.
TIERED_TOPIC = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "16384",
    "local.retention.bytes": "16384",
    "file.delete.delay.ms": "100",
    "retention.ms": "-1",  # records of a test may have any timestamp
}
LOG_LINES = 40
_SETTINGS = "firnline_settings"
_MARKERS = (
    "firnline_settings(settings): keys of a broker, a dict, for firnline_broker and firnline_cluster",
    "firnline_options(*options): options of `firnline dev` for firnline_broker and firnline_cluster",
    "firnline_nodes(count): how many nodes firnline_cluster has; three without it",
    "firnline_topic(partitions=1, **settings): how firnline_topic is created",
    "firnline_may_die: a broker or a node may end during the test, which kills it by its pid",
)
# What takes these markers. Elsewhere they would be ignored without a word.
_TAKE = {
    "firnline_settings": ("firnline_broker", "firnline_cluster"),
    "firnline_options": ("firnline_broker", "firnline_cluster"),
    "firnline_nodes": ("firnline_cluster",),
    "firnline_topic": ("firnline_topic",),
}
_OF_SESSION = ("firnline_session_broker", "firnline_session_cluster")
_has_failed = pytest.StashKey[bool]()
_log_ends = pytest.StashKey[dict[Path, int]]()
_running: "dict[str, DevProcess]" = {}  # what fixtures have started and not stopped, by their names


def __getattr__(name: str) -> Any:
    """`Broker` was here before it could be imported without pytest."""
    if name == "Broker":
        from firnline.testing.broker import Broker

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# ------------------------------------------------------------------------------------- fixtures


@pytest.fixture(scope="session")
def firnline_session_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[Broker]":
    """A broker for all tests of a session, or of a worker of xdist; each makes topics of its own."""
    from firnline.testing.broker import Broker

    broker = Broker(
        tmp_path_factory.mktemp("firnline") / "data", settings=_session_settings(request.config)
    )
    yield from _run(request, broker)


@pytest.fixture(scope="session")
def firnline_session_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[Cluster]":
    """Three nodes for all tests of a session, or of a worker of xdist; each makes topics of its own."""
    from firnline.testing.cluster import Cluster

    cluster = Cluster(
        tmp_path_factory.mktemp("firnline") / "cluster", settings=_session_settings(request.config)
    )
    yield from _run(request, cluster)


@pytest.fixture
def firnline_topic(
    request: pytest.FixtureRequest, firnline_session_broker: "Broker"
) -> "Iterator[Topic]":
    """A topic for one test, in the broker of the session. It is a str with a name that no other test has.

    It is deleted after the test, unless that failed.
    """
    from firnline.testing.process import unique_name

    marker = request.node.get_closest_marker("firnline_topic")
    name = unique_name(request.node.name)
    topic = firnline_session_broker.create_topic(name, **(marker.kwargs if marker else {}))
    yield topic
    if _has_passed(request.node) and firnline_session_broker.death() is None:
        firnline_session_broker.delete_topic(topic)


@pytest.fixture
def firnline_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[Broker]":
    """A running broker on a free port, stopped after the test.

    Its files are removed, unless the test failed. The markers `firnline_settings` and `firnline_options` say
    how it is started.
    """
    from firnline.testing.broker import Broker

    home = tmp_path_factory.mktemp("firnline")
    yield from _run_for_test(request, Broker(home / "data", **_wishes(request)), home)


@pytest.fixture
def firnline_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[Cluster]":
    """Three running nodes on free ports, topics with three replicas by default; stopped after the test.

    Mark the test with `firnline_nodes(5)` for another number, and otherwise as for `firnline_broker`.
    """
    from firnline.testing.cluster import Cluster

    home = tmp_path_factory.mktemp("firnline")
    marker = request.node.get_closest_marker("firnline_nodes")
    cluster = Cluster(home / "cluster", nodes=marker.args[0] if marker else 3, **_wishes(request))
    yield from _run_for_test(request, cluster, home)


@pytest.fixture
def firnline_tier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the remote tier of `firnline_broker` or `firnline_cluster`."""
    return tmp_path_factory.mktemp("firnline-tier")


@pytest.fixture
def firnline_tiered_topic(firnline_tier: Path, firnline_broker: "Broker") -> "Topic":
    """A topic with one partition, whose segments of 16 KiB go to the remote tier."""
    settings: dict[str, Any] = dict(TIERED_TOPIC)
    return firnline_broker.create_topic("tiered", **settings)


def _session_settings(config: pytest.Config) -> dict[str, str]:
    pairs = [line.partition("=") for line in config.getini(_SETTINGS)]
    for name, equals, _ in pairs:
        if not equals:
            raise pytest.UsageError(f"{_SETTINGS}: expected key=value, not {name!r}")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _wishes(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The tier, the settings and the options of `firnline dev` that a test asks for."""
    wishes: dict[str, Any] = {}
    if "firnline_tier" in request.fixturenames:
        wishes["tier"] = request.getfixturevalue("firnline_tier")
    settings: dict[str, object] = dict(_session_settings(request.config))
    for marker in reversed(list(request.node.iter_markers("firnline_settings"))):
        for given in marker.args:
            settings.update(given)
        settings.update(marker.kwargs)
    wishes["settings"] = settings
    marker = request.node.get_closest_marker("firnline_options")
    wishes["options"] = marker.args if marker else ()
    return wishes


def _run(request: pytest.FixtureRequest, started: "Running") -> "Iterator[Running]":
    started.start()
    _running[str(request.fixturename)] = started
    try:
        yield started
    finally:
        del _running[str(request.fixturename)]
        started.close()


def _run_for_test(
    request: pytest.FixtureRequest, started: "Running", home: Path
) -> "Iterator[Running]":
    yield from _run(request, started)
    if _has_passed(request.node):
        shutil.rmtree(home, ignore_errors=True)


def _has_passed(item: pytest.Item) -> bool:
    return not item.stash.get(_has_failed, True)


# ------------------------------------------------------------------------------------- hooks


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings of all brokers that fixtures start."""
    parser.addini(
        _SETTINGS, "keys of the brokers and clusters of fixtures, key=value", type="linelist"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the plugin's markers."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a marker that no fixture of the test takes; look after the brokers of the session."""
    used = getattr(item, "fixturenames", ())
    for marker, fixtures in _TAKE.items():
        is_for_session = any(name in used for name in _OF_SESSION)
        if is_for_session and item.get_closest_marker(marker) and not set(fixtures) & set(used):
            pytest.fail(
                f"the marker {marker} is for {' and '.join(fixtures)}, and this test uses neither;"
                f" the brokers of the session take the ini option {_SETTINGS}",
                pytrace=False,
            )
    for each in _running.values():
        if each.death() is not None:  # during the test before, which has failed
            each.kill()
            each.start()
    item.stash[_log_ends] = {
        path: path.stat().st_size
        for each in _running.values()
        for path in each.logs().values()
        if path.exists()
    }


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test during which a broker died, whatever its client made of that."""
    if not _fixtures_of(item) or item.get_closest_marker("firnline_may_die"):
        return (yield)
    before = _interrupt_when_a_broker_dies(item)
    try:
        result = yield
    except BaseException as problem:
        if (death := _death(item)) and death not in str(problem):
            pytest.fail(f"{death}\nWhat the test made of it: {problem!r}", pytrace=False)
        raise
    else:
        if death := _death(item):
            pytest.fail(death, pytrace=False)
        return result
    finally:
        if before is not None:
            signal.signal(signal.SIGCHLD, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach to a failure what brokers have logged since the test began, and where their files are."""
    report = yield
    if report.when == "call" or report.failed:
        item.stash[_has_failed] = item.stash.get(_has_failed, False) or report.failed
    if report.failed and report.when != "teardown" and _fixtures_of(item):
        from firnline.testing.process import last_lines

        ends = item.stash.get(_log_ends, {})
        for each in _used(item):
            for name, path in each.logs().items():
                said = last_lines(path, LOG_LINES, position=ends.get(path, 0))
                if said:
                    report.sections.append((f"firnline log of {name}, {path}", said))
            report.sections.append((f"firnline files of {each.what}", str(each.directory)))
    return report


def _fixtures_of(item: pytest.Item) -> list[str]:
    """The fixtures of ours that a test uses, also through others."""
    return [name for name in getattr(item, "fixturenames", ()) if name.startswith("firnline_")]


def _used(item: pytest.Item) -> "list[DevProcess]":
    return [_running[name] for name in _fixtures_of(item) if name in _running]


def _death(item: pytest.Item) -> str | None:
    return next((death for each in _used(item) if (death := each.death())), None)


def _interrupt_when_a_broker_dies(item: pytest.Item) -> Any:
    """Let the death of a broker raise in the test, which may be waiting; return the handler before.

    None without signals, which are of the main thread. The exception is none that a client would catch.
    """
    before = signal.getsignal(signal.SIGCHLD)

    def look(number: int, frame: Any) -> None:
        __tracebackhide__ = True
        if death := _death(item):
            pytest.fail(death)
        if callable(before):
            before(number, frame)

    try:
        signal.signal(signal.SIGCHLD, look)
    except ValueError:
        return None
    return before
