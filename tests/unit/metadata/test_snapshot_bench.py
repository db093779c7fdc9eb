"""The measurement of a snapshot runs with the smallest image; what it measures is no test's business."""

import sys

import pytest

from bench import snapshots


def test_a_snapshot_of_a_small_image_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["snapshots", "--partitions", "100", "--changes", "100"])
    snapshots.main()
    said = capsys.readouterr().out
    assert "What does a snapshot cost" in said
    assert "10000    True" in said, "after a hundred times as many changes"
