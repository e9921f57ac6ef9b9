"""Write the files of the documentation that are made from the code: the pictures.

    python docs/_site/write.py              after a change of the code
    python docs/_site/write.py --check      only says which of them differ

They lie in the repository, so that every page can be read where it lies, without building the site.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pictures

DOCS = Path(__file__).parent.parent


def texts() -> Iterator[tuple[Path, str]]:
    """Return each file with the text that it must have."""
    for name in pictures.NAMES:
        yield DOCS / "pictures" / f"{name}.svg", pictures.picture(name).file()


def main() -> None:
    """Write all of them, and remove pictures that are drawn no more; or say which differ."""
    current = dict(texts())
    if "--check" in sys.argv:
        differing = [path.name for path, text in current.items() if path.read_text() != text]
        sys.exit(f"python docs/_site/write.py writes anew: {differing}" if differing else 0)
    (DOCS / "pictures").mkdir(exist_ok=True)
    for path in (DOCS / "pictures").glob("*.svg"):
        if path not in current:
            path.unlink()
    for path, text in current.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
