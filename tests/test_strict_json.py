"""JSON as untrusted headers need it: every way to lose or bend a value is refused, with its place."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_convert import strict_json
from ninfer_convert.strict_json import JsonFault, parse

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
)


@given(VALUES, st.booleans())
def test_what_the_standard_parser_writes_is_read(value: object, ascii_only: bool) -> None:
    try:
        data = json.dumps(value, ensure_ascii=ascii_only).encode()
    except UnicodeEncodeError:
        return
    if "\\ud" not in data.decode():
        assert parse(data) == value


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_read(kind: type[bytes]) -> None:
    assert parse(kind(b'{"a": [1, 2.5, true]}')) == {"a": [1, 2.5, True]}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "is not JSON"),
        (b'{"a": 1', "is not JSON: .* at line 1, column 8"),
        (b"{}\n{}", "is not JSON: .* at line 2, column 1"),
        (b'"\xff"', "is not UTF-8 at byte 1"),
        (b"\xef\xbb\xbf{}", "begins with a byte order mark"),
        (b'{"a": 1, "a": 1}', "has the member 'a' twice"),
        (b'[{"x\\n": {"k": 1, "l": 2, "k": 3}}]', "has the member 'k' twice"),
        (b"NaN", "holds NaN, which is not JSON"),
        (b'{"a": {"b": [1, {"c": Infinity}]}}', r"holds Infinity at a\.b\[1\]\.c, which"),
        (b'{"a\\u001b": -Infinity}', r"holds -Infinity at a\\x1b, which"),
        (b"[1e400]", r"holds the number 1e400 at \[0\], beyond binary64"),
        (b'{"a": -1e999, "b": NaN}', "holds the number -1e999 at a, beyond binary64"),
        (b"1" * 310, r"holds the number 1{40}\.\.\., beyond binary64"),
        (b"1" * 10_000, r"holds the number 1{40}\.\.\., beyond binary64"),
        (b'"\\ud800"', "holds a lone surrogate"),
        (b'{"\\udfff": 1}', "holds a lone surrogate"),
        (b"[" * 65 + b"]" * 65, "nests deeper than 64"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "nests deeper than 64"),
        (b"[" * 1_000_000, "nests deeper than 64"),
    ],
)
def test_what_is_refused(data: bytes, expected: str) -> None:
    with pytest.raises(JsonFault, match=f"^{expected}"):
        parse(data)


def test_the_edges_of_what_is_read() -> None:
    assert parse(b"[" * 64 + b"]" * 64) is not None
    assert parse(b"1.7976931348623157e308") == 1.7976931348623157e308
    assert parse(b"9" * 308) == int("9" * 308)
    assert parse(b'"\\ud83d\\ude00"') == "\U0001f600"
    assert parse(b'[1, true, 1.0, ""]') == [1, True, 1.0, ""]
    assert type(parse(b"true")) is bool


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["x", True, None, 1.0], '["x", true, null, 1.0]'),
        ("é\n\x7f\x1b", '"é\\n\\x7f\\u001b"'),
        ({"a": "b" * 100}, f'{{"a": "{"b" * 50}...'),
    ],
)
def test_values_in_messages(value: Any, expected: str) -> None:
    assert strict_json.spelled(value) == expected


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_left_as_it_was(enabled: bool) -> None:
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with strict_json.collector_paused():
            assert not gc.isenabled()
        assert gc.isenabled() is enabled
        with pytest.raises(JsonFault):
            parse(b"{")
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()
