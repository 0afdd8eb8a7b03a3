"""What the machine offers: devices and free memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from ngu.errors import UserError


def resolve_device(name: str) -> torch.device:
    """cpu, cuda, cuda:1 or auto, to a device that exists."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"run.device '{name}' is not a device; use cpu, cuda or auto.") from None
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"run.device '{name}' is not supported; use cpu, cuda or auto.")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise UserError(f"the device {name} is asked for, but PyTorch finds no CUDA device here; choose cpu.")
        if device.index is not None and device.index >= torch.cuda.device_count():
            raise UserError(
                f"the device {name} is asked for, but there are only {torch.cuda.device_count()} CUDA devices."
            )
        # Streams and graphs belong to the current device.
        device = torch.device("cuda", device.index or 0)
        torch.cuda.set_device(device)
    return device


def use_threads(count: int) -> None:
    """The CPU threads of this process; 0 leaves PyTorch's choice, one for each core.

    What computes little at a time takes one: beside other programs two wait for each other most of the time.
    """
    if count:
        torch.set_num_threads(count)


def machine_name(device: torch.device) -> str:
    """What a run is made on: `NVIDIA H200, 16 cores` or `CPU, 2 cores`."""
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{kind}, {count} core{'s' if count > 1 else ''}"


def processor_name(device: torch.device) -> str:
    """What PyTorch computes on: `NVIDIA H200`, or `CPU, 1 thread`."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"CPU, {threads} thread{'s' if threads > 1 else ''}"


def free_memory(device: torch.device) -> int:
    """Bytes that can still be allocated on the device."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free
    available = _available_host_memory()
    limit = _container_headroom()
    return available if limit is None else min(available, limit)


def _available_host_memory() -> int:
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    # No such file outside Linux: take the machine's whole memory, which is the best there is.
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _container_headroom() -> int | None:
    """What a container's memory limit leaves, or None without a limit."""
    root = Path("/sys/fs/cgroup")
    try:
        limit = (root / "memory.max").read_text().strip()
        used = int((root / "memory.current").read_text())
    except (OSError, ValueError):
        return None
    return None if limit == "max" else max(0, int(limit) - used)


def human_bytes(count: float) -> str:
    """1536 to '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.1f} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1024
    return f"{count:.1f} TiB"


def resident_memory() -> int:
    """Bytes of this process that are in memory now; where the system does not say, the most that ever were."""
    pages = Path("/proc/self/statm")
    if pages.exists():
        return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource  # Windows has none

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
