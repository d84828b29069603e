"""The installed program, run as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ninfer_convert

PROGRAM = (sys.executable, "-m", "ninfer_convert")


@dataclass(frozen=True)
class Ran:
    """What a run left behind."""

    status: int
    stdout: str
    stderr: str

    @property
    def result(self) -> Any:
        """The JSON document on stdout."""
        return json.loads(self.stdout)

    @property
    def failure(self) -> Any:
        """The JSON document on stderr; stdout is empty then."""
        assert self.stdout == ""
        return json.loads(self.stderr)


def environment(**changes: str | None) -> dict[str, str]:
    """This process's, with nothing in it that changes what is printed; None removes a variable.

    The package under test is found from any folder, in front of what PYTHONPATH adds.
    """
    path = os.pathsep.join(
        filter(None, (str(Path(ninfer_convert.__file__).parent.parent), changes.pop("PYTHONPATH", "")))
    )
    plain: dict[str, str | None] = {**os.environ, "COLUMNS": None, "NO_COLOR": None, "FORCE_COLOR": None}
    return {name: value for name, value in (plain | changes | {"PYTHONPATH": path}).items() if value is not None}


def run(
    *arguments: str | os.PathLike[str],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 120,
) -> Ran:
    done = subprocess.run(
        [*PROGRAM, *arguments], cwd=cwd, env=env or environment(), capture_output=True, timeout=timeout, check=False
    )
    return Ran(done.returncode, decoded(done.stdout), decoded(done.stderr))


def ok(*arguments: str | os.PathLike[str], cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Ran:
    """A run that must succeed."""
    ran = run(*arguments, cwd=cwd, env=env)
    assert ran.status == 0, ran.stderr
    return ran


def decoded(output: bytes) -> str:
    return output.decode("utf-8", "surrogateescape")
