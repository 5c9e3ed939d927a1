"""Kernels on one pair: k(0) = 1, positive definite, and what they refuse."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcuq.errors import InputError
from pcuq.kernels import (
    GaussianKernel,
    GaussianMixtureKernel,
    InverseMultiquadricKernel,
    MaternKernel,
    RationalQuadraticKernel,
)

KERNELS = [
    GaussianKernel(),
    GaussianMixtureKernel(),
    GaussianMixtureKernel(multiples=(1.0, 3.0), weights=(1.0, 2.0)),
    InverseMultiquadricKernel(),
    RationalQuadraticKernel(alpha=0.4),
    MaternKernel(),
    MaternKernel(nu=2.5),
]


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=8), st.sampled_from(KERNELS))
def test_kernels_are_positive_definite_and_one_at_zero(points, kernel):
    points = np.array(points)
    gram = np.asarray(kernel.profile(points[:, None] - points[None, :]))
    np.testing.assert_allclose(np.diag(gram), 1.0, rtol=1e-12)
    np.testing.assert_allclose(gram, gram.T)
    assert np.linalg.eigvalsh(gram).min() > -1e-10


def test_values_by_hand():
    r = np.array([2.0])
    values = {
        GaussianKernel: np.exp(-2.0),
        InverseMultiquadricKernel: 1 / np.sqrt(5),
        RationalQuadraticKernel: 1 / 3,
        MaternKernel: (1 + 2 * np.sqrt(3)) * np.exp(-2 * np.sqrt(3)),
    }
    for kind, value in values.items():
        np.testing.assert_allclose(kind().profile(r), value, rtol=1e-12)
    a = 2 * np.sqrt(5)
    np.testing.assert_allclose(MaternKernel(nu=2.5).profile(r), (1 + a + a**2 / 3) * np.exp(-a))
    mixture = GaussianMixtureKernel(multiples=(1.0, 2.0), weights=(1.0, 3.0))
    np.testing.assert_allclose(mixture.profile(r), (np.exp(-2.0) + 3 * np.exp(-0.5)) / 4)


@pytest.mark.parametrize("kernel", KERNELS[:3])
def test_gaussian_terms_add_up_to_the_profile(kernel):
    r = np.linspace(-3, 3, 7)
    weights, widths = kernel.gaussian_terms
    total = (weights * np.exp(-((r[:, None] / widths) ** 2) / 2)).sum(axis=1)
    np.testing.assert_allclose(kernel.profile(r), total, rtol=1e-12)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (GaussianKernel, {"combine": "mean"}, "`combine` needs 'product' or 'sum': got 'mean'"),
        (GaussianKernel, {"lengthscale_x": -1.0}, "must not be negative: got -1.0; 0 is the limit"),
        (GaussianKernel, {"lengthscale_x": np.inf}, "one finite number: got inf"),
        (GaussianKernel, {"lengthscale_x": [1.0]}, "one finite number"),
        (GaussianKernel, {"lengthscale_x": "a"}, "one finite number: got a"),
        (
            GaussianKernel,
            {"lengthscale_y": 0.0},
            "a positive number, or one per output: got 0.0; 'residuals' sets",
        ),
        (
            GaussianKernel,
            {"lengthscale_y": "wide"},
            "a positive number, or one per output: got wide",
        ),
        (GaussianKernel, {"lengthscale_y": [[1.0]]}, "a positive number, or one per output"),
        (GaussianMixtureKernel, {"multiples": ()}, "`multiples` needs positive numbers"),
        (GaussianMixtureKernel, {"multiples": (1.0, -1.0)}, "`multiples` needs positive numbers"),
        (GaussianMixtureKernel, {"weights": (1.0,)}, "one positive number per multiple"),
        (RationalQuadraticKernel, {"alpha": 0.0}, "`alpha` must be positive: got 0.0"),
        (MaternKernel, {"nu": 0.5}, "`nu` needs 1.5 or 2.5: got 0.5"),
    ],
)
def test_a_kernel_that_makes_no_sense_is_refused(kind, arguments, message):
    with pytest.raises(InputError, match=message):
        kind(**arguments)
