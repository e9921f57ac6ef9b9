"""The messages that docs/troubleshooting.md quotes are those of the code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
LEAST = 12
"""The fewest characters of a message that the code has to have in one piece."""


def quoted() -> list[str]:
    """The lines in blocks, and the messages in the table of MPI jobs."""
    blocks = re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    table = PAGE.split("## MPI jobs")[1].split("\n\n")[1]
    cells = re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)
    return [line for block in blocks for line in block.splitlines()] + cells


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes, as `ast.walk` yields them, in half the time."""
    left = [tree]
    while left:
        yield (node := left.pop())
        for value in vars(node).values():
            if isinstance(value, ast.AST):
                left.append(value)
            elif isinstance(value, list):
                left += [each for each in value if isinstance(each, ast.AST)]


def texts(tree: ast.AST) -> Iterator[list[str]]:
    """The fixed parts of each text in a piece of code, in their order."""
    for each in nodes(tree):
        if isinstance(each, ast.JoinedStr):
            yield [str(it.value) for it in each.values if isinstance(it, ast.Constant)]
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield [each.value]


def messages() -> list[list[str]]:
    """The fixed parts of each text that may be a message."""
    trees = (ast.parse(path.read_text()) for path in (ROOT / "ckio").rglob("*.py"))
    parts = (part for tree in trees for part in texts(tree))
    return [part for part in parts if max(map(len, part), default=0) >= LEAST]


def contains(line: str, parts: list[str]) -> bool:
    """Whether the parts are in the line, in this order."""
    at = 0
    for part in parts:
        found = line.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True


def test_each_message_is_one_of_the_code() -> None:
    known = messages()
    plain = [".*?".join(parts) for parts in known]

    def is_known(line: str) -> bool:
        pieces = [piece.strip("`:; ") for piece in line.split("…") if len(piece) >= LEAST]
        assert pieces, line
        shortened = any(piece in text for text in plain for piece in pieces)
        return shortened or any(contains(line, parts) for parts in known)

    assert [line for line in quoted() if not is_known(line)] == []
