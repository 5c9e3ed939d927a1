"""The page: sliders on the left, bands of every output on the right; for this machine only."""

from __future__ import annotations

import socket
import time
from html import escape
from typing import Any, NamedTuple

from pcuq.errors import ComputationError, InputError
from pcuq.explore.engine import Engine
from pcuq.plots.styles import styles_of
from pcuq.report.evidence import labels_of

LEVELS = (0.9, 0.5)
MOST_SLIDERS, MOST_OUTPUTS = 16, 12
DECADES, STEP = 2.0, 0.1  # factors from 1/100 to 100, in powers of ten
SIZES = {1: (800, 460), 2: (440, 290), 3: (330, 240)}  # of a figure, by how many stand in a row
DASHES = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "dashdot"}
CSS_LINES = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "dashed"}
ADDRESS = "127.0.0.1"
SECONDS_TO_START = 60.0


def import_panel() -> Any:
    """panel, or an error that says how to get it."""
    try:
        import panel
    except ImportError:
        raise InputError(
            'exploring needs the panel package: install it with pip install "pcuq[explore]".'
        ) from None
    return panel


class Served(NamedTuple):
    """A running server."""

    url: str
    thread: Any

    def stop(self) -> None:
        self.thread.stop()


def serve(engine: Engine, port: int = 0, show: bool = True) -> Served:
    """Serve on loopback, in a thread; a page of another origin cannot speak to it."""
    panel = import_panel()
    port = port or _free_port()
    engine.predict()  # compiled before the first visitor asks
    thread = panel.serve(
        {"/": lambda: page(engine)},
        address=ADDRESS,
        port=port,
        websocket_origin=[f"{ADDRESS}:{port}", f"localhost:{port}"],
        show=show,
        threaded=True,
        title="pcuq explore",
        verbose=False,
    )
    _wait_for(port)
    return Served(f"http://{ADDRESS}:{port}/", thread)


def factor(position: float) -> float:
    """What a quantity is multiplied by where its slider is at `position`."""
    return float(10 ** (round(position / STEP) * STEP))


def page(engine: Engine) -> Any:
    """What one visitor sees."""
    panel = import_panel()
    from bokeh.models import CustomJSTickFormatter

    control = engine.predict()
    outputs = engine.model.outputs[:MOST_OUTPUTS]
    columns = 1 if len(outputs) == 1 else 2 if len(outputs) <= 4 else 3
    views = [_View(engine, output, control, SIZES[columns]) for output in outputs]
    sliders = {
        name: panel.widgets.FloatSlider(
            label=f"{name} ×",  # Bokeh shows it as text, as long as no MathJax is loaded
            start=-DECADES,
            end=DECADES,
            step=STEP,
            value=0.0,
            format=CustomJSTickFormatter(code="return String(+(10 ** tick).toPrecision(3))"),
            width=260,
        )
        for name in engine.names[:MOST_SLIDERS]
    }
    horizon = panel.widgets.FloatSlider(
        label="show until",
        start=engine.start + 0.05 * (engine.end - engine.start),
        end=engine.end,
        value=min(engine.end, engine.last + 0.25 * (engine.last - engine.start)),
        width=260,
    )
    begin = panel.widgets.FloatSlider(
        label="intervene from",
        start=engine.start,
        end=engine.last,
        value=engine.start,
        step=(engine.last - engine.start) / 20,
        width=260,
    )
    reset = panel.widgets.Button(label="back to control", width=260)
    note = panel.pane.HTML("", width=270)

    def update(*_: Any) -> None:
        factors = {name: factor(slider.value) for name, slider in sliders.items()}
        at = float(begin.value) if engine.has_time else None
        found = engine.predict(factors, at)
        for view in views:
            view.show(found)
        changed = [
            f"{escape(name)} × {value:.3g}" for name, value in factors.items() if value != 1.0
        ]
        failed = sum(one.failed for one in found)
        lost = f"<p>{failed} draws could not be solved and are left out.</p>" if failed else ""
        later = f" from {at:g} on" if at is not None and at > engine.start else ""
        doing = f"<b>Doing:</b> {', '.join(changed)}{later}" if changed else "<b>Control</b>"
        note.object = doing + lost

    def cut(*_: Any) -> None:
        for view in views:
            view.range.end = float(horizon.value)

    def back(*_: Any) -> None:
        begin.value = engine.start
        for slider in sliders.values():
            slider.value = 0.0

    for slider in sliders.values():
        slider.param.watch(update, "value")

    waiting = []

    def catch_up() -> None:
        waiting.clear()
        update()

    def wait(*_: Any) -> None:
        note.object = "<b>Compiling for this time…</b>"
        if not waiting:  # of several moves in a row only where they end is worth a program
            waiting.append(True)
            # Once the visitor has been told.
            panel.state.curdoc.add_next_tick_callback(catch_up)

    # A new time needs a new program: only when the slider is let go.
    begin.param.watch(wait, "value_throttled")
    horizon.param.watch(cut, "value")
    reset.on_click(back)
    cut()
    update()
    left = panel.Column(
        panel.pane.HTML(_words(engine), width=270),
        note,
        reset,
        horizon,
        *([begin] if engine.has_time else []),
        panel.pane.Markdown("**Change a quantity**", width=270),
        *sliders.values(),
    )
    grid = panel.GridBox(*[panel.pane.Bokeh(view.figure) for view in views], ncols=columns)
    return panel.FlexBox(left, grid)  # one beneath the other on a narrow screen


def _words(engine: Engine) -> str:
    keys = []
    labels, styles = labels_of(engine.fits), styles_of([fit.method for fit in engine.fits])
    for label, style in zip(labels, styles, strict=True):
        line = f"border-top: 3px {CSS_LINES[style.line]} {style.colour}"
        keys.append(
            f'<span style="display:inline-block;width:2em;vertical-align:middle;{line}"></span> '
            f"{escape(label)}"
        )
    return (
        f"<h3>What if?</h3><p>{' &nbsp; '.join(keys)}</p>"
        "<p>Move a slider to multiply a quantity of the model, and see what would happen then. The "
        "model's curve is expected in the dark band with 50 % and in the light band with 90 %; "
        "measurements scatter around it. Dots are the measurements that were fitted, and the thin "
        f"grey line is the middle of {escape(labels[0])} as long as nothing is changed.</p>"
    )


class _View:
    """One output: a figure whose sources are replaced when a slider moves."""

    def __init__(self, engine: Engine, output: str, control, size: tuple[int, int]):
        from bokeh.models import ColumnDataSource, Range1d
        from bokeh.plotting import figure

        self.output = output
        self.column = engine.model.outputs.index(output)
        self.sources = []
        self.range = Range1d(start=engine.start, end=engine.end)
        self.figure = figure(
            width=size[0],
            height=size[1],
            title=output,
            x_range=self.range,
            toolbar_location=None,
            output_backend="canvas",
        )
        middle = control[0].quantile(0.5)[:, self.column]
        self.figure.line(engine.x, middle, color="#888888", line_width=1)
        # The first is the widest as a rule, and lies beneath.
        styles = styles_of([fit.method for fit in engine.fits])
        for fit, style, prediction in zip(engine.fits, styles, control, strict=True):
            source = ColumnDataSource(self._curves(prediction), name=f"{fit.method}: {output}")
            self.sources.append(source)
            for level, alpha in zip(LEVELS, (0.2, 0.35), strict=True):
                self.figure.varea(
                    "x", f"low{level}", f"high{level}", source=source, color=style.colour,
                    fill_alpha=alpha,
                )  # fmt: skip
            self.figure.line(
                "x",
                "middle",
                source=source,
                color=style.colour,
                line_width=2,
                line_dash=DASHES[style.line],
            )
        self._data(engine)
        self.figure.xaxis.axis_label = "time" if engine.has_time else "x"

    def show(self, predictions) -> None:
        """The curves of other predictions."""
        for source, prediction in zip(self.sources, predictions, strict=True):
            source.data = self._curves(prediction)

    def _curves(self, prediction) -> Any:
        found = {"x": prediction.x, "middle": prediction.quantile(0.5)[:, self.column]}
        for level in LEVELS:
            low, high = prediction.band(level)
            found[f"low{level}"], found[f"high{level}"] = low[:, self.column], high[:, self.column]
        return found

    def _data(self, engine: Engine) -> None:
        data, problem = engine.problem.data, engine.problem
        if self.output not in problem.outputs:
            return
        rows = data.condition == engine.condition
        column = problem.outputs.index(self.output)
        self.figure.scatter(data.x[rows], data.y[rows, column], size=4, color="black", alpha=0.7)


def _wait_for(port: int) -> None:
    """Until the server listens."""
    until = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < until:
        try:
            socket.create_connection((ADDRESS, port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise ComputationError(f"the page could not be served at port {port}: choose another --port.")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        return probe.getsockname()[1]
