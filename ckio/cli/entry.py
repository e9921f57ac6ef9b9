"""The command `ckio`: its subcommands, its error messages of one line, and its exit status.

0       The command succeeded. If the gradient was to be checked, it is verified.
1       A run failed, or its gradient is wrong.
2       The input is wrong; nothing was done.
75      A run was stopped by a signal or by its walltime; --resume continues it.
130     The command was interrupted (128 + the number of the signal).
"""

import errno
import importlib
import io
import logging
import signal
import sys
from contextlib import suppress
from typing import Any, Final

import click

from ckio import __version__
from ckio.cli import console
from ckio.errors import BadInput, CkioError, NoSchedule, RunFailed
from ckio.model.comm import launched
from ckio.platform.readable import on_command_line

COMMANDS: Final = {
    "demo": "Run all of ckio on an example model: calibrate, plan, run, compare.",
    "calibrate": "Measure the speed of the storage levels and of a model's steps.",
    "check": "Test a model on its first steps: find out why its gradient is wrong.",
    "analyze": "Find out which arrays the checkpoints of a model must contain.",
    "plan": "Find a checkpoint schedule for the adjoint of a time-stepping model.",
    "simulate": "Predict when each action of a schedule begins and ends.",
    "run": "Compute the gradient of a model, with checkpoints on real storage.",
    "compare": "Compare the predicted with the measured timeline of a run.",
    "show": "Draw a schedule or a timeline.",
    "inspect": "List stored checkpoints; verify or remove them.",
}
"""The commands with one line of help. Each is a module here, imported when the command is run."""

ABLE: Final = frozenset({"run", "calibrate"})
"""The commands that all ranks of an MPI job run together; only the first rank runs the others."""

BAD_INPUT, FAILED = 2, 1

_TERMINATING: Final = (signal.SIGTERM, signal.SIGHUP)


class _Lazy(click.Group):
    """The commands, each of which is imported when it is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            raise click.NoSuchCommand(cmd_name, possibilities=COMMANDS, ctx=ctx)
        command: click.Command = importlib.import_module(f"ckio.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the line of each command from COMMANDS, so that no command is imported."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with on_command_line():
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            # click would print a newline first, if the KeyboardInterrupt reached it.
            raise click.Abort from error


class _Terminated(KeyboardInterrupt):
    """Raised if a signal other than Ctrl-C asks the process to clean up and to end."""


@click.group(
    cls=_Lazy,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="ckio", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Plan, run and predict the checkpoints of adjoint (reverse-mode) computations.

    Start with `ckio demo`, which needs no input. `ckio COMMAND --help` explains a command. Add
    --debug to any command to see the traceback of an error.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


class _Notes(logging.Handler):
    """Stores log messages until the command has succeeded, because an error must be one line."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def main(arguments: list[str] | None = None, /) -> None:
    """Run the command line and end the process with its exit status.

    Signals that arrive after the status is known do not change it.
    """
    status = None
    try:
        status = _status(list(sys.argv[1:] if arguments is None else arguments))
        _ignore_signals()
    except KeyboardInterrupt as error:  # not raised within click
        _ignore_signals()
        if status is None:
            status = _explain(error)
    sys.exit(status)


def _status(given: list[str]) -> int:
    """Run the command, print its notes or its error, and return the exit status."""
    words = [word for word in given if word != "--debug"]
    if _is_other_rank() and not ABLE.intersection(words[:1]):
        return 0
    notes = _Notes()
    _prepare_process(notes)
    with console.lasting():
        try:
            status = cli.main(words, "ckio", standalone_mode=False, obj=_answers(words))
        except Exception as error:
            if _is_other_rank() and _is_shared(error):
                return 0  # mpirun would end the job if another rank than the first had an error
            if words != given:
                raise
            if isinstance(error, NoSchedule):  # the notes tell where the costs come from
                for line in dict.fromkeys(notes.lines):
                    error.add_note(line)
            return _explain(error)
        with suppress(OSError):  # stderr may be a file on a full disk
            for line in dict.fromkeys(notes.lines):
                click.echo(f"ckio: {line}", err=True)
    return status if isinstance(status, int) else 0


def _is_other_rank() -> bool:
    """Return whether this process is not the first rank of its job; only the first rank prints."""
    rank_and_size = launched()
    return rank_and_size is not None and rank_and_size[0] > 0


def _is_shared(error: Exception) -> bool:
    """Return whether all ranks of the job raise this error, so that only the first prints it."""
    return error.shared if isinstance(error, CkioError) else isinstance(error, click.Abort)


def _prepare_process(notes: _Notes) -> None:
    logger = logging.getLogger("ckio")
    if _is_other_rank():
        logger.setLevel(logging.CRITICAL)
    logger.addHandler(notes)
    logger.propagate = False
    for number in _TERMINATING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _terminate)


def _terminate(number: int, frame: object) -> None:
    """Raise _Terminated, and ignore further signals of this kind, because they ask for the same."""
    del frame
    for each in _TERMINATING:
        signal.signal(each, signal.SIG_IGN)
    raise _Terminated(number)


def _ignore_signals() -> None:
    for number in (signal.SIGINT, *_TERMINATING):
        signal.signal(number, signal.SIG_IGN)


def _answers(words: list[str]) -> io.TextIOWrapper | None:
    """Return the stream for the line of JSON, or None without --json or without a stdout."""
    return console.claim_stdout() if "--json" in words and sys.stdout is not None else None


def _explain(error: BaseException) -> int:
    """Print the error as one line on stderr; return the exit status."""
    hint = "; add --debug to see the traceback"
    match error:
        case click.ClickException():
            context = error.ctx if isinstance(error, click.UsageError) else None
            command = context.command_path.partition(" ")[2] if context else ""
            text = f"{command}{': ' if command else ''}{error.format_message()}"
            if isinstance(error, click.MissingParameter):
                text += f" See ckio {command} --help"
            status = BAD_INPUT
        case BadInput():
            text, status = f"{error}", BAD_INPUT
        case CkioError():
            theirs = isinstance(error, RunFailed) and error.__cause__ is not None
            text, status = f"{error}{hint if theirs else ''}", FAILED
        case OSError(errno=errno.ENOSPC, filename=None):
            text = f"stdout cannot be written: {error.strerror}; redirect it to another file"
            status = FAILED
        case MemoryError():
            text, status = "out of memory; plan with a smaller working memory or capacity", FAILED
        case click.Abort() | KeyboardInterrupt():
            error = error.__cause__ or error
            number = error.args[0] if isinstance(error, _Terminated) else signal.SIGINT
            text, status = "interrupted", 128 + number
        case _:
            text, status = f"{type(error).__name__}: {error}{hint}", FAILED
    if isinstance(error, click.ClickException) and _is_other_rank():
        return status
    for note in getattr(error, "__notes__", ()):
        text += f"{' ' if note.startswith('(') else '; '}{note}"
    with suppress(OSError):  # the terminal may be closed
        click.echo(f"ckio: {' '.join(text.split())}", err=True)
    return status
