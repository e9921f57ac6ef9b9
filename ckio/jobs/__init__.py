"""Runs that survive their process: begun, stopped, resumed, with the gradient as their result.

request     what is asked for, and what a begun run keeps of it
job         `Job`, the object that a Python caller has
begin       beginning and resuming a run; `unknown` for a model that says when it is finished
conclude    from a schedule to the result
directory   the files of a run
"""

from ckio.jobs.display import Display
from ckio.jobs.job import Job
from ckio.jobs.request import Request
from ckio.jobs.result import Result
from ckio.jobs.stopping import Halted

__all__ = ["Display", "Halted", "Job", "Request", "Result"]
