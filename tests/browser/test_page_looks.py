"""What the page looks like: themes, contrast, narrow screens, and what a screen reader is told."""

import pytest

from tests.browser.conftest import SECTIONS, unfolded, until, watched

pytestmark = pytest.mark.slow


def test_the_theme_is_the_systems_until_another_is_chosen_and_is_remembered(browser, page_file):
    background = "getComputedStyle(document.body).backgroundColor"
    plot_text = "getComputedStyle(document.querySelector('#plot .xtick text')).fill"
    with watched(browser, page_file.as_uri(), color_scheme="dark") as page:
        dark = [page.evaluate(background), page.evaluate(plot_text)]
        assert page.get_attribute("#theme", "aria-pressed") == "true"
        page.emulate_media(color_scheme="light")
        until(page, "!document.documentElement.classList.contains('dark')")
        light = [page.evaluate(background), page.evaluate(plot_text)]
        page.click("#theme")
        assert [page.evaluate(background), page.evaluate(plot_text)] == dark
        assert dark[0] != light[0] and dark[1] != light[1]
        page.reload()
        page.wait_for_selector("#plot .main-svg")
        assert [page.evaluate(background), page.evaluate(plot_text)] == dark


CONTRAST = """() => {
    const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(
        v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4
    ).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const parts = text => text.match(/[\\d.]+/g).map(Number);
    const behind = element => {
        const own = parts(getComputedStyle(element).backgroundColor);
        return own.length === 4 && own[3] === 0 ? behind(element.parentElement) : own;
    };
    const ratios = [];
    for (const element of document.querySelectorAll("body *:not(script):not(:disabled)")) {
        const own = [...element.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
        if (!own || element.closest("svg, [hidden]") || !element.checkVisibility()) continue;
        const [a, b] = [light(parts(getComputedStyle(element).color)), light(behind(element))];
        ratios.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), element.outerHTML.slice(0, 90)]);
    }
    return ratios.sort((a, b) => a[0] - b[0]);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_stands_out_from_its_background(browser, page_file, scheme):
    """WCAG's 4.5 for text; 3 for the colours of curves."""
    with watched(browser, page_file.as_uri(), color_scheme=scheme) as page:
        ratios = unfolded(page).evaluate(CONTRAST)
        assert len(ratios) > 500 and ratios[0][0] >= 4.5, ratios[0]
        colours = page.evaluate("COLOURS")
        assert len(set(colours)) == 8
        behind = page.evaluate("getComputedStyle(document.body).backgroundColor")
        red, green, blue = (int(part) for part in behind[4:-1].split(","))
        background = luminance(red, green, blue)
        for colour in colours:
            darker, lighter = sorted([background, luminance(*bytes.fromhex(colour[1:]))])
            assert lighter / darker >= 3, colour


def luminance(*parts):
    """Return WCAG's relative luminance and its offset."""
    linear = [
        v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4
        for v in (p / 255 for p in parts)
    ]
    return sum(v * w for v, w in zip(linear, (0.2126, 0.7152, 0.0722), strict=True)) + 0.05


@pytest.mark.parametrize("width", [360, 768, 1440])
def test_the_page_does_not_scroll_sideways_but_its_tables_do(browser, page_file, width):
    viewport = {"width": width, "height": 740}
    with watched(browser, page_file.as_uri(), viewport=viewport) as page:
        page.check("#all-keys")
        unfolded(page)
        root = "document.documentElement"
        assert page.evaluate(f"{root}.scrollWidth") <= page.evaluate(f"{root}.clientWidth")
        page.evaluate("window.scrollTo(500, 0)")
        assert page.evaluate("window.scrollX") == 0
        regions = page.locator("[role=region]").all()
        assert len(regions) == 4 + sum(map(len, SECTIONS.values()))
        for region in regions:
            assert region.get_attribute("tabindex") == "0" and region.get_attribute("aria-label")
            assert region.bounding_box()["width"] <= width
        runs = page.locator("#runs [role=region]")
        if width == 360:
            runs.focus()
            page.keyboard.press("ArrowRight")
            until(page, "document.activeElement.scrollLeft > 0")


def test_tables_are_marked_up_for_screen_readers(page):
    for table in page.locator("table").all():
        assert table.locator("caption").count() == 1
        assert table.locator("th:not([scope])").count() == 0
    unnamed = (
        """all => all.filter(one => !one.labels?.length && !one.ariaLabel).map(one => one.id)"""
    )
    assert page.eval_on_selector_all("input, select", unnamed) == []
    assert page.locator("h1").count() == 1
    assert page.evaluate("document.documentElement.lang") == "en"
