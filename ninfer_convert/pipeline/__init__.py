"""Planning, running and proving conversions. Below the command line: it prints nothing and never exits.

Nothing is imported here, so that whoever needs one module (`info` needs `inspect`) does not load the others.
"""
