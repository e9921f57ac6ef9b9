"""The navigation: a folder in it stands for all pages that lie there; the first page lists them."""

import re
from pathlib import Path
from typing import Any, Final

MARK: Final = re.compile("<!-- adapters: .*? -->")
"""Where the list of the adapters' pages goes."""


def on_config(config: Any) -> Any:
    """Put the pages of `adapters/` where the navigation names the folder."""
    config.nav = _expanded(config.nav, Path(config.docs_dir))
    return config


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Put the list of the adapters' pages where the page asks for it."""
    del page, files
    docs = Path(config.docs_dir)
    return MARK.sub(
        lambda _: "\n".join(map(_line, sorted((docs / "adapters").glob("*.md")))), markdown
    )


def _line(path: Path) -> str:
    """A page of an adapter by its title."""
    title = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return f"* [{title[1] if title else path.stem}](adapters/{path.name})"


def _expanded(entries: list[Any], docs: Path) -> list[Any]:
    pages: list[Any] = []
    for entry in entries:
        match entry:
            case "adapters/":
                found = sorted((docs / entry).glob("*.md"))
                pages += [path.relative_to(docs).as_posix() for path in found]
            case dict():
                pages.append(
                    {
                        title: _expanded(below, docs) if isinstance(below, list) else below
                        for title, below in entry.items()
                    }
                )
            case _:
                pages.append(entry)
    return pages
