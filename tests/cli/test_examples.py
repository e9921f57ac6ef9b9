"""The example at the end of each command's help works, and options are listed in groups."""

import shlex
from importlib import import_module
from pathlib import Path

import pytest
from cli.commands import ckio

from ckio.cli.entry import COMMANDS
from ckio.cli.options import PAPERS_GROUP, ExampleCommand


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
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {
        *("ckio-demo", "ckio-run"),
        *("platform.toml", "plan.txt", "plan.svg", "table.csv"),
    }


@pytest.mark.campaign
@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_the_example(name: str, tmp_path: Path) -> None:
    text = ckio(name, "--help", at=tmp_path).stdout
    *_, last = text.split("Example:\n")
    assert [line.strip() for line in last.splitlines()] == [
        line.strip() for line in example(name).splitlines()
    ]


def test_options_are_listed_in_groups_and_those_of_papers_last(tmp_path: Path) -> None:
    lines = ckio("plan", "--help", at=tmp_path).stdout.splitlines()
    titles = [line.removesuffix(":") for line in lines if line.endswith(":") and line[0] != " "]
    assert titles[0] == "Options"
    assert titles[-3:] == [PAPERS_GROUP, "Planners (--planner)", "Example"]
    options = [line.split()[0] for line in lines if line.startswith("  --")]
    assert len(options) == len(set(options))
    papers = options[options.index("--reread") :]
    assert papers == ["--reread", "--certify", "--format", "--concat", "--sequence"]
