"""The one error that a person, not a programmer, is meant to read."""


class UserError(Exception):
    """Something the user can change.

    The message is one sentence that says what is wrong and what to do about it. The command line prints it
    without a traceback and exits with code 2.
    """
