"""The page of all families of metrics is that of the code.

Real nodes are asked in tests/chaos/test_operations_page.py and tests/compat/test_quorum_example.py.
"""

from pathlib import Path

from firnline.server.broker_metrics.reference import page, printed_on

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metric-families.md"


def test_the_page_is_generated_from_the_code() -> None:
    assert PAGE.read_text() == page(), "run `make docs`"


def test_each_kind_of_node_has_families_of_its_own() -> None:
    on = printed_on()
    assert on["tier"].keys() > on["combined"].keys() > on["broker"].keys()
    assert "firnline_problems" in on["controller"]
    assert "kafka_controller_kafkacontroller_activecontrollercount" not in on["broker"]
