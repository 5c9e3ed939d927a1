"""Programs that differ only in numbers are compiled once."""

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcuq import _program
from pcuq._program import Program, side_by_side
from pcuq._x64 import x64


@pytest.fixture(autouse=True)
def no_programs(monkeypatch):
    monkeypatch.setattr(_program, "_programs", type(_program._programs)())


def scaled(numbers):
    numbers = np.asarray(numbers)
    return Program(lambda x: {"sum": jnp.sum(numbers * x["u"]), "each": (numbers, x["u"])})


def test_arrays_that_a_function_closes_over_do_not_compile_it_again():
    first, second = scaled([1.0, 2.0])({"u": 3.0}), scaled([5.0, 7.0])({"u": 3.0})
    assert len(_program._programs) == 1
    assert first["sum"] == 9 and second["sum"] == 36
    np.testing.assert_array_equal(second["each"][0], [5.0, 7.0])


def test_other_shapes_types_and_code_are_other_programs():
    x = {"u": 3.0}
    scaled([1.0, 2.0])(x), scaled([1.0, 2.0, 3.0])(x), scaled([1, 2])(x)
    assert len(_program._programs) == 3
    Program(lambda x: jnp.max(np.array([1.0, 2.0]) * x["u"]))(x)
    assert len(_program._programs) == 4


def test_one_program_serves_several_shapes_and_numbers_of_any_origin():
    program = Program(lambda x: 2 * x)
    for x in (1.0, np.float64(1.0), jnp.asarray(1.0), jnp.ones(())):
        assert program(x) == 2
    assert len(_program._programs) == 1
    np.testing.assert_array_equal(program(np.ones(3)), 2 * np.ones(3))
    assert len(_program._programs) == 2


def test_what_failed_to_compile_is_compiled_again():
    class Lowered:
        in_avals, failed = (), False

        def as_text(self):
            return "a program"

        def compile(self, compiler_options):
            if not self.failed:
                self.failed = True
                raise RuntimeError("out of memory")
            return "compiled"

    lowered = Lowered()
    with pytest.raises(RuntimeError, match="out of memory"):
        _program._compiled(lowered)
    assert _program._compiled(lowered) == "compiled"


def test_keys_of_random_numbers_may_be_closed_over_or_passed():
    key = jax.random.key(3)
    expected = jax.random.normal(key, (2,))
    np.testing.assert_array_equal(Program(lambda: jax.random.normal(key, (2,)))(), expected)
    np.testing.assert_array_equal(Program(lambda k: jax.random.normal(k, (2,)))(key), expected)


def test_threads_share_a_program_and_each_gets_its_own_numbers():
    def work(number):
        with jax.enable_x64(True):
            return float(scaled(np.full(4, float(number)))({"u": 1.0})["sum"])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(8))) == [4.0 * i for i in range(8)]
    assert len(_program._programs) == 1


def test_an_error_in_tracing_is_raised_each_time_and_nothing_is_kept():
    def wrong(x):
        raise ZeroDivisionError

    program = Program(wrong)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            program(1.0)
    assert not _program._programs


def test_only_so_many_programs_are_kept(monkeypatch):
    monkeypatch.setattr(_program, "KEPT", 2)
    for size in range(1, 5):
        scaled(np.ones(size))({"u": 1.0})
    assert len(_program._programs) == 2


def test_programs_that_differ_in_an_argument_they_do_not_use_are_told_apart():
    def first_doubled(x, unused):
        return 2.0 * x

    x = np.arange(3.0)
    for shape in [(4, 2), (4, 1)]:
        assert np.array_equal(Program(first_doubled)(x, np.zeros(shape)), 2.0 * x)


def test_a_level_of_optimisation_that_the_user_asks_for_stands(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=1")
    ours = _program.options()
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=1")
    assert _program.options() == {}
    assert ours == ({} if jax.default_backend() != "cpu" else {_program.LEVEL: 2})


def test_programs_that_factor_matrices_run_one_at_a_time():
    invert, double = Program(jnp.linalg.inv), Program(lambda a: 2 * a)
    a = np.diag([1.0, 2.0])
    invert(a), double(a)
    with ThreadPoolExecutor(2) as pool:
        with _program._factoring:
            # In 64 bits, as here: a thread has its own precision, and would compile anew.
            waits = pool.submit(x64(invert), a)
            np.testing.assert_array_equal(pool.submit(x64(double), a).result(60), 2 * a)
            with pytest.raises(TimeoutError):
                waits.result(0.5)
        np.testing.assert_array_equal(waits.result(60), np.diag([1.0, 0.5]))


def test_parts_run_side_by_side_come_back_in_order_and_in_64_bits():
    x = np.arange(12.0).reshape(6, 2) + 1e-12
    doubled, rows = side_by_side(Program(lambda x: (2 * x, jnp.sum(x, axis=1))), 3, x)
    np.testing.assert_array_equal(doubled, 2 * x)
    np.testing.assert_array_equal(rows, x.sum(axis=1))
    assert len(_program._programs) == 1
