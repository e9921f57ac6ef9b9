"""The files of ckio that a call enters, written into the page on the architecture.

    python docs/_site/flows.py      writes them anew, after a change of the code

A file is entered if one of its functions is called. Calls while a module is imported do not count.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parent.parent / "architecture.md"

PLATFORM: Final = """\
format = 1
working_memory = "8 MB"
[[level]]
name = "ram"
capacity = "64 MB"
write = { latency = 0.0, per_byte = 1e-10 }
read = { latency = 0.0, per_byte = 1e-10 }
[[level]]
name = "nvme"
backend = "directory"
capacity = "640 MB"
write = { latency = 0.001, per_byte = 1e-9 }
read = { latency = 0.001, per_byte = 1e-9 }
"""

_PLAN: Final = (
    "plan --steps 200 --platform p.toml --advance 1 --record 1 --reverse 2 --restart 8MB --tape 8MB"
    " --adjoint 8MB"
)

FLOWS: Final = {
    "ckio plan --planner hrevolve": f"main({f'{_PLAN} --planner hrevolve'.split()})",
}
"""The heading of each list, and the call."""

_SCRIPT: Final = """
import sys, threading
import ckio
from ckio.cli import main
files, importing = {}, 0

def profile(frame, event, argument):
    global importing
    code = frame.f_code
    if code.co_name == "<module>":
        importing += (event == "call") - (event == "return")
    is_function = code.co_flags & 1  # the body of a class is not optimized
    if event == "call" and not importing and is_function and code.co_filename.startswith(ROOT):
        files.setdefault(code.co_filename[len(ROOT):])

ROOT = ckio.__file__.removesuffix("__init__.py")
sys.setprofile(profile)
threading.setprofile(profile)
try:
    CALL
except SystemExit as end:
    assert not end.code, end.code
finally:
    sys.setprofile(None)
print("ENTERED", *files)
"""


def entered(call: str, /) -> list[str]:
    """Return the files that a call enters, below ckio/, in the order in which it does."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "p.toml").write_text(PLATFORM, encoding="utf-8")
        script = _SCRIPT.replace("CALL", call)
        (Path(folder) / "flow.py").write_text(script, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "flow.py"], cwd=folder, capture_output=True, text=True, check=False
        )
    last = done.stdout.splitlines()[-1:]
    if done.returncode or not last or not last[0].startswith("ENTERED"):
        raise RuntimeError(done.stderr)
    return last[0].split()[1:]


def listed(files: Iterable[str], /) -> str:
    """Return the files as lines of a table: the modules of each package, in their order."""
    modules: dict[str, list[str]] = {}
    for file in files:
        package, _, rest = file.removesuffix(".py").removesuffix("/__init__").partition("/")
        modules.setdefault(package, []).append(f"`{rest or '__init__'}`")
    rows = (f"| `{package}` | {' '.join(names)} |" for package, names in modules.items())
    return "| package | modules |\n|---|---|\n" + "\n".join(rows) + "\n"


def section(heading: str, files: list[str], /) -> str:
    """Return a section of the page."""
    return f"### `{heading}`\n\n{len(files)} files:\n\n{listed(files)}"


def rewritten(text: str, /) -> str:
    """Return the page with its lists made anew."""
    for heading, call in FLOWS.items():
        new = section(heading, entered(call))
        old = re.compile(rf"### `{re.escape(heading)}`\n.*?(?=\n#|\Z)", re.DOTALL)
        text, count = old.subn(lambda _, new=new: new, text)
        if count != 1:
            raise ValueError(f"the page has no section {heading!r}")
    return text


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
