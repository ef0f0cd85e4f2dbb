"""eqkin: a search engine for equations."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eqkin.api import Library as Library
    from eqkin.encoder.encoder import Encoder as Encoder
    from eqkin.version import __version__ as __version__

__all__ = ["Encoder", "Library", "__version__"]

_HOME = {"Encoder": "eqkin.encoder.encoder", "Library": "eqkin.api", "__version__": "eqkin.version"}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `import eqkin` stays cheap (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    """List the module's names, including those that are not loaded yet."""
    return sorted({*globals(), *__all__})
