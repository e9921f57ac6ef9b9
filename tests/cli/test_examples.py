"""The example at the end of each command's help works, and options of few users are hidden."""

import shlex
from importlib import import_module
from pathlib import Path

import pytest
from cli.commands import ckio

from ckio.cli.entry import COMMANDS
from ckio.cli.options import ExampleCommand


def example(name: str) -> str:
    command = import_module(f"ckio.cli.{name}").command
    assert isinstance(command, ExampleCommand)
    return command.example


@pytest.mark.slow
def test_the_examples_work_one_after_the_other_in_an_empty_directory(tmp_path: Path) -> None:
    for name in COMMANDS:
        first, command, *words = shlex.split(example(name).replace("\\\n", " "))
        assert (first, command) == ("ckio", name)
        assert ckio(command, *words, at=tmp_path).stdout
    assert {path.name for path in tmp_path.iterdir()} == {
        *("ckio-demo", "ckio-run"),
        *("platform.toml", "plan.txt", "plan.svg"),
    }


def test_every_command_explains_itself_and_ends_with_the_example(tmp_path: Path) -> None:
    for name in COMMANDS:
        text = ckio(name, "--help", at=tmp_path).stdout
        assert f"Usage: ckio {name}" in text
        *_, last = text.split("Example:\n")
        assert last.split() == example(name).split()


def test_options_that_few_users_need_are_listed_on_request(tmp_path: Path) -> None:
    for name, common, rare in (("run", "--disk", "--mtbf"), ("plan", "--model", "--advance")):
        short, long = (ckio(name, more, at=tmp_path).stdout for more in ("--help", "--help-all"))
        assert f"  {common} " in short
        assert f"  {rare} " not in short
        assert len(short.split("Options:")[1].splitlines()) < 75
        options, more = long.split("More options:")
        assert (f"  {common} " in options, f"  {rare} " in more) == (True, True)
