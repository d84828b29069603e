"""Random TOML documents that know where each of their keys and values stands.

The writer counts lines and columns itself, character by character, so it can judge the scanner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st

Path = tuple[str | int, ...]
Place = tuple[int, int]

# As written, and as read.
KEYS = [
    ("a", "a"),
    ("0", "0"),
    ("bare_key-1", "bare_key-1"),
    ('"two words"', "two words"),
    ('"do.t"', "do.t"),
    ('"#[]={}"', "#[]={}"),
    (r'"q\"uo\\te"', 'q"uo\\te'),
    (r'"\u00e9"', "é"),
    ('"日本"', "日本"),
    ("'lit\"eral\\'", 'lit"eral\\'),
    ("''", ""),
]
TABLE_NAMES = [("t", "t"), ("7", "7"), ('"t ]]#"', "t ]]#"), ("'t.t'", "t.t")]
SCALARS = [
    "1",
    "0x1F",
    "+3.5e-3",
    "inf",
    "true",
    "1979-05-27",
    "1979-05-27 07:32:00.5-07:00",
    "07:32:00",
    '""',
    '"a # b ] } , = [x]"',
    r'"esc \" \\"',
    "'lit # \\'",
    "''",
    '"é日本"',
    '"""one"""',
    '"""\nmany # not a comment\n[no.table]\nk = 1 \\""" \\\n  end"""',
    '"""two quotes at the end"""""',
    "'''\nlit '' \\\n]'''",
    "''''quotes at both ends'''''",
]
BLANKS = ["", " ", "\t ", "\n", " \n\n\t", " # [comment] = 'x'\n", "\n# }\n  "]


@dataclass
class Written:
    """A document so far, and (key, value) places by path."""

    line_end: str
    text: str = ""
    line: int = 1
    column: int = 1
    places: dict[Path, tuple[Place, Place]] = field(default_factory=dict)

    @property
    def here(self) -> Place:
        return self.line, self.column

    def add(self, text: str) -> None:
        for character in text:
            if character == "\n":
                self.text += self.line_end
                self.line, self.column = self.line + 1, 1
            else:
                self.text += character
                self.column += 1

    def note(self, path: Path, key: Place, value: Place) -> None:
        self.places.setdefault(path, (key, value))


@st.composite
def documents(draw: st.DrawFn) -> Written:
    """A valid document of pairs, tables and arrays of tables, with whatever TOML allows between and inside."""
    out = Written(draw(st.sampled_from(["\n", "\r\n"])))
    writer = _Writer(out, draw)
    writer.pairs((), set())
    for name in draw(st.lists(st.sampled_from(TABLE_NAMES), unique=True)):
        if draw(st.booleans()):
            writer.header(("", name))
            writer.pairs((name[1],), {"sub"})
            continue
        for index in range(draw(st.integers(1, 3))):
            writer.header(("[", name), index)
            writer.pairs((name[1], index), {"sub"})
            if draw(st.booleans()):
                writer.sub_header(name, index)
                writer.pairs((name[1], index, "sub", "deep"), set())
    return out


@dataclass
class _Writer:
    out: Written
    draw: st.DrawFn

    def space(self) -> None:
        self.out.add(self.draw(st.sampled_from(["", " ", "  ", "\t"])))

    def line_break(self) -> None:
        self.out.add(self.draw(st.sampled_from(["\n", " \n", " # a = [comment\n", "\n\n \t\n"])))

    def blank(self) -> None:
        self.out.add(self.draw(st.sampled_from(BLANKS)))

    def header(self, kind: tuple[str, tuple[str, str]], index: int | None = None) -> None:
        bracket, (written, name) = kind
        self.space()
        self.out.add("[" + bracket)
        self.space()
        here = self.out.here
        self.out.add(written)
        self.space()
        self.out.add("]" + ("]" if bracket else ""))
        self.out.note((name,), here, here)
        if index is not None:
            self.out.note((name, index), here, here)
        self.line_break()

    def sub_header(self, name: tuple[str, str], index: int) -> None:
        self.out.add("[" + name[0] + " . ")
        sub = self.out.here
        self.out.add("sub.")
        deep = self.out.here
        self.out.add("deep]")
        self.out.note((name[1], index, "sub"), sub, sub)
        self.out.note((name[1], index, "sub", "deep"), deep, deep)
        self.line_break()

    def pairs(self, path: Path, taken: set[str]) -> None:
        for written, name in self.draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=4)):
            if name in taken:
                continue
            self.space()
            self.pair(path, written, name, depth=0)
            self.line_break()

    def pair(self, path: Path, written: str, name: str, depth: int) -> None:
        """`name = value`, or `name.inner = value`."""
        out = self.out
        path = (*path, name)
        key = out.here
        out.add(written)
        if self.draw(st.integers(0, 3)) == 0:
            out.note(path, key, key)
            self.space()
            out.add(".")
            self.space()
            inner, name = self.draw(st.sampled_from(KEYS))
            path = (*path, name)
            key = out.here
            out.add(inner)
        self.space()
        out.add("=")
        self.space()
        out.note(path, key, out.here)
        self.value(path, depth)

    def value(self, path: Path, depth: int) -> None:
        kind = self.draw(st.integers(0, 5 if depth < 3 else 3))
        if kind == 4:
            self.sequence("[]", lambda index: self.element((*path, index), depth), spread=True)
        elif kind == 5:
            keys = self.draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=3))
            self.sequence("{}", lambda i: self.pair(path, *keys[i], depth + 1), spread=False, count=len(keys))
        else:
            self.out.add(self.draw(st.sampled_from(SCALARS)))

    def element(self, path: Path, depth: int) -> None:
        self.out.note(path, self.out.here, self.out.here)
        self.value(path, depth + 1)

    def sequence(self, brackets: str, item: Callable[[int], None], spread: bool, count: int | None = None) -> None:
        between = self.blank if spread else self.space
        if count is None:
            count = self.draw(st.integers(0, 3))
        self.out.add(brackets[0])
        between()
        for index in range(count):
            item(index)
            between()
            if index < count - 1 or (spread and self.draw(st.booleans())):
                self.out.add(",")
                between()
        self.out.add(brackets[1])
