"""`Broker` without pytest: a block, its end and its errors; forks, threads, and what lies in the way."""

import contextlib
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from firnline.testing import Broker, Died, Topic
from firnline.testing.process import has_ended, last_lines

pytestmark = pytest.mark.slow
# The broker says that it has no meaning: a line of log.
LOGGED = {"num.io.threads": 2}


def test_a_block_has_a_broker_and_leaves_nothing() -> None:
    with Broker(settings={"num.partitions": 3, "auto.create.topics.enable": False}) as broker:
        folder, pid = broker.directory.parent, broker.pid
        assert broker.create_topic(partitions=2).values() == []
        assert folder.is_dir()
    assert not folder.exists()
    assert has_ended(pid)


def test_a_directory_of_ones_own_is_kept(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", tier=tmp_path / "tier") as broker:
        broker.create_topic("t", remote_storage_enable=True).put("a")
    with Broker(tmp_path / "data", tier=tmp_path / "tier") as broker:
        assert Topic("t", broker.bootstrap).values() == [b"a"]


def test_an_error_in_the_block_has_the_log_as_a_note() -> None:
    with pytest.raises(ZeroDivisionError) as caught, Broker(settings=LOGGED):
        raise ZeroDivisionError
    (note,) = caught.value.__notes__
    assert re.fullmatch(r"The last lines of .*\n.*num\.io\.threads.*", note, re.DOTALL)


def test_a_broker_that_dies_fails_the_block() -> None:
    def use() -> None:
        with Broker(settings=LOGGED) as broker:
            os.kill(broker.pid, signal.SIGKILL)
            while broker.death() is None:
                time.sleep(0.01)

    with pytest.raises(Died, match=r"was killed by SIGKILL. The last lines of .*\n.*num\.io"):
        use()


def test_a_setting_that_is_none_is_told_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with (
        pytest.raises(RuntimeError, match=r"num\.partitionz"),
        Broker(settings={"num.partitionz": 1}),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_ends_without_closing_leaves_nothing(tmp_path: Path) -> None:
    code = "from firnline.testing import Broker\nb = Broker()\nb.start()\nprint(b.pid)\n{}"
    for rest in ("", "b.kill()"):
        done = subprocess.run(
            [sys.executable, "-c", code.format(rest)],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            check=True,
            timeout=60,
        )
        deadline = time.monotonic() + 20
        while not has_ended(int(done.stdout)) or list(tmp_path.iterdir()):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_what_is_in_the_working_directory_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit('the wrong click')")
    monkeypatch.chdir(tmp_path)
    with Broker(tmp_path / "data"):
        pass


def test_a_broker_that_a_thread_starts_outlives_the_thread() -> None:
    with contextlib.closing(Broker()) as broker:
        thread = threading.Thread(target=broker.start)
        thread.start()
        thread.join()
        time.sleep(0.3)
        assert broker.create_topic().values() == []


def test_a_forked_process_uses_the_broker_and_cannot_end_it() -> None:
    with Broker() as broker:
        topic = broker.create_topic()
        child = os.fork()
        if not child:
            code = 1
            try:
                topic.put("from the child")
                broker.__exit__(None, None, None)
                with pytest.raises(RuntimeError, match="belongs to process"):
                    broker.stop()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert topic.values() == [b"from the child"]
        assert broker.directory.is_dir()


def test_a_forked_process_that_ends_leaves_the_files() -> None:
    code = "import os, sys\nfrom firnline.testing import Broker\nwith Broker() as b:\n"
    code += "  if not os.fork(): sys.exit()\n  os.wait()\n  assert b.directory.is_dir()\n"
    code += "  b.restart()\n  assert b.create_topic().values() == []"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_broker_does_not_go_to_a_spawned_process() -> None:
    with pytest.raises(TypeError, match="pass its `bootstrap`"):
        pickle.dumps(Broker())


def test_a_long_log_is_cut_at_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert last_lines(path) == ""
    path.write_text("".join(f"{number}\n" for number in range(10)))
    assert last_lines(path, 2) == "... 8 lines before\n8\n9"
    assert last_lines(path, 2, position=16) == "8\n9"


@pytest.mark.parametrize("problem", [FileNotFoundError, ProcessLookupError])
def test_a_process_that_ends_while_it_is_looked_at_is_gone(
    monkeypatch: pytest.MonkeyPatch, problem: type[OSError]
) -> None:
    """Its file in /proc is not there, or is open already and cannot be read any more."""

    def gone(path: Path) -> str:
        raise problem

    assert not has_ended(os.getpid())
    monkeypatch.setattr(Path, "read_text", gone)
    assert has_ended(os.getpid())
