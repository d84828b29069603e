"""What a recipe may say: its tables and their keys (recipes.md, Tables).

Validation, messages and the keys of `--set` all derive from the mappings below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from ninfer_convert.formats import FORMATS
from ninfer_convert.layouts import LAYOUTS
from ninfer_convert.policies import POLICIES
from ninfer_convert.recipe import keys
from ninfer_convert.recipe.model import Assign, Group, Rename, Resource, Selector, Separate, Share, Skip, Use
from ninfer_convert.recipe.reading import Key, Keys, Node, Reader, boolean, filled_string, string, table, tables, word

AUTO = "auto"
NON_FINITE = ("warn", "keep", "refuse")

DECISIONS: Keys = {
    "format": Key(word("format", FORMATS)),
    "layout": Key(word("layout", (AUTO, *LAYOUTS))),
    "method": Key(keys.method),
    "parameters": Key(keys.parameters),
    "source": Key(filled_string),
    "tensor": Key(filled_string),
    "transpose": Key(boolean),
    "requantize": Key(boolean),
    "misfit": Key(word("format", FORMATS)),
    "non_finite": Key(word("non_finite", NON_FINITE)),
    "activation_policy": Key(word("activation_policy", POLICIES)),
}
"""What an assign decides, field by field; also what `--set` may give."""

CLEARED_BY_FORMAT = ("layout", "method", "parameters", "misfit")
"""Decisions that an assign's `format` takes back from the assigns before it."""

LOCKABLE = ("format", *CLEARED_BY_FORMAT)
"""Decisions that a locked parameter takes from nobody but the architecture."""

NOT_BESIDE_ROWS = ("transpose", "activation_policy")
"""Decisions about the whole of a parameter."""

_OPTIONAL = Key(boolean)
_SELECT = Key(keys.selectors, required=True)

ASSIGN: Keys = {
    "select": _SELECT,
    "where": Key(keys.where),
    "optional": _OPTIONAL,
    "rows": Key(keys.rows),
    **DECISIONS,
}
OVERRIDE: Keys = {"select": _SELECT, **DECISIONS}
"""`select` is what stands before the colon."""
GROUP: Keys = {"select": Key(keys.captors, required=True), "optional": _OPTIONAL, "shape": Key(keys.shape)}
SEPARATE: Keys = {"select": _SELECT, "optional": _OPTIONAL}
SHARE: Keys = {
    "parameter": Key(keys.template, required=True),
    "with": Key(keys.captor, required=True),
    "optional": _OPTIONAL,
}
SKIP: Keys = {"select": _SELECT, "reason": Key(filled_string, required=True), "optional": _OPTIONAL}
RENAME: Keys = {
    "match": Key(filled_string, required=True),
    "to": Key(filled_string, required=True),
    "optional": _OPTIONAL,
}
USE: Keys = {
    "parameter": Key(keys.captor, required=True),
    "input": Key(keys.template, required=True),
    "activation_policy": DECISIONS["activation_policy"],
    "auxiliaries": Key(keys.auxiliaries),
    "optional": _OPTIONAL,
}
RESOURCE: Keys = {
    "component": Key(filled_string, required=True),
    "role": Key(filled_string, required=True),
    "path": Key(keys.inner_path, required=True),
}


def _record(legal: Keys, title: str, build: Callable[[Node, dict[str, Any]], Any]) -> Reader:
    """A table of these keys, built where nothing is wrong with it."""

    def read(node: Node) -> Any:
        before = len(node.text.problems)
        members = table(node, legal, title)
        if members is None or len(node.text.problems) > before:
            return None
        return build(node, members)

    return read


def _assign(node: Node, members: dict[str, Any]) -> Any:
    says = {key: members.pop(key) for key in DECISIONS if key in members}
    if not says:
        return node.fault("decides-nothing", f"an assign decides something: give one of {', '.join(DECISIONS)}")
    if "rows" in members:
        for key in NOT_BESIDE_ROWS:
            if says.get(key):
                node.member(key).fault("beside-rows", f"{key} is about a whole parameter and cannot stand beside rows")
    if "tensor" in says:
        _check_references(node.member("tensor"), members["select"])
    places = {key: node.member(key).place for key in node.value}
    return Assign(node.place, places, says=says, **members)


def _check_references(node: Node, select: tuple[Selector, ...]) -> None:
    references = [int(number) for number in keys.BACK_REFERENCE.findall(node.value)]
    if not references:
        return
    if len(select) != 1:
        node.fault("bad-capture", f"tensor refers to \\{references[0]}, which only a select of one glob captures")
    elif max(references) > select[0].glob.stars:
        node.fault("bad-capture", f"tensor refers to \\{max(references)}, and the glob has fewer stars")


def _group(node: Node, members: dict[str, Any]) -> Any:
    _same_stars(node, "[[group]]", members["select"])
    return Group(node.place, **members)


def _share(node: Node, members: dict[str, Any]) -> Any:
    target = members.pop("with")
    _same_stars(node, "[[share]]", (members["parameter"], target))
    return Share(node.place, target=target, **members)


def _use(node: Node, members: dict[str, Any]) -> Any:
    filled = [members["input"], *members.get("auxiliaries", {}).values()]
    starred = [name for name in filled if isinstance(name, Selector) and name.glob.stars]
    _same_stars(node, "[[use]]", (members["parameter"], *starred))
    return Use(node.place, **members)


def _same_stars(node: Node, title: str, selectors: Iterable[Selector]) -> None:
    counts = sorted({selector.glob.stars for selector in selectors})
    if len(counts) > 1:
        node.fault("bad-capture", f"the globs of a {title} have equally many stars, not {counts[0]} and {counts[-1]}")


def _rename(node: Node, members: dict[str, Any]) -> Any:
    try:
        match = re.compile(members["match"])
    except (re.error, RecursionError, OverflowError) as error:
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


read_override = _record(OVERRIDE, "--set", _assign)

_TABLES = {
    "assign": _record(ASSIGN, "[[assign]]", _assign),
    "group": _record(GROUP, "[[group]]", _group),
    "separate": _record(SEPARATE, "[[separate]]", lambda node, members: Separate(node.place, **members)),
    "share": _record(SHARE, "[[share]]", _share),
    "skip": _record(SKIP, "[[skip]]", lambda node, members: Skip(node.place, **members)),
    "rename": _record(RENAME, "[[rename]]", _rename),
    "use": _record(USE, "[[use]]", _use),
    "resource": _record(RESOURCE, "[[resource]]", lambda node, members: Resource(node.place, **members)),
}

RECIPE: Keys = {
    "schema": Key(keys.schema_version, required=True),
    "name": Key(filled_string),
    "description": Key(string),
    "extends": Key(filled_string),
    "architecture": Key(filled_string),
    "components": Key(keys.components),
    "metadata": Key(keys.metadata),
    "sources": Key(keys.sources),
    "defaults": Key(keys.defaults),
    **{name: Key(tables(read, f"[[{name}]]")) for name, read in _TABLES.items()},
}
"""The whole document."""
