"""The scheme that a GGUF declares under `general.file_type`."""

from __future__ import annotations

from typing import Any

import pytest
from gguf.constants import LlamaFileType

from ninfer_convert.sources.gguf_schemes import SCHEMES, declared_scheme


def test_names_and_numbers_are_llama_cpps() -> None:
    theirs = {number: LlamaFileType(number).name for number in SCHEMES}
    assert {number: name.removeprefix("ALL_").removeprefix("MOSTLY_") for number, name in theirs.items()} == SCHEMES
    assert len(SCHEMES) >= 35


@pytest.mark.parametrize("value", [None, 4, 33, 1024, -1, 15.0, "15", True])
def test_what_declares_nothing(value: Any) -> None:
    assert declared_scheme({} if value is None else {"general.file_type": value}) is None
