"""A run of pytest with the fixtures: what a failure shows, who dies when, and that nothing is left behind."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from firnline.testing.process import has_ended

pytestmark = pytest.mark.slow
PATIENCE_S = 30.0
FAILING = """
import os, signal, time
import pytest

def kill(pid):
    os.kill(pid, signal.SIGKILL)
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody is told
    except ChildProcessError:
        pass  # somebody has waited for it

def test_passes(firnline_broker):
    pass

def test_waits_for_a_broker_that_dies(firnline_topic, firnline_session_broker):
    firnline_topic.put("kept")
    open("topic", "w").write(firnline_topic)
    os.kill(firnline_session_broker.pid, signal.SIGKILL)
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        try:
            time.sleep(200)
        except Exception:
            pass  # as clients do

def test_does_not_notice(firnline_topic, firnline_session_broker):
    from firnline.testing import Topic
    assert Topic(open("topic").read(), firnline_topic.bootstrap).values() == [b"kept"]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # as a library may do
    kill(firnline_session_broker.pid)

def test_goes_on(firnline_topic):
    firnline_topic.put("again")

def test_fails(firnline_broker):
    firnline_broker.create_topic("a-topic-of-this-test")
    assert 0

@pytest.mark.firnline_may_die
def test_kills_by_pid(firnline_broker):
    kill(firnline_broker.pid)

@pytest.mark.firnline_settings({"num.partitions": 3})
def test_would_be_ignored(firnline_topic):
    pass
"""
WORKERS = """
import os
import pytest

@pytest.mark.parametrize("number", range(8))
def test_has_a_broker(number, firnline_topic, firnline_session_broker):
    firnline_topic.put("x")
    assert firnline_topic.values() == [b"x"]
    with open("seen", "a") as file:
        file.write(f"{os.environ['PYTEST_XDIST_WORKER']} {firnline_session_broker.port}\\n")
"""
# Says which processes there are, then waits to be killed.
CRASHING = """
import os, time
from firnline.testing import Broker, Cluster

broker, cluster = Broker(), Cluster(nodes=2)
broker.start()
cluster.start()
cluster.kill_node(2)
cluster.start_node(2)
child = os.fork()
if child:
    pids = broker.pid, cluster.process.pid, cluster.pid(1), cluster.pid(2)
    print(child, *pids, flush=True)
time.sleep(60)
"""


def run_pytest(folder: Path, text: str, *options: str) -> str:
    (folder / "test_them.py").write_text(text)
    # The broker says that this has no meaning: a line of log.
    (folder / "pytest.ini").write_text("[pytest]\nfirnline_settings = num.io.threads=2\n")
    outer = ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_ADDOPTS")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", *options],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k not in outer},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the run of FAILING printed of each test, by its name, and all of it by "" ."""
    folder = tmp_path_factory.mktemp("failing")
    said = run_pytest(folder, FAILING, "--basetemp", str(folder / "base"))
    parts = re.split(r"^_+ (test_\w+|ERROR at setup of test_\w+) _+$", said, flags=re.MULTILINE)
    return {"": said, "base": str(folder / "base"), **dict(zip(parts[1::2], parts[2::2]))}


def test_a_failure_shows_the_log_and_where_the_files_are(failing: dict[str, str]) -> None:
    said = failing["test_fails"]
    assert "firnline log of broker" in said
    assert "without meaning here keys=num.io.threads" in said
    (files,) = re.findall(r"- firnline files of broker -+\n(.+)\n", said)
    assert (Path(files) / "a-topic-of-this-test-0").is_dir()


def test_the_files_of_a_test_that_passed_are_gone(failing: dict[str, str]) -> None:
    assert "PASSED test_them.py::test_passes" in failing[""]
    # That of the session, and that of the test which failed.
    assert len(list(Path(failing["base"]).glob("firnline*/data"))) == 2


@pytest.mark.parametrize("name", ["test_waits_for_a_broker_that_dies", "test_does_not_notice"])
def test_a_broker_that_dies_fails_its_test_with_its_last_lines(
    failing: dict[str, str], name: str
) -> None:
    said = failing[name]
    assert re.search(r"the broker at 127\.0\.0\.1:\d+ was killed by SIGKILL", said)
    assert re.search(r"The last lines of .*data\.log:\n.*num\.io", said)


def test_a_test_that_waits_is_interrupted(failing: dict[str, str]) -> None:
    took = re.search(r"\d failed.* in (\d+)\.\d+s", failing[""])
    assert took
    assert int(took[1]) < 150, "the test slept to its end"


def test_the_broker_of_the_session_is_there_again(failing: dict[str, str]) -> None:
    assert "PASSED test_them.py::test_goes_on" in failing[""]


def test_a_test_may_say_that_it_kills(failing: dict[str, str]) -> None:
    assert "PASSED test_them.py::test_kills_by_pid" in failing[""]


def test_a_marker_that_nothing_takes_is_refused(failing: dict[str, str]) -> None:
    said = failing["ERROR at setup of test_would_be_ignored"]
    assert "the marker firnline_settings is for firnline_broker and firnline_cluster" in said


def test_each_worker_has_a_broker_of_its_own(tmp_path: Path) -> None:
    run_pytest(tmp_path, WORKERS, "-n", "2", "--dist", "each")
    seen = [tuple(line.split()) for line in (tmp_path / "seen").read_text().splitlines()]
    assert len(seen) == 16
    assert len(set(seen)) == 2
    assert len({port for _, port in seen}) == 2


def eventually(what: str, look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_nothing_outlives_a_test_process_that_is_killed(tmp_path: Path) -> None:
    """Not its brokers, a node that was started again, nor a directory, though a forked child lives on."""
    with subprocess.Popen(
        [sys.executable, "-c", CRASHING],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        child, *pids = map(int, process.stdout.readline().split())
        try:
            assert len(pids) == 4
            assert len(list(tmp_path.glob("firnline-test-*"))) == 2
            process.kill()
            for pid in pids:
                eventually(f"process {pid} is gone", lambda pid=pid: has_ended(pid))
            eventually("the directories are gone", lambda: not list(tmp_path.iterdir()))
            assert not has_ended(child)
        finally:
            os.kill(child, signal.SIGKILL)
