"""Emulators step back for the thread that acts.

While a group's emulators work, the one thread that acts must copy their pictures, start the GPU's work and send the
next actions, or whole groups wait for it. There are more emulator threads than cores, and each `send` wakes dozens:
as equals they would take the core from the thread that has just woken them, before it has woken the rest.
"""

from __future__ import annotations

import contextlib
import os
import sys

EMULATOR_NICENESS = 5
"""How much nicer emulators are: the thread that acts gets three quarters of a core that it shares with one of them."""
_NICEST = 19


def step_back() -> None:
    """Lowers the priority of the calling thread, and of the threads and processes that it starts from now on.

    It needs no rights, and where it is refused nothing changes. On Linux alone: elsewhere niceness belongs to the
    process, and the thread that acts would step back too.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, min(os.getpriority(os.PRIO_PROCESS, 0) + EMULATOR_NICENESS, _NICEST))
        with contextlib.suppress(OSError):
            if os.sched_getscheduler(0) == os.SCHED_OTHER:
                # A thread of this kind, when it wakes, never takes the core from one that runs.
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
