"""Models of scikit-learn that skl2onnx exports, and of LightGBM and XGBoost, against onnxruntime's CPU provider."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from sklearn import (
    calibration,
    compose,
    datasets,
    decomposition,
    discriminant_analysis,
    ensemble,
    feature_selection,
    impute,
    linear_model,
    model_selection,
    multiclass,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)

from dmlgpu import NotSupported
from dmlgpu.frontends.onnx import load
from tests.unit.frontends.onnx.onnx_ml import difference
from tests.unit.frontends.onnx.onnx_models import onnxruntime_outputs

BOOSTED = Path(__file__).parents[3] / "data" / "boosted"

X, Y = datasets.load_iris(return_X_y=True)
X = X.astype(np.float32)
TARGET = X[:, 3] * 2 - X[:, 0]


def classifiers() -> Iterator[Any]:
    logistic = linear_model.LogisticRegression(max_iter=500)
    several = [("a", logistic), ("b", tree.DecisionTreeClassifier(random_state=0)), ("c", naive_bayes.GaussianNB())]
    yield from (logistic, linear_model.SGDClassifier(loss="log_loss", random_state=0), linear_model.RidgeClassifier())
    yield from (svm.SVC(), svm.SVC(kernel="poly"), svm.NuSVC(nu=0.2), neighbors.KNeighborsClassifier())
    yield from (tree.DecisionTreeClassifier(random_state=0), ensemble.RandomForestClassifier(20, random_state=0))
    yield from (ensemble.ExtraTreesClassifier(10, random_state=0), ensemble.BaggingClassifier(n_estimators=3))
    yield from (ensemble.GradientBoostingClassifier(n_estimators=5), ensemble.AdaBoostClassifier(n_estimators=4))
    yield from (neural_network.MLPClassifier((8,), max_iter=60, random_state=0), naive_bayes.GaussianNB())
    yield from (naive_bayes.BernoulliNB(), discriminant_analysis.LinearDiscriminantAnalysis())
    yield discriminant_analysis.QuadraticDiscriminantAnalysis()
    yield pipeline.make_pipeline(preprocessing.MinMaxScaler(), naive_bayes.MultinomialNB())
    yield ensemble.VotingClassifier(several, voting="soft", flatten_transform=False)
    yield ensemble.StackingClassifier(several[:2], cv=2)
    yield calibration.CalibratedClassifierCV(naive_bayes.GaussianNB(), cv=2)
    yield model_selection.GridSearchCV(tree.DecisionTreeClassifier(random_state=0), {"max_depth": [2, 3]}, cv=2)
    yield multiclass.OneVsRestClassifier(logistic)
    scaler = compose.ColumnTransformer(
        [("a", preprocessing.StandardScaler(), [0, 1]), ("b", preprocessing.RobustScaler(), [2, 3])]
    )
    yield pipeline.make_pipeline(scaler, preprocessing.Normalizer(), logistic)
    union = pipeline.FeatureUnion([("a", preprocessing.MaxAbsScaler()), ("b", decomposition.PCA(2))])
    yield pipeline.make_pipeline(union, feature_selection.SelectKBest(k=3), svm.SVC())


def regressors() -> Iterator[Any]:
    yield from (linear_model.LinearRegression(), linear_model.Lasso(0.01), svm.SVR(), svm.NuSVR(kernel="linear"))
    yield from (tree.DecisionTreeRegressor(), ensemble.RandomForestRegressor(10), neighbors.KNeighborsRegressor())
    yield from (ensemble.GradientBoostingRegressor(n_estimators=10), ensemble.AdaBoostRegressor(n_estimators=3))
    yield neural_network.MLPRegressor(hidden_layer_sizes=(8,), max_iter=60, random_state=0)
    yield pipeline.make_pipeline(preprocessing.PolynomialFeatures(2), linear_model.Ridge())


def transformers() -> Iterator[Any]:
    yield from (preprocessing.StandardScaler(), preprocessing.MinMaxScaler(clip=True), preprocessing.MaxAbsScaler())
    yield from (preprocessing.Normalizer(norm) for norm in ("l1", "l2", "max"))
    yield from (preprocessing.Binarizer(threshold=2.0), preprocessing.KBinsDiscretizer(3, encode="onehot-dense"))
    yield from (preprocessing.PolynomialFeatures(2), decomposition.PCA(2), impute.SimpleImputer())
    yield preprocessing.OneHotEncoder(handle_unknown="ignore", sparse_output=False)


@pytest.fixture
def to_onnx() -> Any:
    return pytest.importorskip("skl2onnx", reason="skl2onnx, which exports the models, is not installed").to_onnx


def check(model: onnx.ModelProto, x: np.ndarray, what: object) -> None:
    """Compare a model with onnxruntime for many rows, few and one: the labels must be equal."""
    session = load(model, "numpy")
    (name,) = (entry.name for entry in session.inputs)
    for rows in (x, x[:1], x[3:10]):
        mismatch = difference(session.run({name: rows}), onnxruntime_outputs(model, {name: rows}), 1e-3, 1e-4)
        assert not mismatch, f"{what} of {x.dtype}, {len(rows)} rows: {mismatch}"


def checked(to_onnx: Any, estimators: Iterator[Any], x: np.ndarray, y: np.ndarray, options: Any = None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for estimator in estimators:
            check(to_onnx(estimator.fit(x, y), x[:1], options=options), x, estimator)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_classifiers(to_onnx: Any, dtype: Any) -> None:
    x = X if dtype is np.float32 else (X * 10).astype(dtype)
    invalid = ensemble.StackingClassifier if dtype is np.int64 else ()  # skl2onnx declares integer probabilities
    estimators = (estimator for estimator in classifiers() if not isinstance(estimator, invalid))
    checked(to_onnx, estimators, x, Y, {"zipmap": False})


@pytest.mark.slow
def test_classifiers_of_two_classes(to_onnx: Any) -> None:
    """Some labels are wrong, so no class is certain; labels are not indices of classes."""
    rng = np.random.default_rng(0)
    y = np.where((Y > 0) ^ (rng.random(len(Y)) < 0.1), 7, -2)
    checked(to_onnx, classifiers(), X, y, {"zipmap": False})


@pytest.mark.slow
def test_regressors(to_onnx: Any) -> None:
    checked(to_onnx, regressors(), X, TARGET)
    both = np.stack([TARGET, TARGET**2], 1)
    checked(to_onnx, iter([ensemble.RandomForestRegressor(5), linear_model.Ridge()]), X, both)


@pytest.mark.slow
def test_transformers(to_onnx: Any) -> None:
    checked(to_onnx, transformers(), np.round(X), Y)


@pytest.mark.slow
def test_missing_values(to_onnx: Any) -> None:
    x = X.copy()
    x[::7, 1] = np.nan
    forest = ensemble.RandomForestClassifier(5, random_state=0)
    imputed = pipeline.make_pipeline(impute.SimpleImputer(), linear_model.LogisticRegression(max_iter=500))
    checked(to_onnx, iter([forest, imputed]), x, Y, {"zipmap": False})


@pytest.mark.slow
def test_pairwise_probabilities(to_onnx: Any) -> None:
    checked(to_onnx, iter([svm.SVC(probability=True, random_state=0)]), X, Y, {"zipmap": False})


@pytest.mark.slow
def test_doubles(to_onnx: Any) -> None:
    """Trees compare float64 exactly; other models raise an error with advice."""
    x = X.astype(np.float64) + 1e-9
    checked(to_onnx, iter([ensemble.RandomForestClassifier(5, random_state=0)]), x, Y, {"zipmap": False})
    model = to_onnx(linear_model.LogisticRegression(max_iter=500).fit(x, Y), x[:1], options={"zipmap": False})
    with pytest.raises(NotSupported, match="export the model with float32 inputs"):
        load(model, "numpy").run({"X": x})


@pytest.mark.slow
def test_maps_are_rejected(to_onnx: Any) -> None:
    model = to_onnx(linear_model.LogisticRegression(max_iter=500).fit(X, Y), X[:1])
    with pytest.raises(NotSupported, match=r'options=\{"zipmap": False\}'):
        load(model, "numpy")


def test_page(to_onnx: Any) -> None:
    """The example of docs/scikit-learn.md runs."""
    page = (Path(__file__).parents[4] / "docs" / "scikit-learn.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    exec(compile(block, "scikit-learn.md", "exec"), {})


@pytest.mark.parametrize("path", sorted(BOOSTED.glob("*.onnx")), ids=lambda path: path.stem)
def test_boosted_trees(path: Path) -> None:
    """Models of LightGBM, XGBoost and HistGradientBoostingClassifier that were exported once."""
    check(onnx.load(path), np.load(BOOSTED / "rows.npy"), path.stem)
