"""On which machine a benchmark ran."""

from __future__ import annotations

import os
import platform
from pathlib import Path

_CPU = Path("/proc/cpuinfo")


def describe_machine() -> str:
    """The processor and its cores, and the GPU if torch sees one."""
    try:
        lines = _CPU.read_text("utf-8", "replace").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        model = platform.processor()
    told = f"{model or platform.machine()}, {os.cpu_count()} cores"
    try:
        import torch
    except ImportError:
        return told
    return f"{told}, {torch.cuda.get_device_name()}" if torch.cuda.is_available() else told
