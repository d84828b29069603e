"""A program that writes an artifact again and again, killed before each of its calls to the system in turn.

`python -m tests.container.killed SCENARIO FOLDER` prints, for every kill, what stands at the destination. A failed
check ends it with a traceback. It forks, and so is a process of its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ninfer_convert.container import remove_leftovers
from tests.container import making
from tests.oracle import container

CHANGING = (
    *("open", "posix_fallocate", "ftruncate", "fsync", "close"),
    *("link", "replace", "rename", "unlink", "mkdir", "rmdir"),
)
CAP = 12288
OLD, NEW = making.named("old"), making.named("new")
BYSTANDERS = {
    "m.ninfer.part-0009": b"not named by any entry",
    "n.ninfer.part-0001": b"of another artifact",
    ".ninfer-0123456789abcdef-01234567.entry": b"of a run to another destination",
    "model.safetensors": b"x" * 5000,
}


def kill_at(point: int) -> None:
    """Let this process be killed before its call number `point` that may change the disk, writes halfway too."""
    seen = 0

    def count() -> None:
        nonlocal seen
        if seen == point:
            os.kill(os.getpid(), signal.SIGKILL)
        seen += 1

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **named: Any) -> Any:
            count()
            return call(*arguments, **named)

        return wrapper

    pwrite = os.pwrite

    def halfway(descriptor: int, data: memoryview, offset: int) -> int:
        count()
        half = pwrite(descriptor, data[: len(data) // 2], offset)
        count()
        return half + pwrite(descriptor, data[half:], offset + half)

    for name in filter(partial(hasattr, os), CHANGING):
        setattr(os, name, counted(getattr(os, name)))
    os.pwrite = halfway  # type: ignore[assignment]


def killed(point: int, work: Callable[[], object]) -> bool:
    """Whether a child that does `work` is killed at `point`, rather than ending before it."""
    child = os.fork()
    if child == 0:
        try:
            kill_at(point)
            work()
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


class Scenario:
    """Writing the artifact NEW into a folder where, perhaps, OLD stands. `old` and `cap` are file size caps."""

    def __init__(self, folder: Path, old: int | None, cap: int | None, replaces: bool) -> None:
        self.folder = folder
        self.entry = folder / "m.ninfer"
        self.old, self.cap, self.replaces = old, cap, replaces
        self.payloads = {"old": making.payload_of(OLD, 1), "new": making.payload_of(NEW, 2)}

    def set_up(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        for name, content in BYSTANDERS.items():
            (self.folder / name).write_bytes(content)
        if self.replaces:
            making.write(self.entry, self.old, 1, planned=OLD)

    def work(self) -> None:
        """What a conversion does; what a dead one published is no reason for other names."""
        remove_leftovers(self.entry)
        making.write(self.entry, self.cap, 2, force=self.replaces or self.entry.exists(), planned=NEW)

    def standing(self) -> str:
        """What stands at the destination: whole, or nothing."""
        if not self.entry.exists():
            assert not self.replaces
            return "absent"
        found = container.read(self.entry)
        name: str = found.directory["metadata"]["name"]
        assert found.payload == self.payloads[name]
        return name

    def check_cleared(self, plain_names: bool = False) -> None:
        """The new artifact and nothing else that was not there before."""
        assert self.standing() == "new"
        parts = [file["path"] for file in container.read(self.entry).directory["files"][1:]]
        assert {path.name for path in self.folder.iterdir()} == {*BYSTANDERS, "m.ninfer", *parts}
        for name, content in BYSTANDERS.items():
            assert (self.folder / name).read_bytes() == content
        if plain_names:
            assert all(f"m.ninfer.part-{index:04}" == name for index, name in enumerate(parts, 1))


def main(scenario: str, folder: Path) -> None:
    # A kill loses nothing that the system holds: there is no need to wait for the device.
    os.fsync = lambda fd: None
    again = scenario == "twice"
    made = {
        "fresh": Scenario(folder, None, None, False),
        "fresh-split": Scenario(folder, None, CAP, False),
        "one-by-parts": Scenario(folder, None, CAP, True),
        "parts-by-one": Scenario(folder, CAP, None, True),
        "parts-by-parts": Scenario(folder, CAP, CAP, True),
        "twice": Scenario(folder, CAP, CAP, True),
    }[scenario]
    point = 0
    while True:
        made.set_up()
        if not killed(point, made.work):
            break
        left = made.standing()
        print(left)
        second = 0
        while again and killed(second, made.work):
            print(made.standing())
            second += 7
        made.work()
        made.check_cleared(plain_names=left == "absent")
        point += 7 if again else 1
    made.check_cleared()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
