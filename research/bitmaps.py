"""Images of formulas: rendered by a browser and kept in a file.

Rendering. A page shows hundreds of formulas, and one screenshot has them all. Each has a box of 333 x 32 pixels, white
on black, at the left, centred vertically, about as large as in a paper with two columns on a screen; what does not fit
is scaled down, or cropped at the right and the bottom. The page runs no scripts and loads nothing. The same browser
with the same fonts gives the same pixels.

Files. A compressed file of numpy has the images in four levels of grey; two would make symbols illegible. It can be
made on a machine with a browser and used on another one without.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput, CorruptData
from eqkin.formulas import Forest
from eqkin.formulas.mathml import to_mathml, to_node
from eqkin.storage.files import make_folder, write_file

VERSION = 3  # of the rendering; images of different versions must not be mixed
HEIGHT, WIDTH = 32, 333

Images = npt.NDArray[np.uint8]  # (formulas, HEIGHT, WIDTH), ink is 255
Heights = npt.NDArray[np.float32]  # (formulas,) in pixels, before scaling

_COLUMNS, _ROWS = 6, 100  # boxes of a page
_FONT = 16  # pixels; with larger fonts more formulas are scaled down, and symbols have many sizes
_CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "/usr/bin/chromium")
_SCREENSHOT_MILLISECONDS = 120_000
_PAGE = f"""<!doctype html><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
html, body {{ margin: 0; overflow: hidden; background: #000; color: #fff }}
main {{ display: grid; grid-template-columns: repeat({_COLUMNS}, {WIDTH}px); grid-auto-rows: {HEIGHT}px }}
div {{ position: relative; overflow: hidden; contain: strict; width: {WIDTH}px; height: {HEIGHT}px }}
span {{ position: absolute; left: 0; top: 0; width: max-content; white-space: nowrap; transform-origin: 0 0 }}
math {{ display: inline math !important; font-size: {_FONT}px }}
math {{ font-family: "Latin Modern Math", "STIX Two Math", "TeX Gyre Termes Math", math }}
/* Chromium ignores columnalign: aligned equations would have gaps at their relation signs */
mtable[columnalign^="right"] > mtr > mtd:nth-child(odd) {{ text-align: -webkit-right; padding-right: 0 }}
mtable[columnalign^="right left"] > mtr > mtd:nth-child(even) {{ text-align: left; padding-left: 0 }}
mtable[columnalign^="left"] > mtr > mtd {{ text-align: left }}
</style><main></main>"""
_SHOW = f"""([formulas, crop]) => {{
    const main = document.querySelector("main");
    main.innerHTML = formulas.map((formula) => `<div><span>${{formula}}</span></div>`).join("");
    const spans = [...main.querySelectorAll("div > span")];
    const boxes = spans.map((span) => [
        span.parentNode.getBoundingClientRect(), span.firstElementChild.getBoundingClientRect()
    ]);
    spans.forEach((span, i) => {{
        const [outer, inner] = boxes[i];
        const fitting = crop ? 1 : Math.min(1, {WIDTH - 2} / inner.width, {HEIGHT - 2} / inner.height);
        const scale = Math.floor(fitting * 128) / 128 || fitting;
        const x = 1 - (inner.left - outer.left) * scale;
        const y = Math.max(1, ({HEIGHT} - inner.height * scale) / 2) - (inner.top - outer.top) * scale;
        span.style.transform = `translate(${{Math.round(x)}}px, ${{Math.round(y)}}px) scale(${{scale}})`;
    }});
    return boxes.map(([, inner]) => inner.height);
}}"""
_LINE, _FRACTION = (f"<math>{inner}</math>" for inner in ("<mi>x</mi>", "<mfrac><mi>x</mi><mi>y</mi></mfrac>"))


def compute_forest_digest(forest: Forest) -> str:
    """Compute the hexadecimal SHA-256 of some trees."""
    total = hashlib.sha256()
    for strings in (forest.tags, forest.attributes, forest.texts):
        total.update("\0".join(strings).encode("utf-8", "surrogatepass") + b"\1")
    for array in (forest.tag, forest.attribute, forest.text, forest.n_children, forest.offsets):
        total.update(np.ascontiguousarray(array, "<i8").tobytes())
    return total.hexdigest()


def find_chromium() -> str | None:
    """Find the installed Chromium: EQKIN_CHROMIUM, one of the usual names, or None for playwright's own."""
    names = (os.environ.get("EQKIN_CHROMIUM", ""), *_CHROMIUM_NAMES)
    return next((found for name in names if (found := shutil.which(name))), None)


class Renderer:
    """A browser that renders formulas, as a context; raises `BadInput` if there is none that can.

    Formulas that are too large are scaled down, or cropped. It runs in a separate thread: playwright needs one without
    an event loop, and notebooks have one.
    """

    def __init__(self, crop: bool = False) -> None:
        self._crop = crop

    def __enter__(self) -> Self:
        try:
            import PIL.Image  # noqa: F401
            import playwright.sync_api  # noqa: F401
        except ImportError as error:
            raise BadInput(f"rendering formulas needs {error.name}: pip install 'eqkin[eval]'") from error
        self._thread = ThreadPoolExecutor(1, "renderer")
        try:
            self._session = self._thread.submit(_BrowserSession, self._crop).result()
        except BaseException:
            self._thread.shutdown()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.submit(self._session.close).result()
        self._thread.shutdown()

    def render(self, formulas: Sequence[str]) -> tuple[Images, Heights]:
        """Render formulas, given as `<math>` elements with known elements and attributes; return their heights too.

        A formula that the browser cannot show has an empty image.
        """
        images, heights = np.zeros((len(formulas), HEIGHT, WIDTH), np.uint8), np.zeros(len(formulas), np.float32)
        size = _COLUMNS * _ROWS
        for start in range(0, len(formulas), size):
            part = slice(start, start + size)
            images[part], heights[part] = self._thread.submit(self._session.render, formulas[part]).result()
        return images, heights


class _BrowserSession:
    """The browser and its page; used by one thread only."""

    def __init__(self, crop: bool) -> None:
        from playwright.sync_api import sync_playwright

        self._crop = crop
        self._driver = sync_playwright().start()
        try:
            self._start()
        except BaseException:
            self._driver.stop()
            raise

    def close(self) -> None:
        self._stop()
        self._driver.stop()

    def render(self, formulas: Sequence[str]) -> tuple[Images, Heights]:
        """Render at most as many formulas as a page has boxes."""
        from playwright.sync_api import Error

        try:
            return self._take_screenshot(formulas)
        except Error:  # a formula has crashed the page
            self._stop()
            self._start()
        if len(formulas) == 1:
            return np.zeros((1, HEIGHT, WIDTH), np.uint8), np.zeros(1, np.float32)
        half = len(formulas) // 2
        parts = self.render(formulas[:half]), self.render(formulas[half:])
        return np.concatenate([parts[0][0], parts[1][0]]), np.concatenate([parts[0][1], parts[1][1]])

    def _take_screenshot(self, formulas: Sequence[str]) -> tuple[Images, Heights]:
        from PIL import Image

        # the browser's protocol rejects lone surrogates
        known = [formula.encode("utf-8", "replace").decode() for formula in formulas]
        heights = self._tab.evaluate(_SHOW, [known, self._crop])
        with Image.open(io.BytesIO(self._tab.screenshot(timeout=_SCREENSHOT_MILLISECONDS))) as image:
            pixels = np.asarray(image.convert("L"))
        boxes = pixels.reshape(_ROWS, HEIGHT, _COLUMNS, WIDTH).swapaxes(1, 2).reshape(-1, HEIGHT, WIDTH)
        return boxes[: len(formulas)], np.array(heights, np.float32)

    def _start(self) -> None:
        from playwright.sync_api import Error

        # Chromium has no sandbox for root
        options = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        options += ["--disable-gpu", "--disable-lcd-text", "--font-render-hinting=none"]
        # one tile for the page: Chromium omits long braces from tiles in which they do not begin
        options += [f"--default-tile-width={_COLUMNS * WIDTH}", f"--default-tile-height={_ROWS * HEIGHT}"]
        try:
            self._browser = self._driver.chromium.launch(executable_path=find_chromium(), args=options)
            self.name = f"Chromium {self._browser.version}"
            self._tab = self._browser.new_page(
                viewport={"width": _COLUMNS * WIDTH, "height": _ROWS * HEIGHT}, java_script_enabled=False, offline=True
            )
            self._tab.set_content(_PAGE)
            inked = (self._take_screenshot([_LINE, _FRACTION])[0] > 127).any(axis=2)  # (images, rows)
            line, fraction = inked.sum(axis=1).tolist()
        except Error as error:
            why = error.message.strip().splitlines()[0]
            raise BadInput(
                f"formulas are rendered by Chromium, which cannot be started ({why}): "
                "install it (Debian: apt install chromium) or name it by EQKIN_CHROMIUM"
            ) from error
        if not 0 < line < fraction:
            self._stop()
            raise BadInput(f"{self.name} does not show MathML: install version 109 or a newer one")

    def _stop(self) -> None:
        from playwright.sync_api import Error

        with suppress(Error):  # it may have ended already
            self._browser.close()


ROW_BYTES = -(-WIDTH // 4)  # of an image

PackedImages = npt.NDArray[np.uint8]  # (formulas, ROW_BYTES, HEIGHT), four pixels per byte, leftmost in the top bits

_SHIFTS = np.array([6, 4, 2, 0], np.uint8)


def pack(images: Images) -> PackedImages:
    """Pack images into four levels of grey."""
    levels = np.zeros((len(images), HEIGHT, ROW_BYTES * 4), np.uint8)
    levels[:, :, :WIDTH] = (images.astype(np.uint16) * 3 + 127) // 255
    fours = levels.reshape(len(images), HEIGHT, ROW_BYTES, 4) << _SHIFTS
    return np.ascontiguousarray(np.bitwise_or.reduce(fours, axis=3).swapaxes(1, 2))


def get_images(
    folder: Path, forest: Forest, *, crop: bool = False, log: Callable[[str], None] = lambda message: None
) -> tuple[PackedImages, Heights]:
    """Return images and heights of trees from a file in the folder, or render them: `BadInput` without a browser.

    Raises `CorruptData` if the file is damaged.
    """
    kind = "cropped" if crop else "scaled"
    path = folder / f"bitmaps-{kind}-{VERSION}-{compute_forest_digest(forest)[:16]}.npz"
    if not path.exists():
        log(f"rendering {len(forest):,} formulas, {kind}")
        with Renderer(crop) as renderer:
            images, heights = renderer.render([to_mathml(to_node(forest, tree)) for tree in range(len(forest))])
        content = io.BytesIO()
        np.savez_compressed(content, images=pack(images), heights=heights)
        make_folder(folder)
        write_file(path, content.getvalue())
    try:
        with np.load(io.BytesIO(path.read_bytes())) as arrays:
            return arrays["images"], arrays["heights"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise CorruptData(f"{path}: damaged ({error}); delete it to render its images again") from error
