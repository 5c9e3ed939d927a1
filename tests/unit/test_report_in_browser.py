"""The report as a person sees it."""

import pytest
from made_fits import growth_problem, made_fit

from pcuq.report import report

NASTY = "<img src=x onerror=alert(1)> & co"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    problem = growth_problem(outputs=("prey", NASTY), shift=0.8)
    fits = [made_fit(problem, "pcuq", 0.2), made_fit(problem, "bayes", 0.01)]
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report(fits, do=["rate*=0.5"], title="<i>Title</i>"), encoding="utf-8")
    return path


def test_all_figures_are_there_and_nothing_is_asked_of_the_network(path, watched):
    watched.goto(path.as_uri())
    sizes = watched.eval_on_selector_all(
        "img", "images => images.map(i => [i.complete, i.naturalWidth, i.alt.length])"
    )
    assert len(sizes) >= 8
    assert all(complete and width > 100 and alt > 5 for complete, width, alt in sizes)
    assert watched.complaints == []
    assert watched.outside == []


def test_names_are_text_and_not_markup(path, watched):
    watched.goto(path.as_uri())
    assert watched.inner_text("h1") == "<i>Title</i>"
    captions = watched.eval_on_selector_all("figcaption", "all => all.map(f => f.innerText)")
    assert NASTY in captions
    assert watched.complaints == []


@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_sticks_out_of_the_screen(path, watched, width):
    watched.set_viewport_size({"width": width, "height": 700})
    watched.goto(path.as_uri())
    assert watched.evaluate("document.documentElement.scrollWidth") <= width
    verdict = watched.locator(".verdict").bounding_box()
    assert verdict is not None
    assert verdict["y"] + 40 < 700  # seen without scrolling


def test_all_of_it_can_be_printed(path, watched):
    watched.goto(path.as_uri())
    assert watched.pdf(format="A4").startswith(b"%PDF")
    numbers = watched.locator("details table").first
    assert not numbers.is_visible()  # folded on a screen
    watched.emulate_media(media="print")
    assert numbers.is_visible()
