"""The command `ckio`: its subcommands, its errors in one line, and its exit status.

0       done, and the gradient is verified where that was asked for
1       a run failed, or its gradient is wrong
2       bad input; nothing was done
75      a run was stopped, by a signal or its walltime; --resume goes on with it
130     interrupted (128 + the number of the signal)
"""

import importlib
import io
import logging
import os
import re
import signal
import sys
from contextlib import suppress
from typing import Any, Final

import click

from ckio import __version__
from ckio.cli import console, end_at_once
from ckio.cli.console import Unprinted, printing
from ckio.errors import BadInput, CkioError, NoSchedule, RunFailed
from ckio.model.comm import launched
from ckio.platform.memory import check_address_space
from ckio.platform.readable import shown

COMMANDS: Final = {
    "demo": "The whole loop on a real model, nothing to configure.",
    "calibrate": "Measure this machine's storage levels and a model's steps.",
    "analyze": "Find out what a model's checkpoints have to hold, and what that saves.",
    "plan": "Make a planner's schedule for a chain on a platform.",
    "simulate": "Predict when every action of a schedule begins and ends.",
    "failures": "Expect a makespan where a run is killed now and then, and the best interval of"
    " adjoint checkpoints.",
    "sweep": "Ask what other machines, chains and planners would take.",
    "run": "Run a model's adjoint by a schedule, on real storage.",
    "compare": "Line up a predicted and a measured timeline.",
    "show": "Draw a schedule or a timeline.",
    "inspect": "List the checkpoints in a place, and verify them.",
    "clean": "Remove what abandoned runs left in a place.",
}
"""Each command is a module of this package; it is imported when it is called."""

ABLE: Final = frozenset({"run", "calibrate"})
"""The commands that many ranks do together; any other is done by the first alone."""

LOADING: Final = frozenset({"run", "calibrate", "demo", "analyze"})
"""The commands that load libraries of linear algebra, by themselves or for a model."""

BAD_INPUT, FAILED = 2, 1

_LONGEST: Final = 4000
"""Characters of an error."""

_TERMINATING: Final = (signal.SIGTERM, signal.SIGHUP)


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            from ckio.platform.readable import meant

            hint = meant(cmd_name, COMMANDS)
            raise click.UsageError(f"no command is named {cmd_name!r}; {hint}")
        command: click.Command = importlib.import_module(f"ckio.cli.{cmd_name}").command
        _raise_interrupts()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a line of each command: the overview does not import the commands."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            # Before click sees it, which would begin a new line.
            raise click.Abort from error


def _raise_interrupts() -> None:
    """Let Ctrl-C be a KeyboardInterrupt again: from here on there is something to put in order."""
    if signal.getsignal(signal.SIGINT) is end_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class _Terminated(KeyboardInterrupt):
    """A signal other than Ctrl-C that asks to stop, and to leave things in order."""


@click.group(
    cls=_Lazy,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="ckio", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Checkpoint I/O for adjoint computation: measure, plan, simulate, run, compare.

    Start with `ckio demo`. With --debug anywhere, errors come with their traceback.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


class _Notes(logging.Handler):
    """Keeps what is logged until the command has ended well: an error is one line, alone."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def main(arguments: list[str] | None = None, /) -> None:
    """Run the command line and leave the process with its exit status.

    Signals that come once that is known change nothing.
    """
    status = None
    try:
        status = _status(list(sys.argv[1:] if arguments is None else arguments))
        _ignore_signals()
    except KeyboardInterrupt as error:  # outside of the command, where click sees it
        _ignore_signals()
        if status is None:
            status = _explain(error)
    sys.exit(status)


def _status(given: list[str]) -> int:
    """Run the command, say what there is to say, and return the exit status."""
    words = [word for word in given if word != "--debug"]
    debug = words != given
    if _is_told_by_another() and not ABLE.intersection(words[:1]):
        return 0
    notes = _Notes()
    _prepare_process(notes)
    try:
        if LOADING.intersection(words[:1]) and not {"-h", "--help"}.intersection(words):
            check_address_space()
        answers = _answers(words)
        with printing():
            status = cli.main(words, prog_name="ckio", standalone_mode=False, obj=answers)
    except BrokenPipeError:
        return _leave_quietly()
    except Exception as error:
        if _is_told_by_another() and _is_shared(error):
            return 0  # a launcher ends the job where the first process leaves with another status
        if debug:
            raise
        if isinstance(error, NoSchedule):  # where costs come from may be why
            for line in dict.fromkeys(notes.lines):
                error.add_note(line)
        return _explain(error)
    with suppress(OSError):  # of a log on a full disk
        for line in dict.fromkeys(notes.lines):
            console.echo(f"ckio: {shown(line)}", err=True)
    return status if isinstance(status, int) else 0


def _is_told_by_another() -> bool:
    """Return whether the first rank of this job is another: that one speaks for all."""
    rank_and_size = launched()
    return rank_and_size is not None and rank_and_size[0] > 0


def _is_shared(error: Exception) -> bool:
    """Return whether all ranks of the job raise it, so that the first one can tell it alone."""
    return error.shared if isinstance(error, CkioError) else isinstance(error, click.Abort)


def _prepare_process(notes: _Notes) -> None:
    logger = logging.getLogger("ckio")
    if _is_told_by_another():
        logger.setLevel(logging.CRITICAL)
    logger.addHandler(notes)
    logger.propagate = False
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None where it was closed
            stream.reconfigure(errors="replace")  # ASCII has no µ
    for number in _TERMINATING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _terminate)


def _terminate(number: int, frame: object) -> None:
    """Interrupt, once: who sends another signal of these does not mean more by it."""
    del frame
    for each in _TERMINATING:
        signal.signal(each, signal.SIG_IGN)
    raise _Terminated(number)


def _ignore_signals() -> None:
    for number in (signal.SIGINT, *_TERMINATING):
        signal.signal(number, signal.SIG_IGN)


def _answers(words: list[str]) -> io.TextIOWrapper | None:
    """Return where the line of JSON goes, if one is asked for and there is a stdout."""
    return console.claim_stdout() if "--json" in words and sys.stdout is not None else None


def _leave_quietly() -> int:
    """Throw away what is still in buffers: whoever read our output has seen enough."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    return FAILED


def _explain(error: BaseException) -> int:
    """Say in one line what is wrong; returns the exit status."""
    hint = "; with --debug you see where"
    match error:
        case click.ClickException():
            text, status = _in_our_voice(error), BAD_INPUT
        case BadInput():
            text, status = f"{error}", BAD_INPUT
        case CkioError():
            theirs = isinstance(error, RunFailed) and error.__cause__ is not None
            text, status = f"{error}{hint if theirs else ''}", FAILED
        case Unprinted():
            text = f"stdout cannot be written: {error.strerror}; print to somewhere else"
            status = FAILED
        case MemoryError():
            text, status = "out of memory; plan with less working memory or capacity", FAILED
        case click.Abort() | KeyboardInterrupt():
            error = error.__cause__ or error
            number = error.args[0] if isinstance(error, _Terminated) else signal.SIGINT
            text, status = "interrupted", 128 + number
        case _:
            text, status = f"{type(error).__name__}: {error}{hint}", FAILED
    if isinstance(error, click.ClickException) and _is_told_by_another():
        return status
    text = "; ".join([text, *getattr(error, "__notes__", ())])
    with suppress(OSError):  # of a terminal that was closed
        console.echo(f"ckio: {_cut(' '.join(text.split()))}", err=True)
    return status


def _cut(line: str) -> str:
    """Shorten a message: leave out the middle of a long quotation from a file."""
    return (
        line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}"
    )


def _in_our_voice(error: click.ClickException) -> str:
    """Return a message of click with its place, without a capital and a full stop."""
    text = re.sub(r"\.? \(?Did (.*?)[?)]*$", r"; did \1?", error.format_message())
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path.partition(" ")[2] if context else ""
    more = f"; see ckio {command} --help" if isinstance(error, click.MissingParameter) else ""
    return f"{command}{': ' if command else ''}{text[:1].lower()}{text[1:].rstrip('.')}{more}"
