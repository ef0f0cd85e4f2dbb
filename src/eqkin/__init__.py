"""eqkin finds the kin of an equation: related equations, and the papers they stand in."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eqkin.api import Library as Library
    from eqkin.encoder.encoder import Encoder as Encoder

    __version__: str

__all__ = ["Encoder", "Library", "__version__"]

_HOME = {"Encoder": "eqkin.encoder.encoder", "Library": "eqkin.api"}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `import eqkin` stays cheap (PEP 562)."""
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("eqkin")
    elif name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Names of the module, those not loaded yet included."""
    return sorted({*globals(), *__all__})
