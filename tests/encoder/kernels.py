"""Kernels are tested in separate processes, because Triton reads its mode when it is imported."""

import os
import subprocess
import sys
from pathlib import Path


def check_kernels(cases: Path, **environment: str) -> None:
    """Run the cases of a file with some variables set."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(cases)]
    result = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
