"""One table of planners: entry points, exports, the help and the pages say the same."""

import re
import tomllib
from pathlib import Path

from click.testing import CliRunner

import ckio.planners
from ckio.cli.plan import command
from ckio.planners.table import PLANNERS, compared

ROOT = Path(ckio.__file__).parents[1]
NAMES = [each.name for each in PLANNERS]


def test_entry_points_are_those_of_the_table() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    entries = project["entry-points"]["ckio.planners"]
    assert entries == {each.name: f"{each.module}:{each.function}" for each in PLANNERS}


def test_each_can_be_loaded_and_called_by_its_name_in_the_library() -> None:
    for each in PLANNERS:
        assert each.load() is getattr(ckio.planners, each.function)
        assert each.function.replace("_", "-").strip("-") in {each.name, "revolve-1d"}


def test_the_help_and_the_page_on_schedules_list_all_of_them() -> None:
    help_text = CliRunner().invoke(command, ["--help"]).output
    listed = help_text.partition("Planners (--planner)")[2]
    assert re.findall(r"^  ([a-z0-9-]+)  ", listed, re.MULTILINE) == NAMES
    page = (ROOT / "docs" / "which_schedule.md").read_text()
    table = page.partition("| planner | schedule |")[2]
    rows = [row.split("|")[1] for row in table.partition("\n\n")[0].splitlines() if "|" in row]
    assert {name for row in rows for name in re.findall(r"`([a-z0-9-]+)`", row)} == set(NAMES)


def test_auto_compares_the_plainest_first() -> None:
    assert list(compared("tapes", "states")) == ["store-all", "periodic", "mixed", "hrevolve"]
    assert next(iter(compared("regular"))) == "revolve"
    assert all(each.what and not each.what.endswith(".") for each in PLANNERS)
