"""The navigation: a folder in it stands for all pages that lie there."""

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Put the pages of `adapters/` where the navigation names the folder."""
    config.nav = _expanded(config.nav, Path(config.docs_dir))
    return config


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
