"""What `make lowest` installs is what pyproject.toml declares, and the pages say the same."""

import re

import pytest

from tests.lowest import ROOT, constraints, declared_project, packages

PROJECT = declared_project()


def test_every_package_is_pinned_to_its_lower_bound() -> None:
    found = constraints(PROJECT)
    bounds = {re.sub(r"[>=]=([\w.]+).*", r"==\1", each) for each in packages(PROJECT)}
    assert set(found) == bounds
    assert {"click", "numpy", "obstore", "pandas", "pyarrow", "pyspark"} <= {
        each.partition("==")[0] for each in found
    }


@pytest.mark.parametrize(
    ("declared", "pinned"),
    [
        ("a>=1.2", ["a==1.2"]),
        ("a-b>=1.2,<3", ["a-b==1.2"]),
        ("a>=1.2,!=1.3", ["a==1.2"]),
        ("a[x,y]>=1.2; sys_platform == 'linux'", ["a==1.2"]),
        ("a==1.2", ["a==1.2"]),
        ("us[x]", []),
    ],
)
def test_a_pin(declared: str, pinned: list[str]) -> None:
    project = {"name": "us", "dependencies": [declared], "optional-dependencies": {}}
    assert constraints(project) == pinned


@pytest.mark.parametrize("declared", [["a"], ["a<3"], ["a>1"], ["a>=1.2", "a>=1.3"]])
def test_a_package_without_one_lowest_version_is_refused(declared: list[str]) -> None:
    with pytest.raises(ValueError, match="lowest version"):
        constraints({"name": "us", "dependencies": [], "optional-dependencies": {"x": declared}})


def test_the_python_of_make_lowest_is_the_lowest_declared() -> None:
    python = PROJECT["requires-python"].removeprefix(">=")
    assert f"LOWEST_PYTHON ?= python{python}\n" in (ROOT / "Makefile").read_text()
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]


def test_the_page_of_spark_states_these_bounds() -> None:
    """Streams need more than the package does: `source.py` says so to whoever starts one."""
    lowest = dict(each.split("==") for each in constraints(PROJECT))
    page = " ".join((ROOT / "docs" / "SPARK.md").read_text().split())
    assert (
        f"It needs PySpark {lowest['pyspark']}, pyarrow {lowest['pyarrow']} and numpy"
        f" {lowest['numpy']}, or newer" in page
    )
