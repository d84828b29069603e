"""The options that several commands share, and the values they take."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from fractions import Fraction
from functools import wraps
from pathlib import Path
from typing import Any

import click

Command = Callable[..., Any]
MOST_JOBS = 1024

_UNITS = {"": 1, "b": 1} | {
    f"{letter}{infix}b": base**power
    for base, infix in ((1000, ""), (1024, "i"))
    for power, letter in enumerate("kmgt", start=1)
}


def size(text: str) -> int:
    """A number of bytes: 32GB is decimal, 4GiB binary, a plain number bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([a-z]*)", text.lower(), re.ASCII)
    if match is None or match[2] not in _UNITS:
        raise click.BadParameter(f"{text!r} is no size; write 32GB (decimal), 4GiB (binary) or a number of bytes")
    bytes = Fraction(match[1]) * _UNITS[match[2]]
    if bytes < 1 or bytes.denominator != 1:
        raise click.BadParameter(f"{text!r} is not a positive whole number of bytes")
    return int(bytes)


def threads(text: str) -> int:
    """A number of threads."""
    if not re.fullmatch("[0-9]{1,9}", text, re.ASCII) or not 1 <= int(text) <= MOST_JOBS:
        raise click.BadParameter(f"{text!r} is no number of threads; write one from 1 to {MOST_JOBS}")
    return int(text)


def text(value: str) -> str:
    """A text that says something: UTF-8, whatever the locale is."""
    try:
        return os.fsencode(path(value)).decode()
    except UnicodeDecodeError:
        raise click.BadParameter(f"{value!r} is not UTF-8") from None


def path(value: str) -> str:
    """A path; it keeps the locale's spelling, by which the system finds the file."""
    if not value:
        raise click.BadParameter("must not be empty")
    return value


def _require_recipe(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str:
    if value is None:
        message = "Name a file or a built-in recipe; 'ninfer-convert recipes' lists them."
        raise click.MissingParameter(message, ctx, parameter)
    return value


def _paths_by_name(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """NAME=PATH arguments, each name once."""
    paths: dict[str, str] = {}
    for value in values:
        name, equals, where = value.partition("=")
        if not (name and equals and where):
            raise click.BadParameter(f"{value!r} is not {parameter.metavar}")
        if name in paths:
            raise click.BadParameter(f"{name!r} is given twice")
        paths[text(name)] = where
    return paths


def _names(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """Names with commas between them."""
    if value is None:
        return None
    names = tuple(value.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise click.BadParameter(f"{value!r} is not a list of different names with commas between them")
    return names


def usable_cores() -> int:
    """Processor cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


json_option = click.option("--json", is_flag=True, expose_value=False, help="Print JSON; errors and warnings too.")
debug_option = click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
quiet_option = click.option("--quiet", is_flag=True, expose_value=False, help="Print warnings and errors alone.")
"""`Output.of` reads these three from the command line itself."""

jobs_option = click.option(
    "--jobs",
    type=threads,
    metavar="N",
    default=lambda: str(usable_cores()),
    help="Threads; the result is the same for any number.  [default: the usable cores]",
)


def shaping_options(command: Command) -> Command:
    """The options that shape an artifact's content beside input and recipe; the command takes `shaping`."""

    @wraps(command)
    def gathered(**options: Any) -> Any:
        from ninfer_convert.pipeline.planned import Shaping

        shaping = Shaping(**{field.name: options.pop(field.name) for field in fields(Shaping)})
        return command(shaping=shaping, **options)

    return _with(gathered, _SHAPING)


def planning_options(command: Command) -> Command:
    """INPUT and all options that decide an artifact: its content, its place, its files, how it is made.

    The command takes `input`, `recipe`, `shaping`, `out` and `running`.
    """

    @wraps(command)
    def gathered(jobs: int, memory: int | None, no_digest: bool, max_file_bytes: int | None, **rest: Any) -> Any:
        from ninfer_convert.pipeline.run import Running

        running = Running(jobs=jobs, memory=memory, digest=not no_digest, max_file_bytes=max_file_bytes)
        return command(running=running, **rest)

    return _with(gathered, (input_argument, recipe_option, _OUT, shaping_options, *_RUNNING))


def _with(command: Command, options: Sequence[Callable[[Command], Command]]) -> Command:
    """`command` with these options, in the order in which its help lists them."""
    for option in reversed(options):
        command = option(command)
    return command


input_argument = click.argument("input", metavar="INPUT")
recipe_option = click.option(
    "-r",
    "--recipe",
    metavar="RECIPE",
    callback=_require_recipe,
    help="A recipe file, or the name of a built-in one ('ninfer-convert recipes' lists them).  [required]",
)
_OUT = click.option(
    "-o",
    "--output",
    "out",
    type=path,
    metavar="OUT",
    help="The artifact, or an existing folder for it.  [default: INPUT's name with .ninfer, in this folder]",
)
_SHAPING = (
    click.option(
        "--set",
        "overrides",
        multiple=True,
        type=text,
        metavar="SELECT:KEY=VALUE",
        help="Add an assign after the recipe's own; may be repeated.",
    ),
    click.option(
        "--source",
        "sources",
        multiple=True,
        metavar="NAME=PATH",
        callback=_paths_by_name,
        help="An input that the recipe names under [sources]; base gives config and resources. May be repeated.",
    ),
    click.option(
        "--resource",
        "resources",
        multiple=True,
        metavar="ROLE=PATH",
        callback=_paths_by_name,
        help="The file to store as a resource, instead of the checkpoint's own. May be repeated.",
    ),
    click.option(
        "--components",
        metavar="A,B",
        callback=_names,
        help="The parts of the model to convert, instead of the recipe's; today there is text alone.",
    ),
    click.option("--name", type=text, help="The model's public name, instead of the recipe's."),
    click.option("--requantize", is_flag=True, help="Quantize values decoded from a quantized source again."),
    click.option("--allow-code", is_flag=True, help="Let the recipe name Python code, and run it."),
)
_RUNNING = (
    click.option(
        "--max-file-bytes", type=size, help="Cap each file and write parts: 32GB (decimal), 4GiB (binary), bytes."
    ),
    click.option("--no-digest", is_flag=True, help="Record no SHA-256 of the objects."),
    jobs_option,
    click.option(
        "--memory",
        type=size,
        help="Cap what the threads' working memory takes together; the program takes about 150 MB beside.",
    ),
)


def refuse_lost(out: str | None) -> None:
    """Raise OutputError where the folder of `out`, or that it is by its name, does not exist."""
    from ninfer_convert.container.destination import check_folder, folder_of

    if out is not None and not os.path.isdir(out):
        check_folder(out if out.endswith(os.sep) else folder_of(out))


def destination(out: str | None, default_name: str) -> Path:
    """Where the artifact goes: `out`; under its default name in the folder `out`; without `out` in this folder."""
    if out is None or os.path.isdir(out):
        return Path(out or "", f"{default_name}.ninfer")
    return Path(out)
