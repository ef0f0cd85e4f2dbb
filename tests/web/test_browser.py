"""The pages as a person meets them, in a real Chromium."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.web.conftest import HOSTILE, Running, chromium

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(chromium() is None, reason="no Chromium is installed (Debian: apt install chromium)")

BAYES = r"P(s|d) = \frac{P(d|s) P(s)}{P(d)}"
RESULTS = f"/search?q={quote(BAYES)}"
PAPER = "/paper?key=atlas:probability&at=12#eq-12"
AXE = Path(__file__).parents[2] / "local" / "npm" / "axe.min.js"
expect = playwright.expect


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        made = driver.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-gpu", "--disable-software-rasterizer"]
        )
        yield made
        made.close()


@pytest.fixture(scope="module")
def context(browser: Any, server: Running) -> Iterator[Any]:
    """What pages share: a cache, so that scripts are loaded and compiled once."""
    made = browser.new_context(base_url=server.address, viewport={"width": 1280, "height": 900})
    made.grant_permissions(["clipboard-read", "clipboard-write"])
    made.set_default_timeout(10_000)
    yield made
    made.close()


@pytest.fixture
def page(context: Any, server: Running) -> Iterator[Any]:
    """A page on which nothing may go wrong: no error, no dialog, no request to anywhere else."""
    made = context.new_page()
    wrong: list[str] = []
    made.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    made.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    made.on("request", lambda request: None if _own(request.url, server) else wrong.append(f"asked {request.url}"))
    made.on("console", lambda said: wrong.append(said.text) if "Content Security" in said.text else None)
    yield made
    made.evaluate("localStorage.clear()")
    made.close()
    assert not wrong


def _own(address: str, server: Running) -> bool:
    return address.startswith((server.address, "data:", "blob:"))


def search(page: Any, typed: str) -> None:
    page.locator("#q").fill(typed)
    page.locator("#q").press("Enter")
    page.wait_for_url("**/search?**")
    expect(page.locator("#count")).to_be_visible()


def draw(page: Any, latex: str) -> tuple[float, float, bytes]:
    """Draw a formula alone; return its width and height in ems of its text, and its picture."""
    page.locator("#main").evaluate(
        """async (main, q) => {
            const { fragment } = await import("/static/ask.js");
            const nodes = await fragment("/reading?" + new URLSearchParams({ q }));
            const math = nodes.find((node) => node.localName === "math");
            const place = document.createElement("div");
            place.className = "formula";
            place.append(math);
            main.replaceChildren(place);
            await document.fonts.ready;
        }""",
        latex,
    )
    box = page.locator("#main math").bounding_box()
    size = page.locator("#main math").evaluate("node => parseFloat(getComputedStyle(node).fontSize)")
    return box["width"] / size, box["height"] / size, page.locator("#main math").screenshot()


def count_ink(picture: bytes, box: tuple[float, float, float, float]) -> float:
    """Return the share of dark pixels in a part of a picture, given in shares of its sides."""
    image = pytest.importorskip("PIL.Image").open(io.BytesIO(picture)).convert("L")
    left, top, right, bottom = (round(x * side) for x, side in zip(box, image.size * 2, strict=True))
    pixels = image.crop((left, top, max(right, left + 1), max(bottom, top + 1))).tobytes()
    return sum(value < 128 for value in pixels) / len(pixels)


def check_drawing(page: Any) -> dict[str, bool]:
    """Return which constructs are drawn as they should be, by their size and by ink where it belongs."""
    page.goto("/draft")
    root, bar = draw(page, r"\sqrt{\frac{a}{b}}")[2], draw(page, r"\left|\frac{a}{b}\right|")[2]
    bracket = draw(page, r"\left(\frac{a}{b}\right)")
    matrix = draw(page, r"\begin{pmatrix} a & b \\ c & d \end{pmatrix}")
    hats, wide = draw(page, r"\hat{a}\hat{b}\hat{c}"), draw(page, r"\widehat{abc}")
    return {
        "root": count_ink(root, (0.45, 0, 1, 0.06)) > 0.1 and count_ink(root, (0, 0.3, 0.4, 1)) > 0.05,
        "bars": count_ink(bar, (0, 0.05, 0.2, 0.3)) > 0.15,  # they reach up to the numerator
        "brackets": count_ink(bracket[2], (0, 0.1, 0.3, 0.4)) > 0.08 and bracket[1] > 1.6,
        "matrix": count_ink(matrix[2], (0, 0.05, 0.12, 0.3)) > 0.1,
        "integral": draw(page, r"\int f")[1] > 2,  # ems
        "sum": draw(page, r"\sum x")[1] > 1.3,
        "accents": hats[0] < 2 and hats[1] < 1.4,
        "wide accent": count_ink(wide[2], (0, 0, 0.3, 0.25)) > 0.02,  # it spans all letters
        "styles": draw(page, r"\mathbb{R}")[2] != draw(page, r"R")[2],
    }


def test_shipped_font_draws_roots_brackets_operators_accents_and_matrices(page):
    assert [name for name, good in check_drawing(page).items() if not good] == []


def test_formulas_are_not_drawn_well_without_the_shipped_font(browser, server):
    context = browser.new_context(base_url=server.address, viewport={"width": 1280, "height": 900})
    context.route("**/*.woff2", lambda route: route.abort())
    drawn = check_drawing(context.new_page())
    context.close()
    assert not drawn["root"] and not drawn["integral"]  # else the test above proves nothing


def test_example_leads_to_results_with_formulas_papers_and_prose(page):
    page.goto("/")
    expect(page.locator(".examples li")).to_have_count(5)
    expect(page.locator(".library")).to_contain_text("equations")
    page.get_by_role("link", name="LaTeX").click()
    expect(page.locator(".hit").first).to_be_visible()
    first = page.locator("#hit-1")
    assert first.locator("math").first.bounding_box()["width"] > 20
    expect(first.locator(".title")).not_to_be_empty()
    expect(first.locator(".context")).not_to_be_empty()
    expect(page.locator("#q")).to_have_value(re.compile("frac"))


@pytest.mark.parametrize(("width", "height", "least"), [(1280, 900, 6), (390, 844, 3)])
def test_screen_shows_many_hits(page, width, height, least):
    page.set_viewport_size({"width": width, "height": height})
    page.goto(RESULTS)
    whole = "hits => hits.filter((h) => h.offsetParent && h.getBoundingClientRect().bottom <= innerHeight).length"
    assert page.locator(".hit").evaluate_all(whole) >= least


def test_hits_are_in_bands_and_weak_ones_are_folded(page):
    page.goto(RESULTS)
    bands = page.locator(".band").evaluate_all("nodes => nodes.map((node) => node.dataset.band)")
    order = ["same", "renamed", "rewritten", "contains", "part of", "similar", "weak"]
    assert bands == sorted(bands, key=order.index) and len(bands) >= 3
    expect(page.get_by_role("heading", name="The same in other letters")).to_be_visible()
    page.goto("/search?q=" + quote(r"\aleph_7 \bowtie \Omega^{\dagger\ddagger} \lightning \natural"))
    expect(page.get_by_text("Nothing close in this library")).to_be_visible()
    weak = page.locator('[data-band="weak"]')
    expect(weak.locator(".hit").first).to_be_hidden()
    page.set_viewport_size({"width": 390, "height": 1_200})
    place = "(node) => node.nextElementSibling.getBoundingClientRect().top - node.getBoundingClientRect().bottom"
    gap = page.locator(".facets").evaluate(place)
    assert gap < 30  # on a small screen, even a short list begins right below the filters
    weak.locator("summary").first.click()
    expect(weak.locator(".hit").first).to_be_visible()


def test_reading_follows_typing_and_errors_are_marked_in_the_box(page):
    page.goto(RESULTS)
    page.locator("#q").fill("")
    page.locator("#q").press_sequentially(r"\frac{a}{b}")
    expect(page.locator("#reading mfrac")).to_be_visible()
    expect(page.locator("#reading")).to_contain_text("Read as LaTeX")
    page.locator("#q").fill(r"x + \begin{nonsense} y \end{nonsense}")
    expect(page.locator("#reading.wrong")).to_contain_text("nonsense")
    expect(page.locator("#echo mark")).to_have_count(1)
    expect(page.locator("#q")).to_have_attribute("aria-invalid", "true")
    page.locator("#q").press("Enter")
    expect(page.locator("#hit-1")).to_be_visible()  # the last list stays
    page.goto("/search?q=" + quote(r"\begin{nonsense}"))
    expect(page.get_by_role("alert")).to_contain_text("nonsense")
    expect(page.locator("#q")).to_have_value(r"\begin{nonsense}")


def test_box_reads_any_notation_and_can_be_corrected(page):
    page.goto("/")
    for typed, kind, part in (("1/sqrt(1-v^2/c^2)", "plain text", "msqrt"), ("iħ ∂ψ/∂t = Hψ", "Unicode", "mfrac")):
        page.locator("#q").fill(typed)
        expect(page.locator("#reading")).to_contain_text(f"Read as {kind}")
        expect(page.locator(f"#reading {part}").first).to_be_visible()
    page.locator("#q").fill("law of total probability")
    expect(page.locator("#reading")).to_contain_text("Read as a name")
    page.locator("#reading button", has_text="formula").click()
    expect(page.locator("#reading")).to_contain_text("Read as plain text")
    page.locator("#q").press("Enter")
    page.wait_for_url("**as=formula**")
    expect(page.locator(".reading")).to_contain_text("Read as plain text")
    page.locator(".reading a", has_text="words").click()
    page.wait_for_url("**as=words**")
    expect(page.locator(".reading")).to_contain_text("Read as words")


def test_names_complete_what_is_typed(page):
    page.goto("/")
    page.locator("#q").press_sequentially("bayes")
    expect(page.get_by_role("option").first).to_be_visible()
    page.keyboard.press("ArrowDown")
    chosen = page.locator("#names [aria-selected=true]").locator("span").first.inner_text()
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?**")
    expect(page.locator("#q")).to_have_value(chosen)
    expect(page.locator(".hit .name").first).to_be_visible()


def test_visual_editor_loads_on_demand_and_writes_latex_into_the_box(page):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto("/")
    assert not [url for url in asked if "mathlive" in url]
    page.get_by_role("button", name="Visual editor").click()
    field = page.locator("math-field")
    expect(field).to_be_focused()
    field.press_sequentially("a/b")
    expect(page.locator("#q")).to_have_value(r"\frac{a}{b}")
    page.get_by_role("button", name="Visual editor").click()
    expect(field).to_be_hidden()
    expect(page.locator("#q")).to_be_focused()


def test_matched_parts_have_a_line_and_a_colour_and_show_their_partners(page):
    page.goto(RESULTS)
    styles = "node => [getComputedStyle(node).backgroundColor, getComputedStyle(node).textDecorationStyle]"
    same, other = (page.locator(f"#hit-1 math mi.kin-{level}").first.evaluate(styles) for level in (3, 2))
    assert same[0] != other[0] and same[1] != other[1]
    legend = page.locator(".legend .kin-2").evaluate(styles)
    assert legend == other
    page.locator("#hit-1 math mi.kin").first.hover()
    assert page.locator(".asked .partner").count() >= 1
    expect(page.locator("#hit-1 .readings")).to_contain_text("s is A")


def test_long_formula_scrolls_to_its_match(page):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(RESULTS)
    page.locator(".hit .formula").first.evaluate(
        """async (node) => {
            node.style.width = "60px";
            const { arrange } = await import("/static/page.js");
            for (const part of node.querySelectorAll(".kin")) part.classList.remove("kin");
            [...node.querySelectorAll("mi")].at(-1).classList.add("kin");
            arrange();
        }"""
    )
    formula = page.locator(".hit .formula").first
    expect(formula).to_have_attribute("tabindex", "0")
    assert formula.evaluate("node => node.scrollLeft") > 0


def test_facets_combine_and_their_counts_stay(page):
    page.goto(f"/search?q={quote('E_{2007} = m v^2')}&k=50")
    page.locator("#facet-field summary").click()
    page.locator("#facet-field label", has_text="energetics").click()
    page.wait_for_url("**field=energetics**")
    assert set(page.locator(".hit .field").all_text_contents()) == {"energetics"}
    expect(page.locator("#facet-field input:focus")).to_have_attribute("value", "energetics")
    page.get_by_label("First year").fill("1990")
    page.get_by_label("First year").press("Tab")
    page.wait_for_url("**from=1990**")
    page.get_by_label("Last year").fill("2000")
    page.get_by_label("Last year").press("Tab")
    page.wait_for_url("**to=2000**")
    expect(page.locator("#hit-1 .title")).to_contain_text("Energy in 1999")
    page.get_by_role("link", name="Remove all filters").click()
    assert "field" not in page.url and "from" not in page.url


def test_kin_of_a_hit_keeps_its_formula_in_the_box(page):
    page.goto(RESULTS)
    page.locator("#hit-1").get_by_role("link", name="Kin").click()
    expect(page.get_by_role("heading", name="Kin of this equation")).to_be_visible()
    expect(page.locator("#q")).to_have_value(re.compile(r"P\(A"))
    page.go_back()
    expect(page.locator("#q")).to_have_value(BAYES)


def test_actions_copy_latex_and_a_link(page):
    page.goto(RESULTS)
    hit = page.locator("#hit-1")
    hit.get_by_role("button", name="LaTeX").click()
    expect(hit.get_by_role("button", name="Copied")).to_be_visible()
    assert "frac" in page.evaluate("navigator.clipboard.readText()")
    hit.get_by_title("Copy a link").click()
    expect(hit.get_by_title("Copy a link")).to_have_text("Copied")
    page.goto(page.evaluate("navigator.clipboard.readText()"))
    expect(page.locator(".here math").first).to_be_in_viewport()


def test_judgement_is_kept(page, client):
    page.goto("/search?q=" + quote(r"P_{judged}(A \mid B) = \frac{P(B \mid A) P(A)}{P(B)}"))
    hit = page.locator(".hit").first
    hit.locator(".menu summary").click()
    hit.get_by_role("button", name="Relevant", exact=True).click()
    expect(hit.get_by_role("button", name="Relevant", exact=True)).to_have_attribute("aria-pressed", "true")
    (query,) = [q for q in client.get("/api/judgements").json()["queries"] if "judged" in q["latex"]]
    assert query["relevant"] == [hit.get_attribute("data-id")]


def test_more_appends_without_reordering(page):
    page.goto(f"/search?q={quote(BAYES)}&k=5")
    ids = "hits => hits.map((hit) => hit.dataset.id)"
    before = {band: page.locator(f'[data-band="{band}"] .hit').evaluate_all(ids) for band in ("renamed", "similar")}
    page.get_by_role("link", name="More", exact=True).click()
    expect(page.locator("#count")).to_contain_text("hits 1 to 10")
    for band, shown in before.items():
        assert page.locator(f'[data-band="{band}"] .hit').evaluate_all(ids)[: len(shown)] == shown
    every = page.locator(".hit").evaluate_all(ids)
    assert len(every) == len(set(every)) == 10


def test_draft_dropped_on_a_page_gives_similar_papers(page):
    page.goto("/")
    draft = r"\section{Bayes} The posterior is $$ P(A|B) = \frac{P(B|A) P(A)}{P(B)} $$"
    page.locator("body").evaluate(
        """(body, text) => {
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File([text], "draft.tex"));
            body.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
        }""",
        draft,
    )
    expect(page.get_by_role("heading", level=2)).to_contain_text("similar to draft.tex")
    page.locator(".related summary").first.click()
    expect(page.locator(".related .pair math").first).to_be_visible()
    page.goto("/draft")
    page.locator("#file").set_input_files({"name": "empty.tex", "mimeType": "text/plain", "buffer": b"no formula"})
    page.get_by_role("button", name="Find similar papers").click()
    expect(page.get_by_role("alert")).to_contain_text("equation")


def test_page_can_be_used_by_keyboard(page):
    page.goto("/")
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.type("a^2 + b^2 = c^2")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?**", wait_until="load")
    page.keyboard.press("j")
    expect(page.locator("#hit-1")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#hit-2")).to_be_focused()
    page.keyboard.press("k")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    title = page.locator("#hit-1 .title").inner_text()
    page.locator("#hit-1").focus()
    page.keyboard.press("o")
    expect(page.get_by_role("heading", level=1)).to_have_text(title)


def test_paper_opens_at_its_equation_with_contents_and_related_papers(page):
    page.goto(PAPER)
    expect(page.get_by_role("heading", level=1)).to_have_text("Probability")
    expect(page.locator("#eq-12")).to_be_in_viewport()
    expect(page.locator("#eq-12")).to_have_class(re.compile("here"))
    contents = page.get_by_role("navigation", name="Contents")
    contents.get_by_role("link").last.click()
    expect(page.locator("article section").last.locator("h2")).to_be_in_viewport()
    page.locator(".related summary").first.click()
    expect(page.locator(".related .pair math").first).to_be_visible()
    page.locator(".related .title").first.click()
    expect(page.get_by_role("heading", level=1)).not_to_have_text("Probability")


def test_long_paper_loads_in_parts(page):
    page.goto("/paper?key=atlas:probability")
    numbers = "nodes => nodes.map((node) => Number(node.id.slice(3)))"
    first = page.locator("article .hit").evaluate_all(numbers)
    page.get_by_role("link", name="Further equations").click()
    expect(page.get_by_role("link", name="Further equations")).to_have_count(0)
    every = page.locator("article .hit").evaluate_all(numbers)
    assert every[: len(first)] == first and len(every) > len(first)
    assert len(every) == len(set(every))
    page.goto(f"/paper?key=atlas:probability&at={every[-1]}#eq-{every[-1]}")
    expect(page.locator(".here")).to_be_in_viewport()
    page.get_by_role("link", name="Equations before these").click()
    expect(page.get_by_role("link", name="Equations before these")).to_have_count(0)
    assert page.locator("article .hit").evaluate_all(numbers) == every


def test_wrong_addresses_and_filters_that_fit_nothing_have_helpful_pages(page):
    page.goto("/search?q=x&field=nothing")
    expect(page.locator(".nothing")).to_be_visible()
    page.get_by_role("link", name="Search without filters").click()
    expect(page.locator("#hit-1")).to_be_visible()
    page.goto("/nowhere")
    expect(page.get_by_role("alert")).to_contain_text("Not found")
    page.goto("/search?q=x&k=-1")
    expect(page.get_by_role("alert")).to_contain_text("k: ")
    expect(page.locator("#q")).to_have_value("x")


def test_theme_is_remembered(page):
    page.emulate_media(color_scheme="light")
    page.goto("/")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.get_by_role("button", name="Light or dark").click()
    dark = page.evaluate(paper)
    assert dark != light
    page.reload()
    assert page.evaluate(paper) == dark


def test_page_works_without_scripts(browser, server):
    context = browser.new_context(base_url=server.address, java_script_enabled=False)
    page = context.new_page()
    page.goto("/")
    page.locator("#q").fill(BAYES)
    page.get_by_role("button", name="Search").click()
    expect(page.locator("#hit-1")).to_be_visible()
    page.locator("#facet-field input").first.check()
    page.get_by_role("button", name="Apply").click()
    assert "field=" in page.url
    context.close()


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed (python hatch_build.py)")
@pytest.mark.parametrize("address", ["/", RESULTS, PAPER, "/draft", "/api", "/nowhere"])
def test_page_meets_wcag_aa_and_fits_the_window(page, address):
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    page.goto(address)
    page.evaluate(AXE.read_text(encoding="utf-8"))  # not add_script_tag: the page allows scripts of its address only
    every = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
    colours = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
    repeated = page.locator(".band .hit:nth-child(n + 4), article section:nth-of-type(n + 3)")
    repeated.evaluate_all("nodes => nodes.forEach((node) => node.remove())")  # they are like those before them
    for width, scheme in ((1280, "dark"), (390, "light")):
        page.set_viewport_size({"width": width, "height": 844})
        page.emulate_media(color_scheme=scheme)
        page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        rules = every if scheme == "light" else colours
        found = page.evaluate("rules => axe.run(document, rules)", rules)["violations"]
        assert not [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found], (width, scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_hostile_content_stays_text(page):
    evil = r"\text{<script>alert(3)</script><img src=x onerror=alert(4)>}"
    addresses = [
        "/search?q=" + quote(r"\Xi_{evil} = " + evil),
        f"/search?q=x&text={quote('<script>alert(5)</script>')}",
        f"/search?q={quote('<img src=x onerror=alert(6)>')}",
        f"/search?like={quote(HOSTILE + '#0')}",
        f"/paper?key={quote(HOSTILE)}",
        f"/paper?key={quote('<script>alert(7)</script>')}",
        f"/search?q=x&field={quote('javascript:alert(8)')}&author={quote('<b onclick=alert(9)>')}",
        "/<script>alert(11)</script>",
        f"/reading?q={quote(evil)}",
    ]
    for address in addresses:
        page.goto(address)
        page.wait_for_load_state("networkidle")
        assert page.locator("main script, main img, #fragment script, #fragment img, main [onerror]").count() == 0
        assert page.locator('a[href^="javascript:"]').count() == 0
    page.goto("/")
    page.locator("#q").fill(evil)
    expect(page.locator("#reading mtext")).to_contain_text("<script>")
    search(page, r"\Xi_{evil} = " + evil)
    expect(page.locator(".hits").first).to_contain_text("<script>alert(1)</script>")
