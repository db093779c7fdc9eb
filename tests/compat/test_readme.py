"""The README, run as it stands there, on other ports and in another place."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers.ports import free_ports, free_ports_in_a_row
from tests.transcripts import blocks, run_transcript

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "README.md").read_text()
# What the page has in place of a port that is free.
PORT, CONTROLLER_PORT = "9092", "9093"


# A command of each transcript, which the tests below run; so a new transcript needs a test.
RUN = (
    "produce orders",
    "topic create readings",
    "dev --nodes 3",
    "storage format",
    "cd examples/quorum",
)
# Other lines to type, by their beginning, and where they are run, or why not.
ELSEWHERE = {
    "pip install": "tools/install.sh installs the package with its extras: that is where the tests run",
    "make test": "this",
    "make demo": "tests/spark/test_flights.py runs its parts, smaller",
    "export ": "values of the reader's own",
    "firnline tier check s3": "tests/compat/test_stores.py",
    "firnline dev --tier s3": "tests/compat/test_stores.py",
    "firnline tier check az": "tests/compat/test_stores.py",
    "firnline dev --tier az": "tests/compat/test_stores.py",
    "firnline tier check hdfs": "tests/compat/test_stores.py",
    "firnline dev --tier hdfs": "tests/compat/test_stores.py",
    "firnline tier check gs": "not tested, as the page says",
    "firnline dev --tier gs": "not tested, as the page says",
}


def python_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def test_every_line_to_type_is_run_or_it_is_said_why_not() -> None:
    assert len(blocks(PAGE)) == len({block(command) for command in RUN}) == len(RUN)
    prose = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    typed = re.findall(r"^    (.+)$", prose, re.MULTILINE)
    assert [line for line in typed if not line.startswith(tuple(ELSEWHERE))] == []
    assert [each for each in ELSEWHERE if not any(line.startswith(each) for line in typed)] == []


def block(begins: str) -> str:
    """Return the transcript of the page that has a command."""
    assert begins in RUN
    (found,) = [each for each in blocks(PAGE) if begins in each]
    return found


def environment(place: Path, port: int) -> dict[str, str]:
    """A shell in which `firnline` is ours, and the port of the defaults another one."""
    program = place / "bin" / "firnline"
    program.parent.mkdir()
    ours = f"exec {sys.executable} -m firnline"
    program.write_text(
        f'#!/bin/sh\n[ "$1" != dev ] || {{ shift; set -- dev --port {port} "$@"; }}\n{ours} "$@"\n'
    )
    program.chmod(0o755)
    path = os.pathsep.join(
        [str(program.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    )
    return {**os.environ, "PATH": path, "FIRNLINE_BOOTSTRAP": f"127.0.0.1:{port}"}


@pytest.mark.spark
@pytest.mark.timeout(700)
def test_the_first_screen(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="NOT RUN: PySpark is not installed")
    (port,) = free_ports(1)
    replaced = {PORT: str(port), "/tmp/tier": str(tmp_path / "tier")}
    first = block("produce orders")
    run_transcript(first, tmp_path, environment(tmp_path, port), replaced=replaced, within_s=300)


def test_the_test_is_that_of_the_page_about_tests() -> None:
    """There it runs: tests/unit/testing/test_pages.py."""
    (shown,) = python_blocks(PAGE)
    assert shown == python_blocks((ROOT / "docs" / "TESTING.md").read_text())[0]


def test_what_else_a_new_user_tries(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    replaced = {PORT: str(port), "/tmp/tier": str(tmp_path / "tier")}
    run_transcript(
        block("topic create readings"), tmp_path, environment(tmp_path, port), replaced=replaced
    )


def test_a_cluster_in_one_line(tmp_path: Path) -> None:
    """A node is killed. Whoever types the words reads its number off the screen."""
    first = free_ports_in_a_row(3)
    found = re.sub(
        r"\b909([234])\b", lambda match: str(first + int(match[1]) - 2), block("dev --nodes 3")
    )
    nodes = tmp_path / "nodes"
    nodes.mkdir()
    replaced = {"/tmp/": f"{nodes}/", "$PID_OF_NODE_2": f"$(pgrep -f {nodes}/.*/node-2/)"}
    shell = environment(tmp_path, first) | {"TMPDIR": str(nodes)}
    run_transcript(found, tmp_path, shell, replaced=replaced, within_s=90)


def test_three_controllers_of_which_one_loses_its_files(tmp_path: Path) -> None:
    """What the example's nodes do in more detail: test_quorum_example.py."""
    place = tmp_path / "examples" / "quorum"
    ignored = shutil.ignore_patterns("data", "__pycache__")
    shutil.copytree(ROOT / "examples" / "quorum", place, ignore=ignored)
    found = block("cd examples/quorum")
    ports = sorted(
        {*re.findall(r"\b9[01]9\d\b", "".join(x.read_text() for x in place.glob("*.properties")))}
    )
    assert len(ports) == 7
    free = dict(zip(ports, map(str, free_ports(len(ports)))))

    def moved(text: str) -> str:
        return re.sub(r"\b9[01]9\d\b", lambda match: free[match[0]], text)

    for path in place.glob("*.properties"):
        path.write_text(moved(path.read_text()))
    shell = environment(tmp_path, int(free["9094"]))
    try:
        run_transcript(moved(found), tmp_path, shell, within_s=90, are_numbers_compared=False)
    finally:
        subprocess.run([sys.executable, place / "cluster.py", "stop"], timeout=120, check=True)
    logs = {path.stem: path.read_text() for path in (place / "data").glob("*.log")}
    assert len(logs) == 5
    assert [name for name, text in logs.items() if "Traceback" in text] == []


def test_a_node_of_your_own(tmp_path: Path) -> None:
    node = block("storage format")
    port, controller_port = free_ports(2)
    replaced = {PORT: str(port), CONTROLLER_PORT: str(controller_port)}
    run_transcript(node, tmp_path, environment(tmp_path, port), replaced=replaced)
