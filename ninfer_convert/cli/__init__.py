"""The command line: parses, calls the pipeline, renders. No rule of conversion lives here.

Modules import click alone at their top; what a command needs is imported when it runs, so that `--help` stays quick.
"""
