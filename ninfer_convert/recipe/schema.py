"""What a recipe may say: its tables, their keys, and how each becomes a value (recipes.md, Tables).

Validation, messages and the keys of `--set` all derive from the mappings below.
"""

from __future__ import annotations

import re
from typing import Any

from ninfer_convert.errors import printable, unknown
from ninfer_convert.formats import FORMATS
from ninfer_convert.formats.stored import CLASSES, STORED_TYPES
from ninfer_convert.layouts import LAYOUTS
from ninfer_convert.methods import METHODS
from ninfer_convert.recipe.globs import GlobFault, parse_glob
from ninfer_convert.recipe.model import Assign, Rename, Selector, Skip, Where
from ninfer_convert.recipe.reading import (
    Key,
    Keys,
    Node,
    boolean,
    filled_string,
    json_value,
    mapping,
    one_or_more,
    string,
    table,
    tables,
    whole_number,
    word,
)

VERSION = 1
"""The version of the recipe language that `schema` names."""

NON_FINITE = ("warn", "keep", "refuse")
AUTO = "auto"

CALLABLE = re.compile(r"(?P<file>.+\.py):(?P<function>[A-Za-z_][A-Za-z0-9_]*)")
"""A method that is the user's own function: `file.py:function`."""

DIRECT = tuple(name for name, format in FORMATS.items() if format.category == "direct")
CONVERTIBLE = tuple(name for name, stored in STORED_TYPES.items() if stored.kind != "opaque")


def _selector(node: Node) -> Any:
    if not isinstance(node.value, str):
        return node.wrong_type("a string or a list of strings")
    if filled_string(node) is None:
        return None
    try:
        return Selector(parse_glob(node.value), node.place)
    except GlobFault as fault:
        return node.fault("bad-glob", f"{node.name}: '{printable(node.value)}' {fault}")


def _schema(node: Node) -> Any:
    version = whole_number(0)(node)
    if version not in (None, VERSION):
        node.fault("wrong-schema", f"schema is {version}; this version reads schema = {VERSION}")


def _method(node: Node) -> Any:
    if isinstance(node.value, str) and CALLABLE.fullmatch(node.value):
        return node.value
    return word("method", METHODS)(node)


def _rows(node: Node) -> Any:
    if not isinstance(node.value, list) or len(node.value) != 2:
        return node.wrong_type("two whole numbers [begin, end)")
    begin, end = (whole_number(0)(element) for element in node.elements())
    if begin is None or end is None:
        return None
    if begin >= end:
        return node.fault("empty-rows", f"rows = [{begin}, {end}] holds no row: the end is not part of it")
    return begin, end


def _parameters(node: Node) -> Any:
    return json_value(node) if isinstance(node.value, dict) else node.wrong_type("a table")


def _types(node: Node) -> Any:
    names = one_or_more(word("type", (*CLASSES, *STORED_TYPES)), "a stored type or a list of them")(node)
    if names is None or None in names:
        return None
    return frozenset(name for given in names for name in CLASSES.get(given, (given,)))


def _ranks(node: Node) -> Any:
    ranks = one_or_more(whole_number(0), "a whole number or a list of them")(node)
    return None if ranks is None else frozenset(ranks)


def _default_key(key: str, node: Node) -> None:
    if key not in CONVERTIBLE:
        node.text.problems.append(
            node.key_place.problem("unknown-type", unknown("stored type in [defaults]", key, CONVERTIBLE))
        )


def _source_key(key: str, node: Node) -> None:
    if not key or "=" in key:
        message = f"a source cannot be called '{printable(key)}': --source NAME=PATH could not name it"
        node.text.problems.append(node.key_place.problem("bad-source-name", message))


def _metadata(node: Node) -> Any:
    if not isinstance(node.value, dict):
        return node.wrong_type("a table")
    if "name" in node.value:
        filled_string(node.member("name"))
    return json_value(node)


_SELECT = Key(one_or_more(_selector, "a string or a list of strings"), required=True)
_OPTIONAL = Key(boolean)

WHERE: Keys = {
    "rank": Key(_ranks),
    "dtype": Key(_types),
    "min_rows": Key(whole_number(0)),
    "max_rows": Key(whole_number(0)),
    "min_columns": Key(whole_number(0)),
    "max_columns": Key(whole_number(0)),
    "min_elements": Key(whole_number(0)),
    "multiple_of": Key(whole_number(1)),
}


def _where(node: Node) -> Any:
    members = table(node, WHERE, "where")
    return None if members is None else Where(**members)


DECISIONS: Keys = {
    "format": Key(word("format", FORMATS)),
    "layout": Key(word("layout", (AUTO, *LAYOUTS))),
    "method": Key(_method),
    "parameters": Key(_parameters),
    "non_finite": Key(word("non_finite", NON_FINITE)),
}
"""What an assign decides, field by field; also what `--set` may give."""

CLEARED_BY_FORMAT = ("layout", "method", "parameters")
"""Decisions that an assign's `format` takes back from the assigns before it."""

LOCKABLE = ("format", *CLEARED_BY_FORMAT)
"""Decisions that a locked parameter takes from nobody but the architecture."""

ASSIGN: Keys = {
    "select": _SELECT,
    "where": Key(_where),
    "optional": _OPTIONAL,
    "rows": Key(_rows),
    **DECISIONS,
}
SKIP: Keys = {"select": _SELECT, "reason": Key(filled_string, required=True), "optional": _OPTIONAL}
RENAME: Keys = {
    "match": Key(filled_string, required=True),
    "to": Key(filled_string, required=True),
    "optional": _OPTIONAL,
}


OVERRIDE: Keys = {"select": _SELECT, **DECISIONS}


def read_assign(node: Node, keys: Keys = ASSIGN, title: str = "[[assign]]") -> Any:
    before = len(node.text.problems)
    members = table(node, keys, title)
    if members is None or len(node.text.problems) > before:
        return None
    says = {key: members.pop(key) for key in DECISIONS if key in members}
    if not says:
        return node.fault("decides-nothing", f"[[assign]] decides nothing: give one of {', '.join(DECISIONS)}")
    places = {key: node.member(key).place for key in node.value}
    return Assign(node.place, places, says=says, **members)


def _skip(node: Node) -> Any:
    before = len(node.text.problems)
    members = table(node, SKIP, "[[skip]]")
    return None if members is None or len(node.text.problems) > before else Skip(node.place, **members)


def _rename(node: Node) -> Any:
    before = len(node.text.problems)
    members = table(node, RENAME, "[[rename]]")
    if members is None or len(node.text.problems) > before:
        return None
    try:
        match = re.compile(members["match"])
    except re.error as error:
        return node.member("match").fault("bad-expression", f"match is not a regular expression: {error}")
    try:
        # With an empty alternative (behind a line end, which ends a comment of a verbose expression) there is a match
        # of the empty text in which every group exists.
        empty = re.compile(members["match"] + "\n|").match("")
        assert empty is not None
        empty.expand(members["to"])
    except (re.error, IndexError) as error:
        return node.member("to").fault("bad-replacement", f"to cannot be filled from match: {error}")
    members["match"] = match
    return Rename(node.place, **members)


RECIPE: Keys = {
    "schema": Key(_schema, required=True),
    "name": Key(filled_string),
    "description": Key(string),
    "extends": Key(filled_string),
    "architecture": Key(filled_string),
    "metadata": Key(_metadata),
    "sources": Key(mapping(_source_key, string)),
    "defaults": Key(mapping(_default_key, word("direct format", DIRECT))),
    "assign": Key(tables(read_assign, "[[assign]]")),
    "skip": Key(tables(_skip, "[[skip]]")),
    "rename": Key(tables(_rename, "[[rename]]")),
}
"""The whole document."""
