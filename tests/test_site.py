"""The site: it is built without a warning and a network, and what its pages show is what is so."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
from example_models import EXAMPLES

import ckio
from ckio.cli.entry import COMMANDS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
OURS = ("index", "tour", "concepts", "own_model", "reading_the_report")
"""The pages whose code is run here; others have tests of their own."""
BLOCK = re.compile(r"(?:<!-- ([\w ]+) -->\n)?```console\n(.*?)\n```", re.DOTALL)
PLACE = "/home/you/tour"


@cache
def hook(name: str) -> ModuleType:
    """One of the files that make the site."""
    spec = importlib.util.spec_from_file_location(f"site_{name}", DOCS / "_site" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `mkdocs build --strict` makes it where there is no network."""
    for needed in ("mkdocs", "material", "mkdocstrings_handlers"):
        pytest.importorskip(needed)
    place = tmp_path_factory.mktemp("site")
    nowhere = {f"{kind}_proxy": "http://127.0.0.1:9" for kind in ("http", "https", "all")}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", place],
        cwd=ROOT,
        env=os.environ | nowhere | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return place


class Page(HTMLParser):
    """What a page loads, and what can be linked to on it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.title = ""
        self._open = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._open = tag
        if "id" in given:
            self.anchors.add(given["id"])
        if "src" in given:
            self.loads.append(given["src"])
        if tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(given["href"])

    def handle_data(self, data: str) -> None:
        if self._open == "title":
            self.title += data
            self._open = ""


def pages(site: Path) -> dict[str, Page]:
    return {str(path.relative_to(site)): Page(path) for path in site.rglob("*.html")}


@pytest.mark.slow
def test_each_page_has_a_title_and_loads_nothing_from_elsewhere(site: Path) -> None:
    found = pages(site)
    assert len(found) > 30
    for name, page in found.items():
        assert page.title.strip(), name
        assert not [url for url in page.loads if re.match(r"\w+:(?!image/)|//", url)], name
    for style in site.rglob("*.css"):
        css = style.read_text(encoding="utf-8")
        assert not re.search(r"(@import\s|url\()\s*['\"]?(https?:)?//", css), style


@pytest.mark.slow
def test_every_page_of_the_folder_is_on_the_site_and_adapters_are_in_the_navigation(
    site: Path,
) -> None:
    first = (site / "index.html").read_text(encoding="utf-8")
    for path in DOCS.rglob("*.md"):
        place = path.relative_to(DOCS).with_suffix("")
        page = "index.html" if place.name == "index" else f"{place}/index.html"
        assert (site / page).exists()
        if place.parts[0] == "adapters":
            assert f'href="{place}/"' in first


@pytest.mark.slow
def test_pictures_are_well_formed_and_on_their_pages(site: Path) -> None:
    for name in hook("pictures").PICTURES:
        root = ElementTree.parse(site / "pictures" / f"{name}.svg").getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert len(root.findall(".//*")) > 20, name
        assert any(f"(pictures/{name}.svg)" in text(page) for page in OURS), name
    for page in ("index", "tour", "concepts"):
        asked = re.findall(r"pictures/([\w-]+)\.svg\)", text(page))
        html = (site / (page if page != "index" else "") / "index.html").read_text("utf-8")
        assert asked
        assert html.count('<figure class="timeline">') == len(asked)
        assert "<img" not in html


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site: Path) -> None:
    anchors = [Page(path).anchors for path in (site / "reference").rglob("*.html")]
    for name in ckio.__all__:
        assert sum(f"ckio.{name}" in page for page in anchors) == 1, name


@pytest.mark.slow
def test_every_command_has_a_section_with_its_options(site: Path) -> None:
    page = Page(site / "commands" / "index.html")
    told = (site / "commands" / "index.html").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"ckio-{name}" in page.anchors
        assert f"Usage: ckio {name} " in told
    assert "--walltime" in told


@pytest.mark.slow
def test_no_link_of_the_readme_is_dead(site: Path) -> None:
    readme = site / "readme" / "index.html"
    links = re.findall(r"<article.*</article>", readme.read_text("utf-8"), re.DOTALL)[0]
    inside = [link for link in re.findall(r'href="([^"#]+)', links) if "://" not in link]
    assert len(inside) > 10
    assert all((readme.parent / link / "index.html").exists() for link in inside), inside


def test_captions_say_what_the_pictures_show() -> None:
    """Seconds are makespans, and steps taken again are what the schedule advances over."""
    pictures, told = hook("pictures"), 0
    for words, name in re.findall(r"!\[([^]]*)\]\(pictures/([\w-]+)\.svg\)", text("concepts")):
        case = pictures.PICTURES[name][0]()
        for seconds in re.findall(r"(\d+\.\d) s\b", words):
            assert f"{case.timeline.makespan:.1f}" == seconds, name
            told += 1
        for steps in re.findall(r"(\d+) steps are taken again", words):
            assert ckio.schedule.counts(case.schedule).advanced == int(steps), name
            told += 1
        for size in re.findall(r"at most (\d+\.\d) MiB", words):
            (level,) = ckio.schedule.counts(case.schedule).levels
            assert f"{level.peak_bytes / 2**20:.1f}" == size, name
            told += 1
    assert told > 14


@pytest.mark.campaign
@pytest.mark.parametrize("page", OURS)
def test_python_on_the_pages_runs(page: str, tmp_path: Path) -> None:
    """A block that begins with the name of a file is that file; the last of a page is run.

    After adjoint.py, own_model has a model that tests/model/test_raw_model.py runs.
    """
    blocks = re.findall(r"```python\n(?:# (\w+\.py)\n)?(.*?)```", text(page), re.DOTALL)
    for name, code in blocks:
        (tmp_path / (name or "script.py")).write_text(code, encoding="utf-8")
    for name, _ in [block for block in blocks if block[0] != "growth.py"][-1:]:
        words = [sys.executable, name or "script.py"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert page != "own_model" or "the gradient is right: True" in done.stdout


def test_the_misfit_at_the_final_time_on_the_page_has_a_right_gradient(tmp_path: Path) -> None:
    for name, code in re.findall(
        r"```python\n# (heat\w*\.py)\n(.*?)```", text("own_model"), re.DOTALL
    ):
        (tmp_path / name).write_text(code, encoding="utf-8")
    words = [sys.executable, "heat_target.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("verified"), done.stderr


@pytest.mark.slow
def test_the_model_of_the_page_runs_from_the_command_line(tmp_path: Path) -> None:
    page = text("own_model")
    ((name, code),) = re.findall(r"```python\n# (heat\.py)\n(.*?)```", page, re.DOTALL)
    (tmp_path / name).write_text(code, encoding="utf-8")
    (block,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    printed = [printed_by(line, tmp_path) for line in block.splitlines()]
    assert "gradient check  verified" in printed[-1]


def command(line: str, place: Path) -> subprocess.CompletedProcess[str]:
    words = [str(Path(sys.executable).with_name("ckio")), *shlex.split(line)[1:]]
    return subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)


def printed_by(line: str, place: Path) -> str:
    """What a command prints that succeeds."""
    done = command(line, place)
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    return done.stdout


def blocks(kind: str) -> list[tuple[str, str]]:
    """Commands of the tour, each with what is printed below it."""
    found = [body for what, body in BLOCK.findall(text("tour")) if what == kind]
    parts = [part.split("\n", 1) for body in found for part in re.split(r"(?m)^\$ ", body)[1:]]
    return [(line, rest[0].rstrip() if rest else "") for line, *rest in parts]


def shape(printed: str) -> list[str]:
    """What is printed without its figures and their units, and without the widths of columns."""
    figures = r"[-+]?\d[\d.,]*(e[-+]?\d+)?%?( (ns|µs|ms|s|B|KiB|MiB|GiB)(/s)?\b)?"
    verdict = r"(?ms)^Gradient of .*?\n\n"  # its lines end as its figures allow
    printed = re.sub(verdict, "verdict\n", printed)
    found = re.sub(figures, "", re.sub(r"digest \w+|'[^']+' explains", "", printed))
    words = (
        sorted(line.replace("below", "").replace("above", "").split())
        for line in found.splitlines()
    )
    return [" ".join(line) for line in words if line and not set("".join(line)) <= {"-"}]


def on_this_machine(place: Path) -> Path:
    """The tour's model, and its platform file, with a level in a place that is here."""
    shutil.copy(EXAMPLES / "ocean" / "ocean.py", place)
    platform = (DOCS / "_site" / "tour.toml").read_text(encoding="utf-8")
    (place / "node.toml").write_text(platform.replace(PLACE, str(place)), encoding="utf-8")
    return place


@pytest.mark.slow
def test_the_tour_prints_what_it_says(tmp_path: Path) -> None:
    """All that goes by the platform file is the same wherever it is done."""
    on_this_machine(tmp_path)
    told = blocks("")
    assert len(told) >= 6
    for line, printed in told:
        assert printed_by(line, tmp_path).rstrip() == printed.rstrip(), line


@pytest.mark.slow
def test_the_tour_measures_what_it_says(tmp_path: Path) -> None:
    """Figures differ from machine to machine; lines and columns do not."""
    for line, printed in blocks("measured"):
        on_this_machine(tmp_path)  # which the first command changes
        assert shape(printed_by(line, tmp_path)) == shape(printed)


@pytest.mark.slow
def test_the_tour_answers_more_questions(tmp_path: Path) -> None:
    on_this_machine(tmp_path)
    told = blocks("more")
    assert len(told) >= 5
    for line in [line for line, _ in blocks("") + blocks("measured") if "best.txt" in line]:
        printed_by(line, tmp_path)
    (run,) = [line for line, _ in blocks("measured") if line.startswith("ckio run")]
    printed_by(run, tmp_path)
    for line, _ in told:
        assert printed_by(line, tmp_path), line


@pytest.mark.slow
def test_the_tour_stops_and_goes_on(tmp_path: Path) -> None:
    on_this_machine(tmp_path)
    (first, _), (again, printed) = blocks("another time")
    for seconds in (6, 12, 24, 48):  # where the machine is busy, it may take that long to start
        done = command(first.replace("--walltime 6s", f"--walltime {seconds}s"), tmp_path)
        if done.returncode != 1:
            break
        assert "--walltime is over before the first step" in done.stderr
    if done.returncode == 75:
        assert "resume with: ckio run ocean.py --resume --into run2" in done.stderr
        done = command(again, tmp_path)
    assert done.returncode == 0, done.stderr
    (digest,) = re.findall(r"functional +(\S+)", printed)
    assert digest in done.stdout


def test_the_page_of_benchmarks_is_made_from_the_results() -> None:
    from bench import page

    assert text("benchmarks") == page.page(), "run `python -m bench.page`"
