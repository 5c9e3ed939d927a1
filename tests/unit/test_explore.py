"""The explorer answers what `predict` answers, and only to this machine."""

import dataclasses
import importlib
import socket
import sys
import time
import urllib.request
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from made_fits import growth_problem, made_fit

import pcuq
from pcuq.errors import ComputationError, InputError
from pcuq.explore import Engine, serve
from pcuq.objective import Objective
from pcuq.predict import predict

page = importlib.import_module("pcuq.explore.page")  # pcuq.explore.page itself is the function


@pytest.fixture(scope="module")
def engine():
    problem = growth_problem(outputs=("prey", "predator"))
    return Engine([made_fit(problem, "pcuq", 0.2), made_fit(problem, "bayes", 0.01)])


@pytest.fixture(scope="module")
def served(engine):
    pytest.importorskip("panel", reason="panel is not installed")
    found = serve(engine, show=False)
    yield found
    found.stop()


def decay() -> pcuq.Problem:
    model = pcuq.ODEModel(
        rhs=lambda t, u, p: [-p["k"] * p["speed"] * u[0]],
        initial=lambda p: [p["dose"]],
        parameters={"k": pcuq.Parameter("log"), "dose": pcuq.Parameter("log")},
        constants={"speed": 1.0},
        outputs=["drug"],
    )
    x = np.linspace(0, 4, 9)
    y = np.concatenate([np.exp(-x), np.exp(-3 * x)])
    condition = ["plain"] * 9 + ["quick"] * 9
    data = pcuq.Data(y, np.tile(x, 2), noise=0.1, condition=condition)
    quick = {"plain": None, "quick": pcuq.Intervention(set={"speed": 3.0})}
    return pcuq.Problem(model, data, conditions=quick)


def test_data_that_no_curve_can_be_drawn_through_are_refused(engine):
    fit, problem = engine.fits[0], engine.problem

    def with_x(x):
        return pcuq.Fit(fit.tree, SimpleNamespace(model=problem.model, data=SimpleNamespace(x=x)))

    for x in (None, np.zeros((3, 2))):
        with pytest.raises(InputError, match="along one covariate"):
            Engine([with_x(x)])


def test_a_page_that_is_never_served_is_said(monkeypatch):
    monkeypatch.setattr(page, "SECONDS_TO_START", 0.2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound, and not listened at
        with pytest.raises(ComputationError, match="choose another --port"):
            page._wait_for(free.getsockname()[1])


def test_without_panel_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "panel", None)
    with pytest.raises(InputError, match=r'pip install "pcuq\[explore\]"'):
        page.import_panel()


def test_factors_do_what_interventions_do(engine):
    found = engine.predict({"rate": 0.5})
    for prediction, fit in zip(found, engine.fits, strict=True):
        wanted = predict(fit.problem, prediction.thetas, engine.x, do="rate*=0.5", noise=False)
        assert np.allclose(prediction.trajectories, wanted.trajectories)


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["plain", "quick"])
@pytest.mark.parametrize("at", [None, 1.5])
def test_an_ode_answers_as_predict_does_also_from_a_time_on(at, condition):
    problem = decay()
    objective = Objective(problem, predictor=problem.predictor(jnp.zeros((1, 2))))
    fit = made_fit(problem, "pcuq", 0.1, centre=[0.0, 0.0], curves=False, objective=objective)
    engine = Engine([fit], condition)
    (found,) = engine.predict({"k": 2.0, "speed": 0.1}, at)
    time = "" if at is None else f"@{at}"
    do = [f"k*=2{time}", f"speed*=0.1{time}"]
    wanted = predict(problem, found.thetas, engine.x, do=do, noise=False, condition=condition)
    assert np.allclose(found.trajectories, wanted.trajectories, atol=1e-3)


def test_names_and_fits_that_do_not_belong_are_refused(engine):
    with pytest.raises(InputError, match="unknown names"):
        engine.predict({"none": 2.0})
    with pytest.raises(InputError, match="different problems"):
        Engine([engine.fits[0], made_fit(growth_problem(), "pcuq", 0.2)])
    with pytest.raises(InputError, match="unknown condition 'none'"):
        Engine(engine.fits, "none")
    with pytest.raises(InputError, match="know their problem"):
        Engine([pcuq.Fit(engine.fits[0].tree)])


def test_of_data_that_all_have_conditions_the_only_one_is_explored():
    labels = {"plain": None, "other": None}
    data = pcuq.Data([[1.0], [2.0]], [0.0, 1.0], 0.1, condition=["plain", "plain"])
    problem = pcuq.Problem(growth_problem(("prey",)).model, data, conditions=labels)
    fit = made_fit(problem, "pcuq", 0.2)
    assert Engine([fit]).condition == "plain"
    both = problem.with_data(dataclasses.replace(data, condition=np.array(["plain", "other"])))
    with pytest.raises(InputError, match=r"say which to explore, one of \['other', 'plain'\]"):
        Engine([made_fit(both, "pcuq", 0.2)])


def test_a_simulator_outside_of_pcuq_is_refused_and_told_what_to_use():
    model = pcuq.ExternalModel(
        lambda x, p: p["rate"] * np.asarray(x)[:, None], {"rate": pcuq.Parameter("log")}, ("prey",)
    )
    problem = pcuq.Problem(model, pcuq.Data([1.0, 2.0], [1.0, 2.0], noise=0.1))
    fit = made_fit(problem, "pcuq", 0.1, centre=[0.0], curves=False)
    with pytest.raises(InputError, match=r"answers at once.*use `pcuq predict` with --do"):
        Engine([fit])


def curve(page, name: str) -> dict[str, np.ndarray]:
    """The data of a source in the page itself."""
    data = page.evaluate(
        """name => {
            for (const doc of Bokeh.documents)
                for (const model of doc._all_models.values())
                    if (model.name === name) {
                        const found = {}
                        for (const key of ["x", "middle", "low0.9", "high0.9"])
                            found[key] = Array.from(model.data.get
                                ? model.data.get(key) : model.data[key])
                        return found
                    }
            return null
        }""",
        name,
    )
    assert data is not None, f"no source {name!r} in the page"
    return {key: np.array(values, dtype=float) for key, values in data.items()}


def ready(page, url: str) -> None:
    page.goto(url)
    page.wait_for_selector(".noUi-handle", timeout=60_000)
    page.wait_for_function("window.Bokeh && Bokeh.documents.length > 0")


def test_a_slider_that_is_moved_makes_the_curve_that_predict_gives(engine, served, watched):
    ready(watched, served.url)
    before = curve(watched, "pcuq: prey")
    control = engine.predict()[0]
    assert np.allclose(before["middle"], control.quantile(0.5)[:, 0])

    slider = watched.locator(".noUi-handle").nth(1)  # the horizon is the first
    slider.focus()
    for _ in range(5):
        slider.press("ArrowLeft")
    deadline = time.monotonic() + 30
    factor = float(10**-0.5)
    rows = engine.fits[0].problem
    wanted = predict(rows, control.thetas, engine.x, do=f"rate*={factor}", noise=False)
    while time.monotonic() < deadline:
        after = curve(watched, "pcuq: prey")
        if np.allclose(after["middle"], wanted.quantile(0.5)[:, 0]):
            break
        watched.wait_for_timeout(100)
    assert np.allclose(after["middle"], wanted.quantile(0.5)[:, 0])
    low, high = wanted.band(0.9)
    assert np.allclose(after["low0.9"], low[:, 0])
    assert np.allclose(after["high0.9"], high[:, 0])
    assert not np.allclose(after["middle"], before["middle"])
    assert watched.get_by_text("0.316").count() >= 1  # at the slider
    assert watched.get_by_text("rate × 0.316").count() == 1  # in words
    assert watched.complaints == []
    assert watched.outside == []


def test_names_with_markup_are_shown_as_text(watched):
    formula = "$$x$$<img src=none onerror=alert(1)>"  # with MathJax it would be HTML
    problem = growth_problem(("<b>prey</b>",), ("ra<i>te", formula))
    served = serve(Engine([made_fit(problem, "pcuq", 0.2)]), show=False)
    try:
        ready(watched, served.url)
        assert watched.get_by_text("ra<i>te ×").count() == 1
        assert watched.locator("img").count() == 0
        assert watched.complaints == []
    finally:
        served.stop()


def test_the_page_is_served_on_loopback_only(served):
    port = int(served.url.rsplit(":", 1)[1].strip("/"))
    others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    # The last is this machine, too, for a server that listens to any address.
    for address in (others - {"127.0.0.1"}) | {"127.0.0.2"}:
        with pytest.raises(OSError), socket.create_connection((address, port), timeout=2):
            pass
    assert urllib.request.urlopen(served.url, timeout=20).status == 200


def test_another_origin_is_refused(served):
    host = served.url.split("/")[2]

    def status(origin: str) -> int:
        """Of the answer to a websocket's first request."""
        lines = [
            "GET /ws HTTP/1.1",
            f"Host: {host}",
            f"Origin: {origin}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version: 13",
        ]
        address, port = host.split(":")
        with socket.create_connection((address, int(port)), timeout=60) as connection:
            connection.sendall("\r\n".join([*lines, "", ""]).encode())
            return int(connection.recv(100).split()[1])

    assert status("http://evil.example") == 403
    assert status(served.url.rstrip("/")) != 403
