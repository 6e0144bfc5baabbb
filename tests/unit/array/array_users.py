"""scikit-learn and SciPy on tensors and on NumPy's arrays: run as a program, it prints a line per function.

SciPy reads SCIPY_ARRAY_API when it is imported: hence a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.cluster.vq
import scipy.integrate
import scipy.special
import scipy.stats
import sklearn
from sklearn import metrics, preprocessing
from sklearn.metrics import pairwise

import dmlgpu.array as xp
from dmlgpu import Tensor

Case = tuple[str, Callable[..., Any], tuple[np.ndarray[Any, Any], ...]]

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((6, 4)).astype(np.float32), RNG.standard_normal((5, 4)).astype(np.float32)
KERNEL = X @ X.T
TRUE, GUESS = X[:, 0], X[:, 0] + Y[0, 0] * X[:, 1]
CLASSES, GUESSES = np.array([0, 1, 1, 0, 2, 1]), np.array([0, 1, 0, 0, 2, 2])

SCALERS = (
    preprocessing.MinMaxScaler(),
    preprocessing.StandardScaler(),
    preprocessing.MaxAbsScaler(),
    preprocessing.Normalizer(),
    preprocessing.Normalizer("l1"),
    preprocessing.Normalizer("max"),
    preprocessing.Binarizer(threshold=0.1),
    preprocessing.PolynomialFeatures(2),
)
KERNELS = (
    "euclidean_distances cosine_distances manhattan_distances linear_kernel polynomial_kernel rbf_kernel "
    "sigmoid_kernel laplacian_kernel cosine_similarity"
)
SCORES = (
    "r2_score mean_squared_error root_mean_squared_error mean_absolute_error median_absolute_error max_error "
    "mean_absolute_percentage_error explained_variance_score d2_absolute_error_score mean_pinball_loss"
)
CLASS_SCORES = "accuracy_score zero_one_loss hamming_loss confusion_matrix"
AVERAGED = "f1_score precision_score recall_score jaccard_score"


def cases() -> Iterator[Case]:
    """Yield each function by name, with arrays for it."""
    for scaler in SCALERS:
        yield str(scaler), scaler.fit_transform, (X,)
    for scaler in SCALERS[:3]:
        yield f"{scaler} and back", lambda a, s=scaler: s.inverse_transform(s.fit_transform(a)), (X,)
    yield "KernelCenterer", preprocessing.KernelCenterer().fit_transform, (KERNEL,)
    for name in KERNELS.split():
        yield name, getattr(pairwise, name), (X, Y)
    for name in SCORES.split():
        yield name, getattr(metrics, name), (TRUE, GUESS)
    for name in CLASS_SCORES.split():
        yield name, getattr(metrics, name), (CLASSES, GUESSES)
    for name in AVERAGED.split():
        yield name, lambda a, b, n=name: getattr(metrics, n)(a, b, average="macro"), (CLASSES, GUESSES)
    yield "scipy.special.logsumexp", lambda a: scipy.special.logsumexp(a, axis=1), (X,)
    yield "scipy.special.softmax", lambda a: scipy.special.softmax(a, axis=1), (X,)
    yield "scipy.stats.zscore", lambda a: scipy.stats.zscore(a, axis=0), (X,)
    yield "scipy.stats.skew", lambda a: scipy.stats.skew(a, axis=0), (X,)
    yield "scipy.stats.entropy", lambda a: scipy.stats.entropy(abs(a), axis=0), (X,)
    yield "scipy.integrate.trapezoid", lambda a: scipy.integrate.trapezoid(a, axis=0), (X,)
    yield "scipy.cluster.vq.whiten", scipy.cluster.vq.whiten, (X,)


def main() -> None:
    """Print for each function whether tensors give what arrays give, and as what."""
    for name, function, arrays in cases():
        expected = function(*arrays)
        with sklearn.config_context(array_api_dispatch=True):
            result = function(*map(xp.asarray, arrays))
        is_tensor = isinstance(result, Tensor) or np.ndim(expected) == 0
        is_same = np.allclose(np.asarray(result), expected, rtol=1e-4, atol=1e-5)
        print(f"{name}: {'as NumPy' if is_tensor and is_same else f'{result!r} instead of {expected!r}'}")


if __name__ == "__main__":
    main()
