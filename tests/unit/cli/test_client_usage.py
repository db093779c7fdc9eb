"""`firnline produce` and `firnline consume`: wrong usage is said before a broker is asked."""

import pytest
from click.testing import CliRunner

from firnline.cli.main import cli


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("consume", "t", "-f", "%q"), "%q is not a field"),
        (("consume", "t", "-f", r"\q"), r"\q is not an escape"),
        (("consume", "t", "-o", "x"), "'x' is not a place to begin"),
        (("consume", "t", "-o", "stored"), "name it with -g"),
        (("consume", "t", "-g", "g", "-p", "0"), "a group decides about the partitions"),
        (("consume", "t", "-g", "g", "-o", "5"), "a group resumes where it ended"),
        (("produce", "t", "-f", "%k%s"), "%k and %v need something between them"),
        (("produce", "t", "-f", "json", "-K", ":"), "-k and -K are for lines"),
        (("produce", "t", "-p", "x"), "'x' is not a partition"),
        (("produce", "t", "-D", ""), "a delimiter has at least one byte"),
        (("produce", "t", "--timestamp", "soon"), "'soon' is not a time"),
        (("produce", "t", "-X", "acks"), "'acks' is not key=value"),
    ],
)
def test_wrong_usage_names_the_option_and_says_what_there_is(
    words: tuple[str, ...], said: str
) -> None:
    done = CliRunner().invoke(cli, [*words, "--bootstrap-server", "127.0.0.1:1"])
    assert done.exit_code == 2, done.output
    assert said in " ".join(done.output.split())
