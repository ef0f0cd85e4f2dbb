"""The network that reads pictures of formulas: three convolutions.

As in the small network of the code published with Pfahler, Schill and Morik, The Search for Equations (2019): 32 maps a
layer, windows of 3 x 3, 5 x 5 and 3 x 3 without padding, GELU, then the largest of 2 x 4, 2 x 4 and 3 x 3 neighbours;
the 32 maps of 1 x 5 that are left go through one linear map to 64 numbers, which are scaled to length 1.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors import numpy as safetensors
from torch import Tensor, nn
from torch.nn import functional

from eqkin.errors import CorruptData
from eqkin.evaluation.systems.bitmaps.bitmap_file import ROW_BYTES
from eqkin.evaluation.systems.bitmaps.rendering import HEIGHT, WIDTH
from eqkin.storage import write_file

DIMENSIONS = 64
DESCRIPTION_FILE = "bitmap_cnn.json"
_WEIGHTS = "weights.safetensors"
_CHANNELS = 32
_POOLED_WIDTH = 5  # places of a picture's width that are left after pooling
_REMEDY = "delete the folder to learn it again"


class BitmapNetwork(nn.Module):
    """Pictures, as `Gallery` has them, to vectors of length 1."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, _CHANNELS, 3), nn.GELU(), nn.MaxPool2d((2, 4)),
            nn.Conv2d(_CHANNELS, _CHANNELS, 5), nn.GELU(), nn.MaxPool2d((2, 4)),
            nn.Conv2d(_CHANNELS, _CHANNELS, 3), nn.GELU(), nn.MaxPool2d(3),
        )  # fmt: skip
        self.output = nn.Linear(_CHANNELS * _POOLED_WIDTH, DIMENSIONS)

    def forward(self, packed: Tensor) -> Tensor:
        """(pictures, COLUMNS, HEIGHT) bytes to (pictures, 64)."""
        vectors: Tensor = self.output(self.layers(unpack_tensor(packed)).flatten(1))
        return functional.normalize(vectors.float())

    def save(self, folder: Path, facts: dict[str, Any]) -> None:
        """Write the weights, and what they are as JSON, last; raises `StorageFailed`."""
        weights = safetensors.save({name: w.detach().cpu().numpy() for name, w in self.state_dict().items()})
        write_file(folder / _WEIGHTS, weights)
        description = {"sha256": hashlib.sha256(weights).hexdigest(), "learned": facts}
        write_file(folder / DESCRIPTION_FILE, json.dumps(description, indent=1).encode() + b"\n")

    @classmethod
    def load(cls, folder: Path) -> BitmapNetwork:
        """Read what `save` wrote; raises `CorruptData`."""
        network = cls()
        try:
            expected = json.loads((folder / DESCRIPTION_FILE).read_bytes())["sha256"]
            content = (folder / _WEIGHTS).read_bytes()
            if hashlib.sha256(content).hexdigest() != expected:
                raise ValueError("the weights do not match their hash")
            weights = {name: torch.from_numpy(array.copy()) for name, array in safetensors.load(content).items()}
            network.load_state_dict(weights)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
            raise CorruptData(f"{folder}: not a bitmap CNN, or damaged ({error}); {_REMEDY}") from error
        return network.eval()


def unpack_tensor(packed: Tensor) -> Tensor:
    """Pictures as the convolutions take them, (pictures, 1, HEIGHT, WIDTH), ink from 0 to 1."""
    shifts = torch.tensor([6, 4, 2, 0], dtype=torch.uint8, device=packed.device)[:, None]
    levels = (packed[:, :, None, :] >> shifts) & 3
    levels = levels.view(-1, ROW_BYTES * 4, HEIGHT)[:, :WIDTH]
    return levels.transpose(1, 2)[:, None].float() / 3
