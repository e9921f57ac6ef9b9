"""Pages are complete as they lie in the repository: links, pictures, and what the code makes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    ROOT / name
    for name in subprocess.check_output(
        ["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, text=True
    ).split()
)
CODE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]*)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"^#+ +(.+?) *#*$", re.MULTILINE)


def prose(page: Path) -> str:
    """Return a page without its code."""
    return CODE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """Return the anchors that the headings of a page get, on the site as in a repository."""
    words = (re.sub(r"[`*]|\]\([^)]*\)|\[", "", it).lower() for it in HEADING.findall(prose(page)))
    return {re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    lost = []
    for path, anchor in LINK.findall(prose(page)):
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            lost.append(path)
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            lost.append(f"{path}#{anchor}")
    assert not lost


def test_no_page_needs_a_build_to_be_complete():
    for page in PAGES:
        assert not re.search(r"^::: |^--8<--|\{%|\{\{|\]\[ckio", prose(page), re.MULTILINE), page


CHECK = """
import sys
import pictures
import write
pictures.NAMES = [name for name in pictures.NAMES if name != sys.argv[2]]
write.main()
"""


@pytest.mark.campaign
@pytest.mark.parametrize("without", ["memory", ""])
def test_files_made_from_the_code_are_those_that_the_code_makes(without):
    """In a process of its own, because other tests install plugins, which help texts list.

    The picture of the tour's chain with more memory and with less takes many plans.
    """
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT / "docs/_site"), *filter(None, sys.path)])}
    words = [sys.executable, "-c", CHECK, "--check", without]
    done = subprocess.run(
        words, cwd=ROOT, env=os.environ | path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_table_of_gains_is_made_from_the_results():
    from bench import page

    assert page.README.read_text() == page.readme(), "python -m bench.page writes it anew"


def test_the_first_page_names_every_adapter():
    first = (ROOT / "docs/index.md").read_text()
    for page in (ROOT / "docs/adapters").glob("*.md"):
        assert f"(adapters/{page.name})" in first, page.name
