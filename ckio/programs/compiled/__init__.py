"""Plain python functions as programs: `@program`.

source       what is written, its names, and what cannot be resumed
graph        blocks of straight-line code, with the variables that each needs
statements   statements and expressions as such blocks
functions    blocks as python functions, which have the lines of the source
frames       states, what runs them, and what is stored of them
reach        all that a program depends on, and its fingerprint
decorator    all of it together, and ticks on a tape
"""

from ckio.programs.compiled.decorator import CompiledProgram, program
from ckio.programs.compiled.frames import Frame, Frames
from ckio.programs.compiled.source import NotResumable

__all__ = ["CompiledProgram", "Frame", "Frames", "NotResumable", "program"]
