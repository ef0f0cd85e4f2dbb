"""The report's page in a real Chromium, from a file: nothing is asked for, nothing goes wrong, all of it fits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eqkin.evaluation.report import write_report
from tests.evaluation import reports
from tests.web.conftest import chromium

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("matplotlib", reason="plots need matplotlib: pip install 'eqkin[eval]'")
pytestmark = pytest.mark.skipif(chromium() is None, reason="no Chromium is installed (Debian: apt install chromium)")
expect = playwright.expect


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> str:
    folder: Path = tmp_path_factory.mktemp("page")
    reports.save([*reports.realistic(), reports.hostile()], folder / "results")
    write_report(folder, folder / "report.html")
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def page(browser, address) -> Iterator[Any]:
    """A page on which nothing may go wrong: no message, no dialog, no request but for itself."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(10_000)
    made = context.new_page()
    wrong: list[str] = []
    made.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    made.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    made.on("console", lambda said: wrong.append(f"said: {said.text}"))
    made.on("request", lambda request: None if request.url == address else wrong.append(f"asked {request.url}"))
    made.goto(address)
    yield made
    context.close()
    assert not wrong


@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_is_never_wider_than_the_window(page, width):
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for fold in page.locator("details").all():
        fold.locator("summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".scroll").first.bounding_box()["width"] <= width


def test_formulas_and_plots_are_drawn_and_hostile_ones_do_nothing(page):
    assert page.locator("#examples mfrac").count() == 2
    assert page.locator("#examples math").first.bounding_box()["width"] > 60
    assert page.locator("#equalities svg.plot text").count() > 10
    assert page.locator("#equalities svg.plot").bounding_box()["height"] > 200
    expect(page.locator("body")).to_contain_text("<script>alert(1)</script>")
    assert page.locator("img, iframe, [onclick], [onerror], math script").count() == 0


def test_colours_follow_light_and_dark(page):
    def colours():
        return page.evaluate(
            """() => ["body", "#equalities svg.plot text", "#equalities .whisker circle"].flatMap((name) => {
                const style = getComputedStyle(document.querySelector(name));
                return [style.backgroundColor, style.fill];
            })"""
        )

    page.emulate_media(color_scheme="light")
    light = colours()
    page.emulate_media(color_scheme="dark")
    dark = colours()
    assert all(light[place] != dark[place] for place in (0, 3, 5))
    page.emulate_media(color_scheme="dark", media="print")
    assert colours()[3] == light[3]


def test_a_click_on_a_heading_sorts_and_a_third_one_brings_the_order_back(page):
    rows = page.locator("#equalities-table-1 tbody th")
    before = rows.all_text_contents()
    button = page.locator("#equalities-table-1 thead").get_by_role("button", name="R@10", exact=True)
    heading = page.locator("#equalities-table-1 thead th").nth(2)

    def values():
        shown = page.locator("#equalities-table-1 tbody td:nth-child(3)")
        return [float(v) for v in shown.evaluate_all("cells => cells.map((cell) => cell.dataset.value)") if v]

    button.click()
    expect(heading).to_have_attribute("aria-sort", "descending")
    assert values() == sorted(values(), reverse=True) and rows.all_text_contents() != before
    button.click()
    expect(heading).to_have_attribute("aria-sort", "ascending")
    assert values() == sorted(values())
    button.click()
    assert rows.all_text_contents() == before and heading.get_attribute("aria-sort") is None


def test_the_contents_lead_to_the_sections(page):
    links = page.locator(".contents a")
    assert links.count() == 6
    links.nth(3).click()
    expect(page.locator("#equalities h2")).to_be_in_viewport()
