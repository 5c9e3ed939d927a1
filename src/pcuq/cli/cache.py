"""JAX's compilation cache, kept between runs: compile once per machine and not once per run."""

from __future__ import annotations

import os
from pathlib import Path


def use_compilation_cache() -> None:
    """Keep what takes long to compile under the user's cache folder, unless JAX was told where."""
    import jax

    if "JAX_COMPILATION_CACHE_DIR" in os.environ:  # JAX has read it
        return
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "pcuq" / "jax"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
