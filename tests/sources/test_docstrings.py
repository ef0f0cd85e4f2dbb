import pickle
import sys

import pytest

from eqkin.errors import BadInput, LimitReached
from eqkin.sources.readers import open_source
from eqkin.sources.rest import read_module
from tests.limits import changed_limits
from tests.sources.builders import squeezed

MODULE = r'''
r"""Module with :math:`\alpha`."""
raise SystemExit("imported")

class Model:
    """Escaped.

    .. math:: \\frac{a}{b}
    """

    def fit(self):
        r"""Raw.

        Notes
        -----
        .. math:: c = d
        """

if True:
    async def free():
        """Text with $$e = f$$ in it."""
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    root = tmp_path / "zzpackage"
    (root / "inner").mkdir(parents=True)
    (root / "__init__.py").write_text("raise SystemExit('imported')\n'''no math'''")
    (root / "models.py").write_text(MODULE)
    (root / "inner" / "__init__.py").write_text('"""Has :math:`x`."""')
    (root / "inner" / "broken.py").write_text('""":math:`x`""" (')
    (tmp_path / "zzsingle.py").write_text('""".. math:: a"""')
    monkeypatch.syspath_prepend(str(tmp_path))
    return "zzpackage"


def test_modules_with_math_are_items_and_nothing_is_imported(package):
    items = list(open_source(f"python:{package}"))
    assert [item.key for item in items] == [
        "python:zzpackage.models",
        "python:zzpackage.inner",
        "python:zzpackage.inner.broken",
    ]
    assert package not in sys.modules
    assert pickle.loads(pickle.dumps(items[0])).load().group == "python:zzpackage"
    with pytest.raises(BadInput):
        items[2].load()
    with changed_limits(python_bytes=100), pytest.raises(LimitReached):
        items[0].load()


def test_each_qualified_name_is_a_section(package):
    paper = next(open_source(f"python:{package}")).load()
    expected = (
        r"\section{zzpackage.models}Modulewith$\alpha$."
        r"\section{zzpackage.models.Model}Escaped.\[\frac{a}{b}\]"
        r"\section{zzpackage.models.Model.fit}Raw.\subsection{Notes}\[c=d\]"
        r"\section{zzpackage.models.free}Textwith\[e=f\]init."
    )
    assert squeezed(paper.text) == expected


@pytest.mark.parametrize("name", ["zzpackage.models", "zzpackage.inner", "zzsingle"])
def test_parts_of_a_package_and_single_modules_can_be_named(package, name):
    assert next(open_source(f"python:{name}")).key == f"python:{name}"


@pytest.mark.parametrize(
    "name", ["", "no_such_package_zz", "zzpackage.gone", "../etc", "a b", "zzpackage..models", "sys"]
)
def test_missing_package_is_bad_input(package, name):
    with pytest.raises(BadInput):
        open_source(f"python:{name}")


@pytest.mark.parametrize(
    "raw", [b"(" * 10_000, b"x = " + b"-" * 100_000 + b"1", b"\0", b"# coding: nonsense\n", b"\xff"]
)
def test_source_that_does_not_parse_is_bad_input(raw):
    with pytest.raises(BadInput):
        read_module(raw, "k", "o.py")
