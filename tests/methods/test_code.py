"""Files of a recipe's own functions: what reading tells of them, that nothing of them runs before it must."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ninfer_convert.errors import RecipeError
from ninfer_convert.methods.callable import CallableMethod
from ninfer_convert.methods.code import CodeFault, read_code


def method(folder: Path, text: str) -> CallableMethod:
    path = folder / "own.py"
    path.write_text(text, encoding="utf-8")
    return CallableMethod(read_code(path), "f")


@pytest.mark.parametrize(
    ("text", "told", "line"),
    [
        ("import no_such_module\ndef f(): pass\n", "running the file raised ModuleNotFoundError: No module named", 1),
        ("def f(): pass\nf.limit = [][0]\n", "running the file raised IndexError: list index out of range", 2),
        ("def f(): pass\ndel f\n", "f is not there when the file has run", 1),
        ("def f(): pass\nf = 3\n", "f is no function but of type int when the file has run", 1),
    ],
)
def test_a_file_that_cannot_be_run(tmp_path: Path, text: str, told: str, line: int) -> None:
    own = method(tmp_path, text)
    with pytest.raises(RecipeError) as caught:
        own.load()
    (problem,) = caught.value.problems
    assert (problem.code, problem.path, problem.line) == ("callable-failed", str(tmp_path / "own.py"), line)
    assert problem.message.startswith(told)


def test_a_file_runs_once_for_all_its_functions_and_threads(tmp_path: Path) -> None:
    text = "import time\ntime.sleep(0.05)\nopen(__file__ + '.ran', 'a').write('x')\n" + "def f(): pass\ndef g(): pass\n"
    one = method(tmp_path, text)
    other = CallableMethod(one.code, "g")
    barrier = threading.Barrier(4)

    def load(own: CallableMethod) -> Callable[..., Any]:
        barrier.wait()
        return own.load()

    with ThreadPoolExecutor(4) as threads:
        loaded = list(threads.map(load, [one, other, one, other]))
    assert [function.__name__ for function in loaded] == ["f", "g", "f", "g"]
    assert (tmp_path / "own.py.ran").read_text() == "x"


def test_what_was_read_is_what_runs(tmp_path: Path) -> None:
    own = method(tmp_path, "def f(): return 1\n")
    (tmp_path / "own.py").write_text("def f(): return 2\n")
    assert own.load()() == 1


def test_a_file_may_define_dataclasses(tmp_path: Path) -> None:
    """They look their module up by its name."""
    text = "from dataclasses import dataclass\n@dataclass\nclass State:\n    a: 'int'\ndef f(): return State(1).a\n"
    assert method(tmp_path, text).load()() == 1


# What is read of a file without running it.


def fault(path: Path, function: str = "f") -> str:
    with pytest.raises(CodeFault) as caught:
        read_code(path).check(function)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"def f(:\n", ":1 is no Python code: "),
        (b"x = 1\nreturn\n", ":2 is no Python code: 'return' outside function"),
        (b"x = '\0'\n", " is no Python code: "),
        (b"\xff\xfe", " is no Python code: "),
        (b"def g(): f = 1\n", " defines no such name: unknown name 'f'"),
        (b"def quantise(): pass\n", "; did you mean quantise?"),
        (b"class A:\n    def f(self): pass\n", " defines no such name: unknown name 'f'"),
    ],
)
def test_what_reading_tells_of_a_file(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "own.py"
    path.write_bytes(content)
    message = fault(path, "quantize" if b"quantise" in content else "f")
    assert message.startswith(str(path))
    assert told in message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert fault(tmp_path / "none.py") == f"{tmp_path / 'none.py'} does not exist"
    (tmp_path / "folder.py").mkdir()
    assert "cannot be read" in fault(tmp_path / "folder.py")


@pytest.mark.parametrize(
    "text",
    [
        "def f(): pass\n",
        "f = print\n",
        "from numpy import array as f\n",
        "from numpy import *\n",
        "import f\n",
        "if True:\n    def f(): pass\n",
        "try:\n    import numba\nexcept ImportError:\n    f = None\n",
        "for f in [print]: pass\n",
        "class f: pass\n",
        "g, (h, f) = 1, (2, 3)\n",
        "# -*- coding: latin-1 -*-\n# \xe9\ndef f(): pass\n",
    ],
)
def test_every_way_to_bind_a_name_is_seen(tmp_path: Path, text: str) -> None:
    path = tmp_path / "own.py"
    path.write_bytes(text.encode("latin-1"))
    read_code(path).check("f")


def test_reading_runs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text("raise SystemExit\n@print\ndef f(x=exit()): pass\n")
    code = read_code(path)
    code.check("f")
    assert code.lines["f"] == 3


def test_functions_are_equal_by_file_and_name(tmp_path: Path) -> None:
    one = method(tmp_path, "def f(): pass\ndef g(): pass\n")
    same = CallableMethod(read_code(tmp_path / "own.py"), "f")
    assert one == same
    assert one != CallableMethod(one.code, "g")
    (tmp_path / "own.py").write_text("def f(): return 1\n")
    assert one != CallableMethod(read_code(tmp_path / "own.py"), "f")
