"""How the logical payload is divided into files: capacities, names, room for the directory (container.md 1)."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, count

from ninfer_convert.container.directory import file_json, refuse_unreadable, serialized
from ninfer_convert.container.framing import MAX_DIRECTORY, PAYLOAD_ALIGNMENT, derive_id, entry_start
from ninfer_convert.container.records import Directory, File
from ninfer_convert.container.rules import part_name_fault
from ninfer_convert.errors import OutputError, Problem, UsageError, printable

TAG_DIGITS = 8


@dataclass(frozen=True)
class FilePlan:
    """The files of an artifact: what each is called and which bytes of the payload it holds.

    `directory` has its files table; its JSON takes `json_bytes` bytes of the entry, spaces behind it included.
    """

    directory: Directory
    json_bytes: int

    @property
    def files(self) -> tuple[File, ...]:
        """The files table: the entry first."""
        return self.directory.files

    @cached_property
    def file_bytes(self) -> tuple[int, ...]:
        """The size of each file."""
        return tuple(self.payload_start(index) + file.payload_bytes for index, file in enumerate(self.files))

    @property
    def payload_bytes(self) -> int:
        """Bytes of the logical payload."""
        return self._ends[-1]

    def payload_start(self, index: int) -> int:
        """Where the payload begins in file `index`."""
        return PAYLOAD_ALIGNMENT if index else entry_start(self.json_bytes)

    def extents(self, offset: int, length: int) -> Iterator[tuple[int, int, int]]:
        """Where [offset, offset + length) of the logical payload lies: (file, offset in the file, length), in order.

        Raises ValueError where it is not inside the payload.
        """
        if not 0 <= offset <= offset + length <= self.payload_bytes:
            raise ValueError(f"[{offset}, {offset + length}) is not inside a payload of {self.payload_bytes} bytes")
        index = bisect_right(self._ends, offset)
        while length:
            left = self._ends[index] - offset
            taken = min(length, left)
            yield index, self.file_bytes[index] - left, taken
            index, offset, length = index + 1, offset + taken, length - taken

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        return tuple(accumulate(file.payload_bytes for file in self.files))


def plan_files(directory: Directory, destination: str | os.PathLike[str], limit: int | None = None) -> FilePlan:
    """Divide the payload of `directory` into files of at most `limit` bytes, beside and behind `destination`.

    `directory` is as it will be written, but for `files`, which is decided here, and digests, of which placeholders
    of the same width stand in it. Nothing is written; which names are free is looked up where there is a cap.

    Raises UsageError for a cap under which no division works, naming the smallest that does; OutputError where the
    entry's name cannot be that of parts or the directory is over its limit; ArtifactError where a reader would refuse
    the directory.
    """
    path = os.fspath(destination)
    split = _Split(directory, os.path.basename(path), limit)
    plan = split.plan()
    if len(plan.files) > 1:
        plan = _with_free_names(split, plan, os.path.dirname(path))
    if plan.json_bytes > MAX_DIRECTORY:
        message = f"its directory would take {plan.json_bytes} bytes, over the limit of {MAX_DIRECTORY}"
        raise OutputError(Problem("directory-too-long", message, path))
    refuse_unreadable(plan.directory, path)
    return plan


def _with_free_names(split: _Split, plain: FilePlan, folder: str) -> FilePlan:
    """`plain`, or the same with a tag in the names of its parts where one of them is taken."""
    plan = plain
    tag = derive_id(padded_json(plain, {})).hex()[:TAG_DIGITS]
    for number in count(1):
        if not any(_stands(os.path.join(folder, file.path)) for file in plan.files if file.path is not None):
            return plan
        plan = split.plan(f".{tag}" if number == 1 else f".{tag}-{number}")
    raise AssertionError("names never end")


def padded_json(plan: FilePlan, digests: Mapping[str, str]) -> Iterator[bytes]:
    """The directory's JSON, with these digests, and spaces up to `json_bytes`, in parts."""
    length = 0
    for part in serialized(plan.directory, digests):
        yield part
        length += len(part)
    yield b" " * (plan.json_bytes - length)


@dataclass(frozen=True)
class _Split:
    """The arithmetic of one payload under one cap (None: no cap), for an entry called `name`."""

    directory: Directory
    name: str
    limit: int | None

    @cached_property
    def payload_bytes(self) -> int:
        return self.directory.payload_bytes

    @cached_property
    def bare_bytes(self) -> int:
        """Bytes of the directory's JSON without the records of the files table."""
        return sum(map(len, serialized(replace(self.directory, files=()), {})))

    def plan(self, infix: str = "") -> FilePlan:
        """The division, with `infix` between the entry's name and the number in the names of parts."""
        single = File(None, self.payload_bytes)
        json_bytes = self.bare_bytes + len(file_json(single))
        if self.limit is None or entry_start(json_bytes) + self.payload_bytes <= self.limit:
            return FilePlan(replace(self.directory, files=(single,)), json_bytes)
        self.check_name()
        reserve = self.reserve(self.limit, infix)
        if reserve is None:
            raise UsageError(
                Problem(
                    "cap-too-small",
                    f"files of at most {self.limit:,} bytes cannot hold this artifact: its directory alone takes "
                    f"{json_bytes:,}; the smallest cap that works is {self.smallest_limit(infix):,}",
                )
            )
        first, rest = _capacities(self.limit, reserve)
        sizes = [first, *(min(rest, self.payload_bytes - at) for at in range(first, self.payload_bytes, rest))]
        names = (None, *(self.part_name(index, infix) for index in range(1, len(sizes))))
        files = tuple(File(name, size) for name, size in zip(names, sizes, strict=True))
        return FilePlan(replace(self.directory, files=files), reserve)

    def part_name(self, index: int, infix: str) -> str:
        return f"{self.name}{infix}.part-{index:04}"

    def check_name(self) -> None:
        fault = part_name_fault(self.part_name(1, ""), self.name)
        try:
            self.name.encode()
        except UnicodeEncodeError:
            fault = "is not UTF-8"
        if fault is not None:
            raise OutputError(
                Problem(
                    "part-name",
                    f"the name of a part, {printable(self.part_name(1, ''))}, {fault}; "
                    "choose another output name, or do without a cap on the file size",
                )
            )

    def reserve(self, limit: int, infix: str) -> int | None:
        """The least `json_bytes` that a division under `limit` needs; None where none works.

        Room is kept for a tag, so that the division is the same with and without one.
        """
        infix = max(infix, "." + "0" * TAG_DIGITS, key=len)
        reserve = 0
        while True:
            first, rest = _capacities(limit, reserve)
            if first <= 0 or rest <= 0:
                return None
            needed = self.bare_bytes + self.table_bytes(first, rest, infix)
            if needed <= reserve:
                return reserve
            reserve = needed

    def table_bytes(self, first: int, rest: int, infix: str) -> int:
        """Bytes of the records of a files table, commas included, for these capacities."""
        parts = max(0, -(-(self.payload_bytes - first) // rest))
        last = self.payload_bytes - first - (parts - 1) * rest
        total = len(file_json(File(None, first)))
        begin = 1
        while begin < parts:
            end = min(parts, 10 ** max(4, len(str(begin))))
            total += (end - begin) * (1 + len(file_json(File(self.part_name(begin, infix), rest))))
            begin = end
        if parts:
            total += 1 + len(file_json(File(self.part_name(parts, infix), last)))
        return total

    def smallest_limit(self, infix: str) -> int:
        """The smallest cap under which a division works."""
        single = self.bare_bytes + len(file_json(File(None, self.payload_bytes)))
        low, high = 0, entry_start(single) + self.payload_bytes
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.reserve(middle, infix) is not None else (middle, high)
        return high


def _capacities(limit: int, json_bytes: int) -> tuple[int, int]:
    """Payload bytes that fit into the entry and into each part."""
    entry, part = limit - entry_start(json_bytes), limit - PAYLOAD_ALIGNMENT
    return entry // PAYLOAD_ALIGNMENT * PAYLOAD_ALIGNMENT, part // PAYLOAD_ALIGNMENT * PAYLOAD_ALIGNMENT


def _stands(path: str) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise OutputError(Problem("part-name", f"cannot be made: {error.strerror}", path)) from error
    return True
