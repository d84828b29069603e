"""The `ninfer-convert` program: its commands, loaded one at a time, and what every way of ending looks like."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from importlib import import_module

import click

from ninfer_convert import __version__
from ninfer_convert.cli.output import Output, discard, make_streams_safe, to_stderr
from ninfer_convert.cli.signals import Stopped, stop_on_signals
from ninfer_convert.errors import NinferConvertError, Problem, nearest, printable

_UNMAPPED = "failed to map segment"
"""In what the linker says of a library that gets no address space."""

_NO_LOCK = "can't allocate lock"
"""What Python says, as a RuntimeError, where there is no memory for a lock."""

COMMANDS = {
    "convert": "Convert a checkpoint into a .ninfer artifact; the word may be left out.",
    "plan": "Show what convert would do, to the byte; write nothing.",
    "info": "Show what an artifact or a checkpoint holds, from its headers.",
    "verify": "Check every byte of an artifact.",
    "check": "Say whether an artifact is what an input and a recipe would give.",
    "compare": "Hold an artifact's values against a checkpoint's or another artifact's.",
    "export": "Write an artifact back as safetensors or GGUF.",
    "imatrix": "Show what an importance matrix holds, and what of a checkpoint it covers.",
    "recipes": "List the built-in recipes; show or check one.",
    "formats": "List the numeric formats, their layouts and methods.",
}
"""Every command: the module of that name in this package holds it as `command`."""


class Commands(click.Group):
    """The main group; a first word that is no command's name is the INPUT of `convert`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"ninfer_convert.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """From the table, so that no command is loaded."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            to_stderr(ctx.get_help() + "\n")
            ctx.exit(2)
        own_options = {option for parameter in self.get_params(ctx) for option in parameter.opts}
        if args[0] not in COMMANDS and args[0] not in own_options:
            _refuse_misspelt(args[0], ctx)
            args = ["convert", *args]
        return super().parse_args(ctx, args)


def _refuse_misspelt(word: str, ctx: click.Context) -> None:
    """A word like a command's, where no file is called so, is meant as a command."""
    if word == "help" and not os.path.lexists(word):
        raise click.UsageError("unknown command 'help'; --help lists the commands, and each of them has it too", ctx)
    close = nearest(word, COMMANDS) if word.isalpha() and not os.path.lexists(word) else []
    if close:
        raise click.UsageError(f"unknown command {word!r}; did you mean {' or '.join(close)}?", ctx)


@click.group(
    cls=Commands,
    options_metavar="",
    subcommand_metavar="INPUT -r RECIPE | COMMAND ...",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="ninfer-convert", message="%(prog)s %(version)s")
def commands() -> None:
    """Convert safetensors and GGUF checkpoints into .ninfer artifacts, exact to the bit.

    \b
    ninfer-convert model.safetensors --recipe q4     writes model.ninfer
    ninfer-convert plan model.safetensors -r q4      shows what that would do
    ninfer-convert verify model.ninfer               checks every byte of it

    Every command has --help with an example, and --json for programs.
    """


def main() -> None:
    """Run the program and exit with its status."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """The exit status (cli.md): 0 done, 1 refused or failed, 2 wrong usage, 3 a negative judgement, 128 + a signal.

    A command returns 3 itself; the other ways of ending are exceptions and end here.
    """
    output = Output.of(arguments)
    make_streams_safe()
    try:
        stop_on_signals()
        with commands.make_context("ninfer-convert", list(arguments), obj=output) as context:
            return commands.invoke(context) or 0
    except click.exceptions.Exit as exit:
        return exit.exit_code
    except click.UsageError as error:
        place = error.ctx.command_path if error.ctx else "ninfer-convert"
        output.fail([Problem("usage", error.format_message())], hint=f"Try '{printable(place)} --help'.")
        return error.exit_code
    except NinferConvertError as error:
        output.fail(error.problems, _traceback(output))
        return error.exit_status
    except Stopped as stop:
        output.fail([Problem("stopped", f"stopped by {stop.name}; no partial file is left behind")], _traceback(output))
        return stop.exit_status
    except BrokenPipeError:  # the reader of a help page has gone
        discard(sys.stdout)
        return 0
    except Exception as error:
        output.fail([_unforeseen(error, output)], _traceback(output))
        if isinstance(error, OSError):
            discard(sys.stdout)
        return 1


def _unforeseen(error: Exception, output: Output) -> Problem:
    """What ended the run without an error of ours: memory, the system, a fault."""
    # Who loads a library may hide what the linker said behind words about a broken installation.
    unmapped = [told for told in map(str, _with_causes(error)) if _UNMAPPED in told]
    if unmapped:
        message = (
            f"a library cannot be loaded ({unmapped[-1].splitlines()[-1]}): there is too little memory, so allow more "
            "('ulimit -v' shows a limit), or the library's file system is mounted noexec"
        )
        return Problem("memory", message)
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM or str(error) == _NO_LOCK:
        message = (
            "memory ran out; give convert a lower --memory or fewer --jobs, or allow more ('ulimit -v' shows a limit)"
        )
        return Problem("memory", message)
    if isinstance(error, OSError):  # files of the job have errors of their own; what is left is help pages and modules
        return Problem("system", f"the system does not let the program go on: {error}")
    message = f"this is a fault of ninfer-convert itself ({type(error).__name__}: {error}); please report it"
    return Problem("internal", message if output.debug else f"{message} with what the same command prints with --debug")


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _traceback(output: Output) -> str:
    return traceback.format_exc() if output.debug else ""
