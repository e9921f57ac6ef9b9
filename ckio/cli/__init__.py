"""The command line: strings in and out; everything it does is a call of the library.

Importing this package loads nothing else, so that `started` comes before all other modules.
"""


def main(arguments: list[str] | None = None, /) -> None:
    """Run the command line and leave the process with its exit status."""
    from ckio.cli.entry import main as run

    run(arguments)
