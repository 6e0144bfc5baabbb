"""Write the small models of this folder: exports of LightGBM, XGBoost and scikit-learn.

    pip install lightgbm xgboost onnxmltools skl2onnx scikit-learn
    python tests/data/boosted/export.py

The models learn from random numbers, some of them missing, and one feature of categories. ``rows.npy`` has the rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx


def rows() -> np.ndarray:
    """Return rows of a category, three numbers, and a number that is missing at times."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(200, 5))
    numbers[:, 0] = rng.integers(0, 8, 200)
    numbers[::5, 4] = np.nan
    return numbers.astype(np.float32)


def fitted(x: np.ndarray) -> dict[str, tuple[Any, str]]:
    """Return models by name, with the converter of each."""
    from lightgbm import LGBMClassifier, LGBMRegressor
    from sklearn.ensemble import HistGradientBoostingClassifier
    from xgboost import XGBClassifier, XGBRegressor

    number = np.where(x[:, 0] % 3 == 1, 2.0, -1.0) + x[:, 1] + np.nan_to_num(x[:, 4])
    two, three = (number > 0).astype(int), np.digitize(number, [-1, 1])
    light, extreme = {"n_estimators": 5, "num_leaves": 8, "verbose": -1}, {"n_estimators": 5, "max_depth": 3}
    return {
        "lightgbm_categories": (LGBMClassifier(**light).fit(x, two, categorical_feature=[0]), "lightgbm"),
        "lightgbm_classes": (LGBMClassifier(**light).fit(x, three), "lightgbm"),
        "lightgbm_numbers": (LGBMRegressor(**light).fit(x, number), "lightgbm"),
        "xgboost_two": (XGBClassifier(**extreme).fit(x, two), "xgboost"),
        "xgboost_classes": (XGBClassifier(**extreme).fit(x, three), "xgboost"),
        "xgboost_numbers": (XGBRegressor(**extreme).fit(x, number), "xgboost"),
        "histogram_two": (HistGradientBoostingClassifier(max_iter=5, max_leaf_nodes=8).fit(x, two), "sklearn"),
        "histogram_classes": (HistGradientBoostingClassifier(max_iter=5, max_leaf_nodes=8).fit(x, three), "sklearn"),
    }


def converted(model: Any, kind: str, x: np.ndarray) -> onnx.ModelProto:
    """Return a model as ONNX."""
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType
    from skl2onnx import to_onnx

    types = [("x", FloatTensorType([None, x.shape[1]]))]
    if kind == "lightgbm":
        return onnxmltools.convert_lightgbm(model, initial_types=types, zipmap=False, target_opset=15)
    if kind == "xgboost":
        return onnxmltools.convert_xgboost(model, initial_types=types, target_opset=15)
    return to_onnx(model, x[:1], options={"zipmap": False}, target_opset={"": 18, "ai.onnx.ml": 3})


def with_python_numbers(function: Any) -> Any:
    """Return onnx's make_attribute for lists of NumPy's integers, which skl2onnx 1.20 passes and onnx 1.23 rejects."""

    def make(key: str, value: Any, *rest: Any, **keywords: Any) -> Any:
        if isinstance(value, list):
            value = [number if isinstance(number, str) else np.asarray(number + 0).item() for number in value]
        return function(key, value, *rest, **keywords)

    return make


def main() -> None:
    """Write the models and the rows to the folder of this file."""
    folder = Path(__file__).parent
    onnx.helper.make_attribute = with_python_numbers(onnx.helper.make_attribute)
    x = rows()
    np.save(folder / "rows.npy", x)
    for name, (model, kind) in fitted(x).items():
        proto = converted(model, kind, x)
        proto.doc_string = ""
        onnx.save(proto, folder / f"{name}.onnx")


if __name__ == "__main__":
    main()
