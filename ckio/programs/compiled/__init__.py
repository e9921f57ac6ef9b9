"""Plain python functions as programs: `@program`.

refusals source scopes        what is written, and what cannot be resumed
lowering expressions blocks   its statements as blocks, with the variables that each needs
code compiling sequences      blocks as python functions, which have the lines of the source
reach                         all that a program depends on, and its fingerprint
frames machine packed         states, what runs them, and what is stored of them
pulled                        ticks on a tape, and the way back
decorator                     all of it together
"""

from ckio.programs.compiled.decorator import CompiledProgram, program
from ckio.programs.compiled.frames import Frame, Frames
from ckio.programs.compiled.refusals import NotResumable

__all__ = ["CompiledProgram", "Frame", "Frames", "NotResumable", "program"]
