"""Text for people: tables, sizes, numbers, times. Plain text, so that a pipe and a terminal show the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ninfer_convert.errors import nearest, printable

if TYPE_CHECKING:
    from ninfer_convert.pipeline.summary import Share

SHOWN_CHARACTERS = 100
"""Of a long text, and the widest column: one that all rows were padded to could make a listing of any length."""

CELL_CHARACTERS = 1000
"""Shown of a cell or a fact; names come from files, and --json has them whole."""


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[str] = (), heading: Callable[[str], str] = str
) -> Iterator[str]:
    """Lines of columns as wide as their widest cell that fits, those named in `right` flush right.

    Cells are made printable; a long one stands out of its column, a very long one is cut.
    """
    cells = [_cells(row) for row in rows]
    widths = [_width(column) for column in zip(header, *cells, strict=True)]
    flush_right = set(right)
    columns = zip(header, widths, strict=True)
    line = "  ".join(f"{{:{'>' if name in flush_right else '<'}{width}}}" for name, width in columns)
    yield heading(line.format(*header).rstrip())
    for row in cells:
        yield line.format(*row).rstrip()


def facts(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Lines of a name and what is to be said of it, indented."""
    known = [(_cell(name), _cell(text)) for name, text in pairs]
    width = _width([name for name, _ in known])
    return (f"  {name.ljust(width)}  {text}".rstrip() for name, text in known)


def shares_table(shares: Sequence[Share], header: tuple[str, str, str], heading: Callable[[str], str]) -> Iterator[str]:
    """What each format or type takes; `header` names the first three columns."""
    total = sum(share.bytes for share in shares)
    rows = [
        (
            share.name,
            f"{share.count:,}",
            f"{share.elements:,}",
            f"{share.bytes:,}",
            percent(share.bytes, total),
        )
        for share in shares
    ]
    return table((*header, "bytes", "share"), rows, right=(*header[1:], "bytes", "share"), heading=heading)


def shares_json(shares: Iterable[Share], counted: str) -> list[dict[str, Any]]:
    """The same for JSON; `counted` is what there are so many of."""
    return [
        {"name": share.name, counted: share.count, "elements": share.elements, "bytes": share.bytes} for share in shares
    ]


def shortened(text: str, most: int = SHOWN_CHARACTERS) -> str:
    """A long text's beginning, and its length."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"


def no_such(kind: str, name: str, known: Iterable[str]) -> str:
    """The sentence for a name that is not there, with the nearest that are."""
    close = [repr(other) for other in nearest(name, known)]
    return f"holds no {kind} {name!r}" + (f"; did you mean {' or '.join(close)}?" if close else "")


def size(bytes: float) -> str:
    """1536 -> "1.54 kB": three digits, decimal units."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if bytes < 999.5:
            return f"{bytes:.0f} {unit}" if unit == "bytes" else f"{_digits(bytes)} {unit}"
        bytes /= 1000
    return f"{_digits(bytes)} TB"


def exact_size(bytes: int) -> str:
    """1536 -> "1,536 bytes (1.54 kB)"."""
    return f"{bytes:,} bytes" + (f" ({size(bytes)})" if bytes >= 1000 else "")


def percent(part: float, whole: float) -> str:
    """12.3 %, "-" of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def duration(seconds: float) -> str:
    """0.41 s; 42 s; 3 min 05 s; 2 h 07 min."""
    if seconds < 9.95:
        return f"{seconds:.2g} s" if seconds >= 0.1 else f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def shape(axes: Sequence[int]) -> str:
    """4096 x 64; "scalar" for none."""
    return " x ".join(map(str, axes)) or "scalar"


def plural(count: int, word: str) -> str:
    """1 tensor; 2 tensors; 1,200 tensors."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def _cells(row: Sequence[str]) -> Sequence[str]:
    text = "".join(row)  # nearly every row can be shown as it is, and is looked at once
    return row if text.isprintable() and len(text) <= CELL_CHARACTERS else [*map(_cell, row)]


def _cell(text: str) -> str:
    return printable(shortened(text, CELL_CHARACTERS))


def _width(column: Sequence[str]) -> int:
    widest = max(map(len, column), default=0)
    if widest > SHOWN_CHARACTERS:
        return max((len(text) for text in column if len(text) <= SHOWN_CHARACTERS), default=0)
    return widest


def _digits(number: float) -> str:
    decimals = 2 if number < 9.995 else 1 if number < 99.95 else 0
    return f"{number:.{decimals}f}"
