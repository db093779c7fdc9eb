"""kio, an independent implementation, reads and re-writes our bytes: the oracle where there is no Java."""

from importlib import import_module
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from firnline.base.background import run_to_completion
from firnline.base.limits import ARRAY_ELEMENTS_MAX
from firnline.protocol.compile import slicing_reader
from firnline.protocol.messages import MODULES, REQUESTS
from firnline.protocol.schema import Message
from tests.oracle.generate import messages, versions


def in_kio(cls: type[Message], version: int) -> Any:
    """kio's class for one of our messages, or None where its release has none."""
    module_name = MODULES[cls.key][0].partition("_")[2]
    side = "request" if cls.__name__.endswith("Request") else "response"
    try:
        module = import_module(f"kio.schema.{module_name}.v{version}.{side}")
    except ModuleNotFoundError:
        return None
    return getattr(module, cls.__name__)


ALL = [
    (cls, version)
    for key in MODULES
    for cls in REQUESTS[key]
    for version in versions(cls)
    if in_kio(cls, version) is not None
]


def test_kio_has_nearly_all_of_them() -> None:
    assert len(ALL) > 400


@pytest.mark.parametrize(("cls", "version"), ALL, ids=lambda x: getattr(x, "__name__", f"v{x}"))
@given(data=st.data())
@settings(settings.get_profile("oracle"), max_examples=5)
def test_kio_reads_what_we_write_and_we_read_what_kio_writes(
    cls: type[Message], version: int, data: st.DataObject
) -> None:
    message: Any = data.draw(messages(cls, version, tame=True))
    ours = message.write(version)
    theirs = in_kio(cls, version)
    value, size = entity_reader(theirs)(ours, 0)
    assert size == len(ours)
    out = BytesIO()
    entity_writer(theirs)(out, value)
    assert out.getvalue() == ours
    assert cls.read(out.getvalue(), version) == (message, len(ours))
    in_slices = slicing_reader(cls, version)(ours, 0, len(ours), [ARRAY_ELEMENTS_MAX])
    assert run_to_completion(in_slices) == (message, len(ours))
