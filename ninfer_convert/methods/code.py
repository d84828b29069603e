"""Python files that a recipe names for their functions: read when planning, run when converting (methods.md).

What is run is what was read: the text is compiled, but not run, when the file is read, and the digest is of that text.
"""

from __future__ import annotations

import ast
import hashlib
import symtable
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import decode_source
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from ninfer_convert.errors import NinferConvertError, Problem, RecipeError, printable, unknown

SHOWN_CHARACTERS = 300
"""Of what an exception says, which may be pages."""


class CodeFault(ValueError):
    """Why a function cannot be had of a file, as a sentence that begins with the file."""


@dataclass(frozen=True)
class CodeFile:
    """A file that was read; `path` is the one that the recipe leads to, `sha256` its digest in hexadecimal.

    `lines` are the names that the module binds, with the line of a function's or class's definition; `imports_all`
    says that there may be more, from an `import *`. Its code runs once, when a function is first asked for.
    """

    path: Path
    sha256: str
    lines: Mapping[str, int | None] = field(repr=False, compare=False)
    imports_all: bool = field(repr=False, compare=False)
    _compiled: CodeType = field(repr=False, compare=False)
    _modules: list[ModuleType] = field(default_factory=list, init=False, repr=False, compare=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def check(self, name: str) -> None:
        """Raise CodeFault where reading shows that the module binds no such name."""
        if name not in self.lines and not self.imports_all:
            raise CodeFault(f"{printable(self._name)} defines no such name: {unknown('name', name, self.lines)}")

    def function(self, name: str) -> Callable[..., Any]:
        """The module's function of that name; raises RecipeError where running it fails, or leaves none."""
        with self._lock:
            if not self._modules:
                with self.running("running the file"):
                    self._modules.append(self._run())
        found = getattr(self._modules[0], name, None)
        if not callable(found):
            what = "is not there" if found is None else f"is no function but of type {type(found).__name__}"
            raise RecipeError(self.problem("callable-failed", f"{name} {what} when the file has run", name))
        return found  # type: ignore[no-any-return]

    @contextmanager
    def running(self, doing: str, function: str = "", tensor: str | None = None) -> Iterator[None]:
        """Code of the file runs within; what it raises becomes a RecipeError with its line and what it was `doing`.

        Problems of our own, and running out of memory, pass through. SystemExit does not: in a thread of the
        conversion it would end that thread, unseen.
        """
        try:
            yield
        except (NinferConvertError, MemoryError):
            raise
        except (Exception, SystemExit) as error:
            told = " ".join(str(error).split())
            if len(told) > SHOWN_CHARACTERS:
                told = f"{told[:SHOWN_CHARACTERS]}..."
            message = f"{doing} raised {type(error).__name__}" + (f": {printable(told)}" if told else "")
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == self._name]
            raise RecipeError(self.problem("callable-failed", message, function, tensor, *lines[-1:])) from error

    def problem(
        self, code: str, message: str, function: str, tensor: str | None = None, line: int | None = None
    ) -> Problem:
        """A problem with this file, at a line, or else where the function is defined."""
        led = f"{printable(tensor)}: {message}" if tensor is not None else message
        return Problem(code, led, path=self._name, tensor=tensor, line=line or self.lines.get(function))

    @property
    def _name(self) -> str:
        return str(self.path)

    def _run(self) -> ModuleType:
        # Under a name of its own in sys.modules: dataclasses and pickle look their module up there.
        module = ModuleType(f"ninfer_convert_recipe_{self.sha256[:16]}")
        module.__file__ = self._name
        sys.modules[module.__name__] = module
        exec(self._compiled, module.__dict__)
        return module


def read_code(path: Path) -> CodeFile:
    """Read and compile a file without running any of it. Raises CodeFault where that cannot be done."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise CodeFault(f"{printable(str(path))} does not exist") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CodeFault(f"{printable(str(path))} cannot be read: {reason}") from error
    try:
        text = decode_source(content)
        tree = ast.parse(text)
        names = symtable.symtable(text, str(path), "exec").get_symbols()
        compiled = compile(tree, str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        reason = (error.msg if isinstance(error, SyntaxError) else str(error)) or type(error).__name__
        raise CodeFault(f"{printable(str(path))}{line} is no Python code: {reason}") from error
    defined = {each.name: each.lineno for each in tree.body if isinstance(each, (ast.FunctionDef, ast.ClassDef))}
    bound = [symbol.get_name() for symbol in names if symbol.is_assigned() or symbol.is_imported()]
    imports_all = any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(tree))
    lines = {name: defined.get(name) for name in bound}
    return CodeFile(path, hashlib.sha256(content).hexdigest(), lines, imports_all, compiled)
