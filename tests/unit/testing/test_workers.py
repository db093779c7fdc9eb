"""The order in which the workers get the files of the whole run."""

from types import SimpleNamespace

import pytest

from firnline.cli import dev_cluster
from tests.peers.ports import free_ports, own_ports
from tests.workers import Lanes, folder_of, order

FILES = {
    "tests/chaos/test_c.py": 3,
    "tests/mixed/test_m.py": 2,
    "tests/spark/test_s.py": 4,
    "tests/compat/test_k.py": 3,
    "tests/unit/log/test_u.py": 5,
    "tests/unit/raft/test_v.py": 2,
    "tests/unit/native/test_n.py": 2,
    "tests/test_docs.py": 3,
    "tests/mutants/test_x.py": 9,
    "tests/oracle/test_o.py": 2,
}


class Worker:
    """Takes what it is given, and does one test at a time."""

    shutting_down = False
    gateway = SimpleNamespace(id="gw")

    def __init__(self) -> None:
        self.queue: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.queue += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def files_done(count: int, speeds: tuple[int, ...]) -> list[list[str]]:
    """Return the file of each test that a worker did, if it does so many while others do theirs."""
    option = SimpleNamespace(loadscopereorder=True)
    config = SimpleNamespace(getvalue=lambda name: [f"{count}*popen"], option=option)
    scheduler = Lanes(config)
    workers = [Worker() for _ in range(count)]
    tests = [f"{file}::test[{number}]" for file, many in FILES.items() for number in range(many)]
    for worker in workers:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, tests)
    scheduler.schedule()
    done: list[list[str]] = [[] for _ in workers]
    while any(worker.queue for worker in workers):
        for worker, files, speed in zip(workers, done, speeds):
            for _ in range(min(speed, len(worker.queue))):
                test = worker.queue.pop(0)
                files.append(tests[test].partition("::")[0])
                scheduler.mark_test_complete(worker, test)
    return done


@pytest.mark.parametrize("speeds", [(1, 1, 1), (9, 1, 1), (1, 9, 1), (1, 1, 9)])
def test_each_test_is_run_once_whoever_is_fast(speeds: tuple[int, ...]) -> None:
    done = files_done(3, speeds)
    assert {file: sum(files.count(file) for files in done) for file in FILES} == FILES


def test_two_begin_with_what_waits_each_with_its_own_and_one_with_what_computes() -> None:
    kafkas, sparks, computes = ([*dict.fromkeys(files)] for files in files_done(3, (1, 1, 1)))
    assert kafkas[:2] == ["tests/mixed/test_m.py", "tests/compat/test_k.py"]
    assert sparks[:2] == ["tests/chaos/test_c.py", "tests/spark/test_s.py"]
    assert computes[:2] == ["tests/mutants/test_x.py", "tests/oracle/test_o.py"]


def test_of_two_workers_one_begins_with_all_that_waits() -> None:
    waits, computes = ([*dict.fromkeys(files)] for files in files_done(2, (1, 1)))
    assert waits[:3] == [
        *("tests/mixed/test_m.py", "tests/compat/test_k.py"),
        "tests/chaos/test_c.py",
    ]
    assert computes[:2] == ["tests/mutants/test_x.py", "tests/oracle/test_o.py"]


@pytest.mark.parametrize(("number", "count"), [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)])
def test_whatever_folder_a_file_is_in_some_place_is_its_own(number: int, count: int) -> None:
    folders = order(number, count)
    placed = {file: folders[folder_of(file, folders)] for file in (*FILES, "tests/new/test_n.py")}
    assert placed["tests/new/test_n.py"] == placed["tests/test_docs.py"] == "tests/"
    assert placed["tests/unit/raft/test_v.py"] == "tests/unit/"
    assert placed["tests/unit/native/test_n.py"] == "tests/unit/native/"
    assert placed["tests/chaos/test_c.py"] == "tests/chaos/"


def test_no_worker_takes_the_port_of_a_node_that_is_down_under_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[set[int]] = []
    for worker in ("gw0", "gw1", "gw2"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
        assert set(free_ports(50)) <= set(own_ports(worker, 3))
        taken.append(set(own_ports(worker, 3)))
    assert len(set.union(*taken)) == sum(map(len, taken)) == 9_999
    assert not set.union(*taken) & set(dev_cluster._PORTS)
