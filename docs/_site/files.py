"""Files of the repository as pages of the site: the README, the changelog, and what pages link to.

In the repository a page links to a test or to a result by its path. The site has a page for each
of these files, so that every such link leads somewhere without a network.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGES = {"README.md": "readme.md", "CHANGELOG.md": "changelog.md"}
"""Files that are pages as they stand, and where they are on the site."""

_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)(?=[)#])")
_LANGUAGES = {".py": "python", ".toml": "toml", ".c": "c", ".f90": "fortran", ".sh": "sh"}


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages."""
    from mkdocs.structure.files import File

    root = Path(config.config_file_path).parent
    for path, page in PAGES.items():
        text = (root / path).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    texts = {_source(file.src_uri): file.content_string for file in files.documentation_pages()}
    todo = [target for origin, text in texts.items() for target in _linked(origin, text, root)]
    seen = set()
    while todo:
        path = todo.pop()
        if path in seen or path in PAGES or path.startswith("docs/"):
            continue
        seen.add(path)
        text = _page(path, root)
        todo += _linked(path, text, root) if (root / path).is_dir() else []
        files.append(File.generated(config, _place(path), content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Let links to files of the repository lead to their pages."""
    del files
    root = Path(config.config_file_path).parent
    here = page.file.src_uri
    origin = _source(here)
    if origin.startswith("files/"):
        origin = origin.removeprefix("files/").removesuffix(".md")
        if not (root / origin).is_dir():
            return markdown

    def moved(link: re.Match[str]) -> str:
        path = _path(origin, link[1], root)
        if path is None:
            return link[1]
        return os.path.relpath(_place(path), Path(here).parent)

    return _LINK.sub(moved, markdown)


def _linked(origin: str, text: str, root: Path) -> Iterator[str]:
    """The files that a page links to, as paths from the root of the repository."""
    return (path for link in _LINK.findall(text) if (path := _path(origin, link, root)))


def _path(origin: str, link: str, root: Path) -> str | None:
    """What a link on a page names, if it is there in the repository."""
    path = os.path.normpath(Path(origin).parent / link)
    return path if not path.startswith("..") and (root / path).exists() else None


def _source(page: str) -> str:
    """Where a page of the site comes from: a path in the repository."""
    if page.startswith("files/"):
        return page
    return next((path for path, place in PAGES.items() if place == page), f"docs/{page}")


def _place(path: str) -> str:
    """The page of the site for a file, or a directory, of the repository."""
    if path in PAGES:
        return PAGES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"files/{path}.md"


def _page(path: str, root: Path) -> str:
    """A file as it is; of a directory its list of texts."""
    head = f"---\ntitle: {path}\nsearch:\n  exclude: true\n---\n\n# {path}\n\n"
    file = root / path
    if file.is_dir():
        texts = sorted(f"{entry.name}" for entry in file.glob("*.txt"))
        return head + "\n".join(f"* [{name}]({file.name}/{name})" for name in texts) + "\n"
    text = file.read_text(encoding="utf-8")
    fence = "`" * (3 + max((len(found) for found in re.findall(r"`{3,}", text)), default=0))
    return f"{head}{fence}{_LANGUAGES.get(file.suffix, 'text')}\n{text}\n{fence}\n"
