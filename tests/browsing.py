"""A browser without a screen: what it makes of a page, and what it complains of."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--enable-logging=stderr", "--window-size=1200,2400", "--force-device-scale-factor=1"),
)


def browser() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("chromium is not installed")
    return found


def opened(html: str, at: Path, *, how: str = "--dump-dom") -> "subprocess.CompletedProcess[str]":
    """Open a page; what it becomes is on stdout."""
    (at / "page.html").write_text(html, encoding="utf-8")
    profile = f"--user-data-dir={at / 'profile'}"
    command = [browser(), *OPTIONS, profile, how, (at / "page.html").as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def complaints(done: "subprocess.CompletedProcess[str]") -> list[str]:
    """What the page's scripts wrote on the console, errors above all."""
    return [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def tried(html: str, script: str, at: Path) -> Any:
    """What a script finds in a page: it calls `say` with a value that JSON can hold.

    The browser must not complain of anything.
    """
    ending = f"""<pre id="found"></pre><script>
    const say = (value) => {{
      document.getElementById("found").textContent = JSON.stringify(value); }};
    {script}</script></body>"""
    done = opened(html.replace("</body>", ending), at)
    assert complaints(done) == []
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None
    return json.loads(unescape(found[1]))
