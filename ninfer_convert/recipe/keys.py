"""How the value of each key of a recipe is read (recipes.md, Tables and Selecting)."""

from __future__ import annotations

import math
import re
import struct
from pathlib import PureWindowsPath
from typing import Any

from ninfer_convert.errors import printable, unknown
from ninfer_convert.formats import FORMATS
from ninfer_convert.formats.stored import CLASSES, STORED_TYPES
from ninfer_convert.methods import METHODS
from ninfer_convert.recipe.globs import AnyRun, Choice, GlobFault, Parts, parse_glob
from ninfer_convert.recipe.model import Selector, Where
from ninfer_convert.recipe.reading import (
    Key,
    Keys,
    Node,
    filled_string,
    json_value,
    one_or_more,
    string,
    table,
    whole_number,
    word,
)

VERSION = 1
"""The version of the recipe language that `schema` names."""

CALLABLE = re.compile(r"(?P<file>.+\.py):(?P<function>[A-Za-z_][A-Za-z0-9_]*)")
"""A method that is the user's own function: `file.py:function`."""

BACK_REFERENCE = re.compile(r"\\([1-9])")
"""`\\1` to `\\9` in a tensor's name: what the stars of the assign's one glob take."""

MOST_STARS = 9

DIRECT = tuple(name for name, format in FORMATS.items() if format.category == "direct")
CONVERTIBLE = tuple(name for name, stored in STORED_TYPES.items() if stored.kind != "opaque")


def schema_version(node: Node) -> Any:
    version = whole_number(0)(node)
    if version not in (None, VERSION):
        node.fault("wrong-schema", f"schema is {version}; this version reads schema = {VERSION}")


def selector(node: Node) -> Any:
    if not isinstance(node.value, str):
        return node.wrong_type("a string or a list of strings")
    return single_selector(node)


def single_selector(node: Node) -> Any:
    if filled_string(node) is None:
        return None
    try:
        return Selector(parse_glob(node.value), node.place)
    except GlobFault as fault:
        return node.fault("bad-glob", f"{node.name}: '{printable(node.value)}' {fault}")


selectors = one_or_more(selector, "a string or a list of strings")


def captor(node: Node) -> Any:
    """A glob whose stars capture."""
    found = single_selector(node)
    if found is None:
        return None
    if _inner_stars(found.glob.parts):
        return node.fault("bad-capture", f"{node.name}: a * within braces cannot be a capture")
    if found.glob.stars > MOST_STARS:
        return node.fault("bad-capture", f"{node.name} has {found.glob.stars} stars; {MOST_STARS} are the most")
    return found


captors = one_or_more(captor, "a string or a list of strings")


def template(node: Node) -> Any:
    """A name in which stars stand for captured texts."""
    found = captor(node)
    if found is not None and not found.glob.is_template:
        return node.fault(
            "bad-capture", f"{node.name} is a name with captured texts for its stars: escape ? and {{ by a backslash"
        )
    return found


def _inner_stars(parts: Parts, inside: bool = False) -> bool:
    return any(
        (inside and isinstance(part, AnyRun))
        or (isinstance(part, Choice) and any(_inner_stars(inner, inside=True) for inner in part.alternatives))
        for part in parts
    )


def auxiliaries(node: Node) -> Any:
    """Roles to names, or for a scalar to a positive number."""
    if not isinstance(node.value, dict):
        return node.wrong_type("a table")
    return {role: _auxiliary(member) for role, member in node.members()}


def _auxiliary(node: Node) -> Any:
    if isinstance(node.value, str):
        return template(node)
    if not isinstance(node.value, (int, float)) or isinstance(node.value, bool):
        return node.wrong_type("a parameter's name or a positive number")
    try:
        stored = struct.unpack("<f", struct.pack("<f", node.value))[0]
    except OverflowError:
        stored = math.inf
    if not (math.isfinite(stored) and stored > 0):
        return node.fault("out-of-range", f"{node.name} must be positive and finite in binary32, not {node.value}")
    return stored


def method(node: Node) -> Any:
    if isinstance(node.value, str) and CALLABLE.fullmatch(node.value):
        return node.value
    return word("method", METHODS)(node)


def rows(node: Node) -> Any:
    if not isinstance(node.value, list) or len(node.value) != 2:
        return node.wrong_type("two whole numbers [begin, end)")
    begin, end = (whole_number(0)(element) for element in node.elements())
    if begin is None or end is None:
        return None
    if begin >= end:
        return node.fault("empty-rows", f"rows = [{begin}, {end}] holds no row: the end is not part of it")
    return begin, end


def shape(node: Node) -> Any:
    if not isinstance(node.value, list):
        return node.wrong_type("a list of whole numbers")
    return tuple(whole_number(1)(element) for element in node.elements())


def parameters(node: Node) -> Any:
    return json_value(node) if isinstance(node.value, dict) else node.wrong_type("a table")


def metadata(node: Node) -> Any:
    if not isinstance(node.value, dict):
        return node.wrong_type("a table")
    if "name" in node.value:
        filled_string(node.member("name"))
    return json_value(node)


def components(node: Node) -> Any:
    if not isinstance(node.value, list):
        return node.wrong_type("a list of components")
    if not node.value:
        return node.fault("empty-list", f"{node.name} is an empty list: give at least one")
    seen: list[str] = []
    for element in node.elements():
        name = filled_string(element)
        if name in seen:
            element.fault("repeated", f"{node.name} lists {printable(name)} twice")
        seen.append(name)
    return tuple(seen)


def inner_path(node: Node) -> Any:
    """A path inside the checkpoint's folder."""
    if filled_string(node) is None:
        return None
    if node.value.startswith(("/", "\\")) or PureWindowsPath(node.value).drive:
        return node.fault("bad-path", f"{node.name} is absolute: name a file inside the checkpoint's folder")
    if ".." in re.split(r"[/\\]", node.value):
        return node.fault("bad-path", f"{node.name} leaves the checkpoint's folder by ..")
    return node.value


def _types(node: Node) -> Any:
    names = one_or_more(word("type", (*CLASSES, *STORED_TYPES)), "a stored type or a list of them")(node)
    if names is None or None in names:
        return None
    return frozenset(name for given in names for name in CLASSES.get(given, (given,)))


def _ranks(node: Node) -> Any:
    ranks = one_or_more(whole_number(0), "a whole number or a list of them")(node)
    return None if ranks is None else frozenset(ranks)


def _depth(node: Node) -> Any:
    """A half-open range of parts of a stack of layers."""
    if not isinstance(node.value, list) or len(node.value) != 2:
        return node.wrong_type("two numbers [begin, end)")
    begin, end = (_part(element) for element in node.elements())
    if begin is None or end is None:
        return None
    if begin >= end:
        return node.fault("empty-depth", f"{node.name} = [{begin}, {end}] holds no layer: the end is not part of it")
    return begin, end


def _part(node: Node) -> Any:
    if not isinstance(node.value, (int, float)) or isinstance(node.value, bool):
        return node.wrong_type("a number")
    if not 0 <= node.value <= 1:
        return node.fault("out-of-range", f"{node.name} must be between 0 and 1, not {node.value}")
    return node.value


WHERE: Keys = {
    "rank": Key(_ranks),
    "dtype": Key(_types),
    "min_rows": Key(whole_number(0)),
    "max_rows": Key(whole_number(0)),
    "min_columns": Key(whole_number(0)),
    "max_columns": Key(whole_number(0)),
    "min_elements": Key(whole_number(0)),
    "multiple_of": Key(whole_number(1)),
    "depth": Key(_depth),
}


def where(node: Node) -> Any:
    members = table(node, WHERE, "where")
    return None if members is None else Where(node.place, **members)


def defaults(node: Node) -> Any:
    """Stored types to direct formats."""
    if not isinstance(node.value, dict):
        return node.wrong_type("a table")
    for key, member in node.members():
        if key not in CONVERTIBLE:
            message = unknown("stored type", key, CONVERTIBLE, "in [defaults]")
            node.text.problems.append(member.key_place.problem("unknown-type", message))
    return {key: word("direct format", DIRECT)(member) for key, member in node.members()}


def sources(node: Node) -> Any:
    """Names to descriptions."""
    if not isinstance(node.value, dict):
        return node.wrong_type("a table")
    for key, member in node.members():
        if not key or "=" in key:
            message = f"a source cannot be called '{printable(key)}': --source NAME=PATH could not name it"
            node.text.problems.append(member.key_place.problem("bad-source-name", message))
    return {key: string(member) for key, member in node.members()}
