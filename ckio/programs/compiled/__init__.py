"""Plain Python functions as programs: `@program`.

source       the source of a function, its names, and the statements that are refused
graph        blocks of straight-line code, with the variables that each needs
statements   translates statements and expressions into blocks
functions    compiles blocks to Python functions, which have the lines of the source
frames       states: how they are run, and how they are stored
reach        the code and constants that a program depends on, and its fingerprint
decorator    the decorator, and ticks on a tape
"""

from ckio.programs.compiled.decorator import CompiledProgram, program
from ckio.programs.compiled.frames import Frame, Frames
from ckio.programs.compiled.source import NotResumable

__all__ = ["CompiledProgram", "Frame", "Frames", "NotResumable", "program"]
