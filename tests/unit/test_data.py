"""Data: what is understood, and what is refused with a word on what to do."""

import numpy as np
import pandas as pd
import pytest

from pcuq.data import Data
from pcuq.errors import InputError
from pcuq.noise import Gaussian, JointNoise, Laplace, LogNormal, Poisson, StudentT


def test_a_vector_is_one_output():
    data = Data([1.0, 2.0, np.nan, 4.0][:2], x=[0, 1])
    assert (data.n, data.d) == (2, 1) and data.y.shape == (2, 1)


def test_data_are_copied_and_cannot_be_changed():
    y = np.ones((2, 1))
    data = Data(y)
    y[0, 0] = 5.0
    assert data.y[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        data.y[0, 0] = 2.0


def test_missing_values_are_known():
    data = Data([[1.0, np.nan], [2.0, 3.0]])
    np.testing.assert_array_equal(data.observed, [[True, False], [True, True]])


def test_a_noise_for_each_output():
    data = Data(np.ones((3, 2)), noise=(Laplace(0.5), StudentT("s")))
    assert [type(noise) for noise in data.noises] == [Laplace, StudentT]
    shared = Data(np.ones((3, 2)), noise=0.3)
    assert [type(noise) for noise in shared.noises] == [Gaussian, Gaussian]


def test_noise_may_be_anything_where_nothing_was_measured():
    y = np.array([[1.0, np.nan], [2.0, 3.0]])
    for absent in (np.nan, 0.0, -1.0, np.inf):
        Data(y, noise=[[0.1, absent], [0.1, 0.2]])
    Data(y, noise=(Gaussian(1.0), Gaussian([[np.nan], [0.2]])))
    with pytest.raises(InputError, match="wherever y is observed: got nan; give the sd"):
        Data(y, noise=[[np.nan, 1.0], [0.1, 0.2]])


def test_a_frame_gives_its_columns():
    frame = pd.DataFrame({"time": [0.0, 1.0], "drug": ["a", "b"], "u": [1, 2], "v": [3.0, np.nan]})
    data = Data.from_frame(frame, condition="drug", noise=0.5)
    assert data.outputs == ("u", "v")
    np.testing.assert_array_equal(data.condition, ["a", "b"])
    np.testing.assert_array_equal(data.x, [0.0, 1.0])
    with pytest.raises(InputError, match=r"no column .'hare'.: it has .'time', 'drug'"):
        Data.from_frame(frame, outputs=["hare"])


def draw(key, w, s):
    return w


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": []}, "`y` is empty"),
        ({"y": [["a"]]}, "`y` needs numbers: got values of type"),
        ({"y": np.ones((2, 2, 2))}, r"`y` needs shape \(n, d\).*got shape \(2, 2, 2\)"),
        ({"y": [np.inf]}, "an infinite value: mark missing values NaN"),
        ({"y": [1.0, np.nan]}, r"1 rows with nothing observed \(first: row 1\): drop them"),
        (
            {"y": [1.0, 2.0], "x": [0.0]},
            "got 2 rows for 1 covariates.*drop the time",
        ),
        ({"y": [1.0], "x": ["a"]}, "`x` needs numbers"),
        ({"y": [1.0], "x": [np.nan]}, "`x` must be finite: drop rows"),
        ({"y": [1.0], "condition": ["a", "b"]}, r"one label per row: got shape \(2,\) for 1 rows"),
        ({"y": [1.0], "outputs": ["u", "v"]}, r"needs 1 different names.*got \['u', 'v'\]"),
        ({"y": np.ones((1, 2)), "outputs": ["u", "u"]}, "needs 2 different names"),
        ({"y": [1.0], "noise": 0.0}, "positive and finite wherever y is observed: got 0"),
        ({"y": [1.0], "noise": None}, "`noise` needs an sd, .*: got None"),
        ({"y": [1.0], "noise": []}, "`noise` is empty"),
        ({"y": [1.0], "noise": object()}, "`noise` needs numbers or parameter names"),
        ({"y": np.ones((3, 2)), "noise": [1.0, 2.0, 3.0]}, r"one sd, one per output \(2,\)"),
        ({"y": np.ones((3, 2)), "noise": ["a", 1.0, 2.0]}, "per output: got 3 for 2 outputs"),
        ({"y": np.ones((3, 2)), "noise": ["a", -1.0]}, "positive and finite"),
        ({"y": np.ones((3, 2)), "noise": (Gaussian(),)}, "one model per output: got 1 for 2"),
        ({"y": np.ones((3, 2)), "noise": (Gaussian(), 1.0)}, "a noise model for every output"),
        ({"y": np.ones((3, 2)), "noise": (Gaussian(), JointNoise(draw=draw))}, "a JointNoise"),
        ({"y": [1.0, 0.0], "noise": LogNormal(0.2)}, "needs positive data: output 0 has 0"),
        ({"y": [1.5], "noise": Poisson()}, "needs counts 0, 1, 2, …: output 0 has other values"),
        ({"y": [-1.0], "noise": Poisson()}, "needs counts"),
    ],
)
def test_data_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        Data(**arguments)
