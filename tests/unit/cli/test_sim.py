"""`firnline sim`: what programs read is on the last line, and a failure explains itself."""

import json
import re

from click.testing import CliRunner, Result

from firnline.cli.main import cli
from firnline.sim.run import run

BROKEN = "--seed 4 --seconds 10 --mode broken"


def sim(words: str) -> Result:
    return CliRunner().invoke(cli, ["sim", *words.split()])


def test_the_last_line_of_a_quiet_run_is_one_json_value() -> None:
    result = sim("run --seed 3 --seconds 5 --format json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["violations"] == []
    assert found["digest"] == run(3, seconds=5).digest
    assert found["simulated_s"] > 5
    assert {"wall_s", "cpu_s", "faults", "committed"} <= found.keys()
    assert found["faults_per_10_s"] == round(found["faults"] * 10 / found["simulated_s"], 2)


def test_a_failure_gives_the_seed_a_command_that_plays_it_again_fewer_faults_and_the_story() -> (
    None
):
    result = sim(f"run {BROKEN} --shrink-seconds 2 --format json")
    assert result.exit_code == 3
    found = json.loads(result.stdout.splitlines()[-1])
    (first, *_) = found["violations"]
    assert found["beyond_budget"], "the fault that went too far is named"
    text = result.stderr
    assert f"{first['invariant']} violated at" in text
    assert "firnline sim replay --seed 4 --seconds 10 --mode broken" in text
    assert re.search(r"shrunk from \d+ to \d+ faults", text)
    story = [line for line in text.splitlines() if "VIOLATION" in line]
    assert story, "the story ends with what went wrong"
    assert "seconds node event" in text


def test_what_is_replayed_is_what_failed() -> None:
    """Goal: the printed command shows the same failure. Method: take it from the output and run it."""
    text = sim(f"run {BROKEN} --shrink-seconds 2").stdout
    (command,) = re.findall(r"^shrunk: firnline sim (replay .*)$", text, re.MULTILINE)
    again = sim(command)
    assert again.exit_code == 3
    first = re.findall(r"(rel-\S+) violated", text)
    assert f"{first[0]} violated" in again.stdout
    assert len(again.stdout.splitlines()) < 250
    assert len(sim(f"{command} --all").stdout.splitlines()) > len(again.stdout.splitlines())


def test_faults_outside_of_the_mask_do_not_happen() -> None:
    everything = json.loads(sim("run --seed 5 --seconds 12 --format json").stdout)
    assert everything["faults"] > 2
    none = sim("run --seed 5 --seconds 12 --mask none --format json")
    assert json.loads(none.stdout)["faults"] == 0


def test_a_mask_that_is_none_is_refused() -> None:
    result = sim("run --seed 5 --mask 1,x")
    assert result.exit_code == 2
    assert "is not like 3,7-9" in result.stderr
