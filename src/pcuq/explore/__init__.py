"""A local page where sliders change the model and the bands of all fits answer at once."""

from pcuq.explore.engine import Engine
from pcuq.explore.page import page, serve

__all__ = ["Engine", "page", "serve"]
