"""Pictures of formulas: a browser shows hundreds of them on one page, and one screenshot has them all.

Each stands in a box of 333 x 32 pixels, white on black, at the left, centred vertically, about as large as a paper
with two columns shows it on a screen; what does not fit is scaled down until it does. The page runs no scripts of its
own and asks for nothing. The same browser with the same fonts gives the same pixels.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput

if TYPE_CHECKING:
    from playwright.sync_api import Page

VERSION = 1  # of how formulas are shown; pictures of different versions do not go together
HEIGHT, WIDTH = 32, 333

Images = npt.NDArray[np.uint8]  # (formulas, HEIGHT, WIDTH), ink is 255

_COLUMNS, _ROWS = 6, 100  # boxes of a page
_FONT = 16  # pixels; larger ones fit less often, and then formulas have symbols of many sizes
_CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "/usr/bin/chromium")
_SCREENSHOT_MILLISECONDS = 120_000  # milliseconds for a screenshot, on however busy a machine
_PAGE = f"""<!doctype html><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
html, body {{ margin: 0; overflow: hidden; background: #000; color: #fff }}
main {{ display: grid; grid-template-columns: repeat({_COLUMNS}, {WIDTH}px); grid-auto-rows: {HEIGHT}px }}
div {{ position: relative; overflow: hidden; contain: strict; width: {WIDTH}px; height: {HEIGHT}px }}
span {{ position: absolute; left: 0; top: 0; width: max-content; white-space: nowrap; transform-origin: 0 0 }}
math {{ display: inline math !important; font-size: {_FONT}px }}
math {{ font-family: "Latin Modern Math", "STIX Two Math", "TeX Gyre Termes Math", math }}
/* Chromium takes no notice of columnalign: aligned equations would fall apart at their relation signs */
mtable[columnalign^="right"] > mtr > mtd:nth-child(odd) {{ text-align: -webkit-right; padding-right: 0 }}
mtable[columnalign^="right left"] > mtr > mtd:nth-child(even) {{ text-align: left; padding-left: 0 }}
mtable[columnalign^="left"] > mtr > mtd {{ text-align: left }}
</style><main></main>"""
_SHOW = f"""(formulas) => {{
    const main = document.querySelector("main");
    main.innerHTML = formulas.map((formula) => `<div><span>${{formula}}</span></div>`).join("");
    const spans = [...main.querySelectorAll("div > span")];
    const boxes = spans.map((span) => [
        span.parentNode.getBoundingClientRect(), span.firstElementChild.getBoundingClientRect()
    ]);
    spans.forEach((span, i) => {{
        const [outer, inner] = boxes[i];
        const fitting = Math.min(1, {WIDTH - 2} / inner.width, {HEIGHT - 2} / inner.height);
        const scale = Math.floor(fitting * 128) / 128 || fitting;
        const x = 1 - (inner.left - outer.left) * scale;
        const y = ({HEIGHT} - inner.height * scale) / 2 - (inner.top - outer.top) * scale;
        span.style.transform = `translate(${{Math.round(x)}}px, ${{Math.round(y)}}px) scale(${{scale}})`;
    }});
}}"""
_LINE, _FRACTION = (f"<math>{inner}</math>" for inner in ("<mi>x</mi>", "<mfrac><mi>x</mi><mi>y</mi></mfrac>"))


def find_chromium() -> str | None:
    """The Chromium that is installed: the one named by EQKIN_CHROMIUM, a usual one, or None for playwright's own."""
    names = (os.environ.get("EQKIN_CHROMIUM", ""), *_CHROMIUM_NAMES)
    return next((found for name in names if (found := shutil.which(name))), None)


class Renderer:
    """A browser that renders formulas, as a context; raises `BadInput` where there is none that can.

    It is driven from a thread of its own: playwright wants one without an event loop, and notebooks have one.

    Attributes:
        browser: Which one it is.
    """

    browser: str

    def __enter__(self) -> Self:
        try:
            import PIL.Image  # noqa: F401
            import playwright.sync_api  # noqa: F401
        except ImportError as error:
            raise BadInput(f"rendering formulas needs {error.name}: pip install 'eqkin[eval]'") from error
        self._thread = ThreadPoolExecutor(1, "renderer")
        try:
            self._session = self._thread.submit(_BrowserSession).result()
        except BaseException:
            self._thread.shutdown()
            raise
        self.browser = self._session.name
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.submit(self._session.close).result()
        self._thread.shutdown()

    def render(self, formulas: Sequence[str]) -> Images:
        """Pictures of formulas, given as `<math>` elements of known elements and attributes alone.

        One that the browser cannot show has an empty picture.
        """
        images = np.zeros((len(formulas), HEIGHT, WIDTH), np.uint8)
        size = _COLUMNS * _ROWS
        for start in range(0, len(formulas), size):
            some = formulas[start : start + size]
            images[start : start + size] = self._thread.submit(self._session.render, some).result()
        return images


class _BrowserSession:
    """The browser and its page; used by one thread alone."""

    def __init__(self) -> None:
        from playwright.sync_api import sync_playwright

        self._driver = sync_playwright().start()
        try:
            self._start()
        except BaseException:
            self._driver.stop()
            raise

    def close(self) -> None:
        self._stop()
        self._driver.stop()

    def render(self, formulas: Sequence[str]) -> Images:
        """Pictures of as many formulas as a page has boxes, or fewer."""
        from playwright.sync_api import Error

        try:
            return self._take_screenshot(formulas)
        except Error:  # the page is gone: a formula was too much for it
            self._stop()
            self._start()
        if len(formulas) == 1:
            return np.zeros((1, HEIGHT, WIDTH), np.uint8)
        half = len(formulas) // 2
        return np.concatenate([self.render(formulas[:half]), self.render(formulas[half:])])

    def _take_screenshot(self, formulas: Sequence[str]) -> Images:
        from PIL import Image

        # half a character would be too much for the browser's protocol
        self._tab.evaluate(_SHOW, [formula.encode("utf-8", "replace").decode() for formula in formulas])
        with Image.open(io.BytesIO(self._tab.screenshot(timeout=_SCREENSHOT_MILLISECONDS))) as image:
            pixels = np.asarray(image.convert("L"))
        boxes = pixels.reshape(_ROWS, HEIGHT, _COLUMNS, WIDTH).swapaxes(1, 2).reshape(-1, HEIGHT, WIDTH)
        return boxes[: len(formulas)]

    def _start(self) -> None:
        from playwright.sync_api import Error

        # Chromium has no sandbox for root
        options = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        options += ["--disable-gpu", "--disable-lcd-text", "--font-render-hinting=none"]
        # one tile for the page: Chromium leaves out long braces from tiles in which they do not begin
        options += [f"--default-tile-width={_COLUMNS * WIDTH}", f"--default-tile-height={_ROWS * HEIGHT}"]
        try:
            self._browser = self._driver.chromium.launch(executable_path=find_chromium(), args=options)
            self.name = f"Chromium {self._browser.version}"
            self._tab = self._open_page()
            line, fraction = (_count_ink_rows(image) for image in self._take_screenshot([_LINE, _FRACTION]))
        except Error as error:
            why = error.message.strip().splitlines()[0]
            raise BadInput(
                f"formulas are rendered by Chromium, which could not be started ({why}): "
                "install it (Debian: apt install chromium) or name it by EQKIN_CHROMIUM"
            ) from error
        if not 0 < line < fraction:
            self._stop()
            raise BadInput(f"{self.name} does not show MathML: install version 109 or a newer one")

    def _open_page(self) -> Page:
        context = self._browser.new_context(
            viewport={"width": _COLUMNS * WIDTH, "height": _ROWS * HEIGHT}, java_script_enabled=False, offline=True
        )
        tab = context.new_page()
        tab.set_content(_PAGE)
        return tab

    def _stop(self) -> None:
        from playwright.sync_api import Error

        with suppress(Error):  # it may be gone already
            self._browser.close()


def _count_ink_rows(image: Images) -> int:
    """Rows with ink."""
    return int((image > 127).any(axis=1).sum())
