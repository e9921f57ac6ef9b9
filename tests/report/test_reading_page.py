"""The page on the report: its commands print such lines, and it explains each heading of a page.

The run that it explains is that of the tour.
"""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from example_models import EXAMPLES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reading_the_report.md"
TOUR = ROOT / "docs" / "tour.md"
CKIO = Path(sys.executable).with_name("ckio")
BLOCK = re.compile(r"<!-- measured -->\n```console\n\$ (.*?)\n(.*?)\n```", re.DOTALL)
CHANGING = r"'[^']+' explains|digest \w+|\b(level \w+|computing) is the bottleneck|above|below"
FIGURE = r"[-+]?\d[\d.,]*(e[-+]?\d+)?%?( (ns|µs|ms|s|B|KiB|MiB|GiB)\b)?"


def shape(printed: str) -> list[str]:
    """Return what is printed without figures, and without the width of lines and columns."""
    joined = re.sub(r"(?<=[^\n])\n(?=MiB|time|and level)", " ", printed)
    words = re.sub(FIGURE, "", re.sub(CHANGING, "", " ".join(joined.split())))
    return re.sub(r"-{3,}", "", words).split()


@pytest.mark.slow
def test_the_page_shows_what_is_printed(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "ocean" / "ocean.py", tmp_path)
    platform = (ROOT / "docs" / "_site" / "tour.toml").read_text(encoding="utf-8")
    here = platform.replace("/home/you/tour", str(tmp_path))
    (tmp_path / "node.toml").write_text(here, encoding="utf-8")
    tour = [it for it in BLOCK.findall(TOUR.read_text(encoding="utf-8")) if "ckio run" in it[0]]
    assert len(tour) == 1
    for line, printed in tour + BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        words = [str(CKIO), *shlex.split(line)[1:]]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert shape(done.stdout) == shape(printed)
    headings = re.findall(r"<h2>(.*?)</h2>", (tmp_path / "report.html").read_text("utf-8"))
    explained = set(re.findall(r"^#+ (.*)$", PAGE.read_text("utf-8"), re.MULTILINE))
    inside = {"Run summary", "Storage levels", "The platform", "Predicted and measured"}
    assert set(headings) <= explained | inside
    assert len(set(headings) & explained) >= 4
