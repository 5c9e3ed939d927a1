"""What every test stands on: 64 bits, a compilation cache, and data from outside where it is."""

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Before JAX is imported, which reads these once. Compiling is most of a test's time.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("MPLBACKEND", "agg")

import jax  # noqa: E402
import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

settings.register_profile(
    "pcuq",
    max_examples=25,
    # The first example compiles and the others do not: time per example says nothing.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("pcuq")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Run each test in 64 bits, or in JAX's default where it is marked `default_precision`.

    A hook and not a fixture: it also holds for fixtures of a whole module.
    """
    with jax.enable_x64(item.get_closest_marker("default_precision") is None):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark what stands in tests/external and tests/statistical by its folder.

    And mark as slow the cases of a test that it does not name as its `quick` ones; each name must
    be that of a case, or the test would be slow without anyone having meant it.
    """
    unknown: dict[str, set[str]] = {}
    for item in items:
        folder = item.path.relative_to(ROOT / "tests").parts[0]
        if folder in ("external", "statistical"):
            item.add_marker(folder)
        for marker in item.iter_markers("quick"):
            whole = item.nodeid.partition("[")[0]
            unknown.setdefault(whole, set(marker.args)).discard(item.callspec.id)
            if item.callspec.id not in marker.args:
                item.add_marker("slow")
    if not any("::" in argument for argument in config.args):
        wrong = [f"{whole}: {sorted(names)}" for whole, names in unknown.items() if names]
        if wrong:
            raise pytest.UsageError("`quick` names cases that there are not: " + "; ".join(wrong))


@pytest.fixture(scope="session")
def external_data() -> Path:
    """The folder of models and data that PCUQ_EXTERNAL_DATA names; the test is skipped without."""
    folder = os.environ.get("PCUQ_EXTERNAL_DATA")
    if not folder:
        pytest.skip("needs data from outside: PCUQ_EXTERNAL_DATA is not set")
    path = Path(folder)
    if not path.is_dir():
        pytest.fail(f"PCUQ_EXTERNAL_DATA names {folder!r}, which is not a folder; mend or unset it")
    return path


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium of this machine; the test is skipped without."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("no browser: none of chromium, chromium-browser and google-chrome is installed")
    flags = ["no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync"]
    flags += ["disable-background-networking", "disable-component-update"]
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=path, args=[f"--{flag}" for flag in flags]
        )
        yield opened
        opened.close()


@pytest.fixture
def watched(browser):
    """A page of that browser, which must have nothing to complain of and ask for nothing outside.

    `watched.outside` are the requests to other machines.
    """
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    complaints, outside = [], []
    page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    local = ("data:", "file:", "blob:", "http://127.0.0.1", "ws://127.0.0.1", "about:")
    page.on("request", lambda r: None if r.url.startswith(local) else outside.append(r.url))
    page.complaints, page.outside = complaints, outside
    yield page
    page.close()
