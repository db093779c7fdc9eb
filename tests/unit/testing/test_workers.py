"""The order in which two workers get the files of the whole run."""

from types import SimpleNamespace

from tests.workers import FromBothEnds, place

FILES = {
    "tests/chaos/test_c.py": 3,
    "tests/mixed/test_m.py": 2,
    "tests/spark/test_s.py": 4,
    "tests/unit/log/test_u.py": 5,
    "tests/unit/raft/test_v.py": 2,
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


def test_one_begins_with_what_waits_the_other_with_what_computes_and_each_is_run_once() -> None:
    option = SimpleNamespace(loadscopereorder=True)
    config = SimpleNamespace(getvalue=lambda name: ["2*popen"], option=option)
    scheduler = FromBothEnds(config)
    workers = [Worker(), Worker()]
    tests = [f"{file}::test[{number}]" for file, count in FILES.items() for number in range(count)]
    for worker in workers:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, tests)
    scheduler.schedule()
    done: list[list[str]] = [[], []]
    while any(worker.queue for worker in workers):
        for worker, files in zip(workers, done):
            if worker.queue:
                test = worker.queue.pop(0)
                files.append(tests[test].partition("::")[0])
                scheduler.mark_test_complete(worker, test)
    assert {file: sum(f.count(file) for f in done) for file in FILES} == FILES
    assert [*dict.fromkeys(done[0])][:2] == ["tests/mixed/test_m.py", "tests/spark/test_s.py"]
    assert [*dict.fromkeys(done[1])][:2] == ["tests/mutants/test_x.py", "tests/oracle/test_o.py"]


def test_a_file_of_a_folder_that_has_no_place_stands_between_what_waits_and_what_computes() -> None:
    between = place("tests/new/test_n.py")
    assert place("tests/wire/test_w.py") < between < place("tests/unit/spark/test_u.py")
