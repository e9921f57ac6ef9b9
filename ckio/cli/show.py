"""`ckio show`: a schedule or a timeline as a picture."""

import shutil
from pathlib import Path

import click

from ckio.cli.options import FILE, read_platform, read_text, write_text
from ckio.errors import BadInput
from ckio.render import render
from ckio.texts import Document, loads
