"""The subcommands of `ngu`, one module each, with a function `main(argv)` that returns the exit code.

Modules import PyTorch inside their functions, so that help and errors in a command line come at once.
"""
