"""The Triton kernels agree with the CPU: interpreted, and on a GPU.

Their cases run in a separate process, because Triton reads its mode when it is imported.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

TESTS = Path(__file__).parents[1]
CASES = ["encoder/kernel_cases.py", "encoder/mix_kernel_cases.py", "learning/kernel_cases.py"]


@pytest.mark.skipif(find_spec("triton") is None, reason="the GPU kernels need Triton, which is not there")
@pytest.mark.parametrize("mode", ["interpreted", "GPU"])
def test_kernels_agree_with_cpu(mode):
    if mode == "GPU" and not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = os.environ | {"TRITON_INTERPRET": "1" if mode == "interpreted" else "0"}
    files = [str(TESTS / cases) for cases in CASES]
    ended = subprocess.run([*command, *files], env=environment, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
