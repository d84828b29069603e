"""Planning, running and proving conversions. Below the command line: it prints nothing and never exits."""

from ninfer_convert.pipeline.plan import make_plan
from ninfer_convert.pipeline.planned import Plan, Shaping
from ninfer_convert.pipeline.run import Progress, Result, Running, file_plan, run

__all__ = ["Plan", "Progress", "Result", "Running", "Shaping", "file_plan", "make_plan", "run"]
