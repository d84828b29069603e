"""The house: who may import whom, and what a light command may load (the table is the architecture's)."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import ninfer_convert

PACKAGE = Path(ninfer_convert.__file__).parent
FOUNDATION = {"errors", "natural", "paths", "policies", "stages", "strict_json"}

MAY_IMPORT = {
    "errors": set(),
    "natural": set(),
    "paths": {"errors"},
    "policies": set(),
    "stages": set(),
    "strict_json": {"errors"},
    "kernels": {"kernels"},
    "values": FOUNDATION,
    "formats": FOUNDATION | {"formats", "values", "kernels"},
    "layouts": FOUNDATION | {"layouts", "formats", "values", "kernels"},
    "sources": FOUNDATION | {"sources", "values", "formats", "kernels"},
    "methods": FOUNDATION | {"methods", "values", "formats", "kernels"},
    "architectures": FOUNDATION | {"architectures", "values", "sources.views"},
    "recipe": FOUNDATION | {"recipe", "formats", "layouts", "methods"},
    "container": FOUNDATION | {"container", "formats", "layouts"},
}
EVERYTHING_BUT_CLI = {*MAY_IMPORT, "pipeline", "values"}
MAY_IMPORT["pipeline"] = EVERYTHING_BUT_CLI
MAY_IMPORT["cli"] = EVERYTHING_BUT_CLI | {"cli"}
MAY_IMPORT["__init__"] = EVERYTHING_BUT_CLI
MAY_IMPORT["__main__"] = {"cli"}

THIRD_PARTY = {
    "kernels": {"numpy", "numba", "llvmlite", "gguf"},
    "values": {"numpy"},
    "formats": {"numpy"},
    "layouts": {"numpy"},
    "sources": {"numpy"},
    "methods": {"numpy"},
    "recipe": {"tomli"},
    "pipeline": {"numpy", "safetensors", "gguf"},
    "cli": {"click", "rich"},
}

KERNELS_INSIDE_FUNCTIONS = {"formats", "layouts"}
LIGHT = {
    "errors",
    "natural",
    "paths",
    "policies",
    "stages",
    "strict_json",
    "values",
    "formats",
    "layouts",
    "methods",
    "architectures",
    "recipe",
    "container",
}


def modules() -> list[Path]:
    found = sorted(PACKAGE.rglob("*.py"))
    assert len(found) > 30
    return found


def room(module: Path) -> str:
    parts = module.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else module.stem


def imports(module: Path) -> list[tuple[str, bool, bool]]:
    """(imported module, at the top level, for types only) of every import statement."""
    found: list[tuple[str, bool, bool]] = []

    def walk(node: ast.AST, top: bool, types: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                found.extend((alias.name, top, types) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{module}: relative import"
                assert child.module is not None
                found.extend((f"{child.module}.{alias.name}", top, types) for alias in child.names)
            guard = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
            function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
            walk(child, top and not function, types or guard)

    walk(ast.parse(module.read_text(encoding="utf-8")), True, False)
    return found


@pytest.mark.parametrize("module", modules(), ids=lambda module: str(module.relative_to(PACKAGE)))
def test_a_room_imports_only_what_its_row_allows(module: Path) -> None:
    here = room(module)
    for name, top, types in imports(module):
        package, *rest = name.split(".")
        if package == "ninfer_convert":
            if types or not rest:
                continue
            there = rest[0] if (PACKAGE / rest[0]).is_dir() or (PACKAGE / f"{rest[0]}.py").is_file() else "__init__"
            allowed = {"__init__", *MAY_IMPORT[here]}
            assert allowed & {there, ".".join(rest[:2])}, f"{here} imports {name}"
            if there == "kernels" and here in KERNELS_INSIDE_FUNCTIONS:
                assert not top, f"{here} imports {name} outside a function"
        elif package not in sys.stdlib_module_names:
            assert types or package in THIRD_PARTY.get(here, set()), f"{here} imports {name}"
            if here in LIGHT and package in {"numpy", "numba", "gguf"} and not types:
                assert not top, f"{here} imports {name} outside a function"


def test_no_module_outgrows_a_room() -> None:
    every = [*modules(), *Path(__file__).parent.rglob("*.py")]
    long = {str(module): lines for module in every if (lines := len(module.read_text("utf-8").splitlines())) > 400}
    assert long == {}


def test_no_test_is_made_of_another() -> None:
    """What several modules of tests need has a module of its own, so that a test may be moved or renamed."""
    for module in Path(__file__).parent.rglob("*.py"):
        for name, _, _ in imports(module):
            assert not any(part.startswith("test_") for part in name.split(".")), f"{module}: {name}"
