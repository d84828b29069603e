"""A program that exports again and again, killed before each of its calls to the system in turn.

`python -m tests.pipeline.killed SCENARIO FOLDER` prints, for every kill, what stands at the destination. A failed
check ends it with a traceback. It forks, and so is a process of its own.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ninfer_convert.errors import OutputError, SourceError
from ninfer_convert.pipeline.export import export
from ninfer_convert.sources import open_checkpoint
from tests.container.killed import killed
from tests.pipeline import artifacts
from tests.pipeline.exporting import tree

INDEX = "model.safetensors.index.json"
FOREIGN = {
    "README.md": b"somebody's",
    "pytorch_model.bin": b"another model",
    ".ninfer-export-0123456789abcdef-01234567.lock": b"of a run to another destination",
    ".ninfer-export-0123456789abcdef-01234567.folder/new/model.safetensors": b"its file",
}
SCENARIOS: dict[str, tuple[str, dict[str, Any] | None, dict[str, Any]]] = {
    "new-folder": ("out", None, {"max_shard_bytes": 900}),
    "used-folder": (".", None, {"max_shard_bytes": 900}),
    "shards-by-shards": (".", {"max_shard_bytes": 900}, {"max_shard_bytes": 900}),
    "shards-by-one": (".", {"max_shard_bytes": 500}, {}),
    "one-by-shards": (".", {}, {"max_shard_bytes": 500}),
    "safetensors": ("m.safetensors", {}, {}),
    "gguf": ("m.gguf", {}, {}),
}
"""The output within the folder; the options of the export that stands there, perhaps, and of the one that is killed."""


class Scenario:
    def __init__(self, root: Path, output: str, old: dict[str, Any] | None, new: dict[str, Any]) -> None:
        self.folder = root / "folder"
        self.output = self.folder / output
        self.new = new
        self.artifacts = {name: self.artifact(root, name, seed) for seed, name in enumerate(("old", "new"))}
        self.wanted: dict[str, dict[str, bytes | None]] = {}
        for name, options in (("old", old), ("new", new)):
            self.fill(FOREIGN)
            if options is not None:
                export(self.artifacts[name], self.output, **options)
            self.wanted[name if options is not None else "absent"] = tree(self.folder)

    def artifact(self, root: Path, name: str, seed: int) -> Path:
        objects = {f"w{number}": artifacts.floats("fp32", np.arange(100.0) + seed) for number in range(3)}
        return artifacts.write(root / f"{name}.ninfer", objects, config={"name": name})

    def fill(self, files: Mapping[str, bytes | None]) -> None:
        """Let the folder hold these files and nothing else."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for name, content in files.items():
            if content is not None:
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / name).write_bytes(content)

    def set_up(self) -> None:
        self.fill(self.wanted.get("old", FOREIGN))

    def work(self, force: bool = True) -> None:
        """The export that is killed, and the same again."""
        export(self.artifacts["new"], self.output, **self.new, force=force)

    def standing(self) -> str:
        """Which model a reader finds, with all that goes with it; "absent" where it is refused."""
        try:
            open_checkpoint(self.output)
        except SourceError:
            assert not any(os.path.lexists(self.output / entry) for entry in (INDEX, "model.safetensors"))
            return "absent"
        found = visible(tree(self.folder))
        # Shards that are all there are a model without their index too.
        return next(name for name, wanted in self.wanted.items() if found in (visible(wanted), unindexed(wanted)))

    def check_unforced(self) -> str:
        """What stands, complete and with nothing hidden, after the export was run again without force."""
        try:
            self.work(force=False)
        except OutputError as error:
            if {problem.code for problem in error.problems} != {"exists"}:
                raise
        found = tree(self.folder)
        return next(name for name, wanted in self.wanted.items() if found == wanted)

    def check_forced(self) -> None:
        self.work()
        assert tree(self.folder) == self.wanted["new"]


def visible(files: dict[str, bytes | None]) -> dict[str, bytes | None]:
    return {name: content for name, content in files.items() if not name.startswith(".")}


def unindexed(files: dict[str, bytes | None]) -> dict[str, bytes | None]:
    return {name: content for name, content in visible(files).items() if name != INDEX}


def main(scenario: str, root: Path) -> None:
    # A kill loses nothing that the system holds: there is no need to wait for the device.
    os.fsync = lambda fd: None
    again = scenario == "twice"
    made = Scenario(root, *SCENARIOS["shards-by-shards" if again else scenario])
    point = 0
    while True:
        made.set_up()
        if not killed(point, made.work):
            break
        print(left := made.standing())
        second = 0
        while again and killed(second, made.work):
            print(left := made.standing())
            second += 7
        assert made.check_unforced() == left or again or left == "absent"
        made.set_up()
        assert killed(point, made.work)
        made.check_forced()
        point += 7 if again else 1
    assert made.standing() == "new"


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
