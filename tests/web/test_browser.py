"""The pages as a person meets them, in a real Chromium."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.web.conftest import HOSTILE, Running, chromium

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(chromium() is None, reason="no Chromium is installed (Debian: apt install chromium)")

BAYES = r"P(s|d) = \frac{P(d|s) P(s)}{P(d)}"
expect = playwright.expect


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def page(browser: Any, server: Running) -> Iterator[Any]:
    """A page on which nothing may go wrong: no error, no dialog, no request to anywhere else."""
    context = browser.new_context(base_url=server.address, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(10_000)
    made = context.new_page()
    wrong: list[str] = []
    made.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    made.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    made.on("request", lambda request: None if _own(request.url, server) else wrong.append(f"asked {request.url}"))
    made.on("console", lambda said: wrong.append(said.text) if "Content Security" in said.text else None)
    yield made
    context.close()
    assert not wrong


def _own(address: str, server: Running) -> bool:
    return address.startswith((server.address, "data:", "blob:"))


def search(page: Any, formula: str) -> None:
    page.locator("#q").fill(formula)
    page.locator("#q").press("Enter")
    expect(page.locator("#count")).to_contain_text(re.compile("result", re.IGNORECASE))


def test_example_leads_to_results_with_formulas_papers_and_context(page):
    page.goto("/")
    expect(page.locator(".examples li")).to_have_count(12)
    page.get_by_role("link", name="Bayes' law").click()
    expect(page.locator(".hits > .hit")).to_have_count(20)
    first = page.locator("#hit-1")
    assert first.locator("math").bounding_box()["width"] > 20
    expect(first.locator(".where .title")).not_to_be_empty()
    expect(first.locator(".context")).not_to_be_empty()
    expect(page.locator("#q")).to_have_value(BAYES)


def test_preview_follows_typing(page):
    page.goto("/")
    page.locator("#q").press_sequentially(r"\frac{a}{b}")
    expect(page.locator("#preview mfrac")).to_be_visible()
    page.locator("#q").fill("")
    expect(page.locator("#preview")).to_be_hidden()


def test_error_is_shown_with_its_position_and_marked_in_the_box(page):
    page.goto("/")
    page.locator("#q").fill(r"x + \begin{nonsense} y \end{nonsense}")
    expect(page.locator("#preview.wrong")).to_contain_text("nonsense")
    expect(page.locator("#preview.wrong")).to_contain_text("character")
    expect(page.locator("#echo mark")).to_have_count(1)
    expect(page.locator("#q")).to_have_attribute("aria-invalid", "true")
    page.locator("#q").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("nonsense")
    page.locator("#q").fill("x")
    expect(page.locator("#preview mi")).to_be_visible()
    expect(page.locator("#echo mark")).to_have_count(0)


def test_preview_cancelled_while_loading_is_not_an_error(page):
    page.goto("/")
    page.evaluate(
        """async () => {
            const { ask } = await import("/static/ask.js");
            const json = () => Promise.reject(new DOMException("gone", "AbortError"));
            window.fetch = async () => ({ ok: true, status: 200, json });
            window.outcome = await ask("/api/preview?q=x").catch((error) => error.name);
        }"""
    )
    assert page.evaluate("window.outcome") == "AbortError"


def test_url_holds_the_state_and_back_restores_it(page, server):
    page.goto("/")
    search(page, BAYES)
    address = page.url
    first = page.locator("#hit-1").get_attribute("data-id")
    assert address.startswith(server.address + "search?q=")
    page.locator("#hit-2 .kin-link").click()
    expect(page.get_by_role("heading", name="Kin of this equation")).to_be_visible()
    assert "like=" in page.url
    page.go_back()
    expect(page.get_by_role("heading", name="Kin of this formula")).to_be_visible()
    assert page.url == address
    expect(page.locator("#q")).to_have_value(BAYES)
    page.go_back()
    expect(page.locator(".examples")).to_be_visible()
    page.go_forward()
    expect(page.locator("#hit-1")).to_have_attribute("data-id", first)
    page.goto(address)
    expect(page.locator("#hit-1")).to_have_attribute("data-id", first)


def test_matched_parts_are_marked_and_show_their_partners(page):
    page.goto(f"/search?q={quote(BAYES)}")
    marked = page.locator("#hit-1 math mi.kin").first
    expect(marked).to_be_visible()
    colour = marked.evaluate("node => getComputedStyle(node).backgroundColor")
    assert colour not in ("rgba(0, 0, 0, 0)", "transparent")
    marked.hover()
    assert page.locator(".asked .partner").count() >= 1
    page.get_by_role("link", name="Mark what matches").click()
    expect(page.locator("#hit-1 math .kin")).to_have_count(0)


def test_facets_narrow_the_list_and_widen_it_again(page):
    page.goto(f"/search?q={quote('E_{2007} = m v^2')}&k=50")
    page.locator("#facet-field summary").click()
    page.locator("#facet-field a", has_text="energetics").click()
    expect(page.locator(".chip")).to_have_count(1)
    assert set(page.locator(".hits > .hit > .where .field").all_inner_texts()) == {"energetics"}
    page.locator("#facet-year a", has_text="2007").click()
    expect(page.locator(".chip")).to_have_count(2)
    expect(page.locator(".hits > .hit .where").first).to_contain_text("Energy in 2007")
    page.get_by_label("Take off the filter energetics").click()
    expect(page.locator(".chip")).to_have_count(1)
    page.get_by_label("First year").fill("1990")
    page.get_by_label("Last year").fill("2000")
    page.locator(".span button").click()
    expect(page.locator(".hits > .hit .where").first).to_contain_text("Energy in 1999")


def test_judgement_with_keywords_is_stored(page, client):
    page.goto("/")
    search(page, r"q_{judged} = \frac{a}{b}")
    hit = page.locator("#hit-1")
    name = hit.get_attribute("data-id")
    hit.get_by_role("button", name="Relevant", exact=True).click()
    expect(hit.locator(".judged")).to_have_text("Saved.")
    hit.get_by_label("Keywords").fill("fraction, quotient")
    hit.get_by_label("Keywords").press("Enter")
    expect(hit.locator(".judged")).to_have_text("Saved, with keywords.")
    page.locator("#hit-2").get_by_role("button", name="Not", exact=True).click()
    expect(page.locator("#hit-2 .judged")).to_have_text("Saved.")
    exported = client.get("/api/judgements").json()["queries"]
    (query,) = [q for q in exported if "judged" in q["latex"]]
    assert query["relevant"] == [name]
    assert len(query["irrelevant"]) == 1
    assert query["keywords"] == ["fraction", "quotient"]


def test_map_zooms_filters_by_field_and_opens_an_equation(page):
    page.goto("/map")
    canvas = page.locator("canvas[data-drawn]")
    expect(canvas).to_be_visible()
    assert page.locator("#legend button").count() > 20
    page.locator("#legend button", has_text="probability").click()
    expect(page.locator("#legend button", has_text="probability")).to_have_attribute("aria-pressed", "true")
    page.locator("#legend button", has_text="probability").click()
    page.locator("#zoom-in").click()
    box = canvas.bounding_box()
    for step in range(1, 200):  # until the pointer is over a point
        page.mouse.move(box["x"] + box["width"] * (0.3 + 0.002 * step), box["y"] + box["height"] / 2)
        if canvas.get_attribute("data-over"):
            break
    expect(page.locator("#point math")).to_be_visible()
    page.mouse.down()
    page.mouse.up()
    expect(page.get_by_role("heading", name="Kin of this equation")).to_be_visible()
    assert "like=" in page.url


def test_field_on_the_start_page_leads_to_its_points(page):
    page.goto("/")
    page.locator(".library a", has_text="field<script>").click()
    expect(page.locator("#legend button", has_text="field<script>")).to_have_attribute("aria-pressed", "true")
    page.goto("/map#%")
    expect(page.locator("canvas[data-drawn]")).to_be_visible()


def test_page_can_be_used_by_keyboard(page):
    page.goto("/")
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.type("a^2 + b^2 = c^2")
    page.keyboard.press("Enter")
    expect(page.locator("#hit-1")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(page.locator("#hit-1")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#hit-2")).to_be_focused()
    page.keyboard.press("k")
    expect(page.locator("#hit-1")).to_be_focused()
    page.keyboard.press("r")
    expect(page.locator("#hit-1 .judged")).to_have_text("Saved.")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    title = page.locator("#hit-1 .title").inner_text()
    page.locator("#hit-1").focus()
    page.keyboard.press("o")
    expect(page.get_by_role("heading", level=1)).to_have_text(title)


def test_templates_have_places_to_fill(page):
    page.goto("/")
    page.get_by_role("button", name="Symbols and templates").click()
    page.get_by_role("button", name="fraction").click()
    page.keyboard.type("a")
    page.keyboard.press("Tab")
    page.keyboard.type("b")
    expect(page.locator("#q")).to_have_value(r"\frac{a}{b}")
    page.get_by_role("tab", name="Greek").click()
    page.get_by_role("button", name="alpha").click()
    expect(page.locator("#q")).to_have_value(re.compile(r"\\alpha"))


def test_paper_page_shows_equations_and_related_papers(page):
    page.goto("/paper?key=atlas:probability")
    expect(page.get_by_role("heading", level=1)).to_have_text("Probability")
    assert page.locator(".equations .hit").count() > 40
    page.locator(".related summary").first.click()
    expect(page.locator(".related .pair math").first).to_be_visible()
    page.locator(".related .title").first.click()
    expect(page.get_by_role("heading", level=1)).not_to_have_text("Probability")


def test_duplicates_and_more_hits_unfold(page):
    page.goto(f"/search?q={quote(BAYES)}&k=100")
    more = page.locator("details.more").first
    more.locator("summary").click()
    expect(more.locator(".hit").first).to_be_visible()
    assert 0 < more.locator(".hit").count() <= int((more.locator("summary").text_content() or "").split()[0])
    numbers = page.locator(".hit").evaluate_all("hits => hits.map((hit) => hit.dataset.id)")
    assert len(numbers) == len(set(numbers))
    page.goto(f"/search?q={quote('E = m v^2')}&field=energetics")
    same = page.locator("details.same")
    if same.count():
        same.first.locator("summary").click()
        expect(same.first.locator("math").first).to_be_visible()


def test_empty_results_and_wrong_addresses_have_helpful_pages(page):
    page.goto("/search?q=x&field=nothing")
    expect(page.locator(".nothing")).to_be_visible()
    page.get_by_role("link", name="Search without filters").click()
    expect(page.locator("#hit-1")).to_be_visible()
    page.goto("/nowhere")
    expect(page.get_by_role("alert")).to_contain_text("Not found")
    page.goto("/search?q=x&k=-1")
    expect(page.get_by_role("alert")).to_contain_text("k: a whole number")


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
    expect(page.locator(".hits > .hit")).to_have_count(20)
    page.locator("#facet-field a").first.click()
    expect(page.locator(".chip")).to_have_count(1)
    context.close()


@pytest.mark.parametrize("width", [360, 1280])
def test_no_page_is_wider_than_the_window(page, width):
    page.set_viewport_size({"width": width, "height": 800})
    for address in ("/", f"/search?q={quote(BAYES)}", "/paper?key=atlas:probability", "/map", "/api", "/nowhere"):
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address


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
        "/map#" + quote("<script>alert(10)</script>"),
        "/<script>alert(11)</script>",
    ]
    for address in addresses:
        page.goto(address)
        page.wait_for_load_state("networkidle")
        assert page.locator("#main script, #main img, #main [onerror], #main [onclick]").count() == 0
        assert page.locator('a[href^="javascript:"]').count() == 0
    page.goto("/")
    page.locator("#q").fill(evil)
    expect(page.locator("#preview mtext")).to_contain_text("<script>")
    search(page, r"\Xi_{evil} = " + evil)
    expect(page.locator(".hits")).to_contain_text("<script>alert(1)</script>")
