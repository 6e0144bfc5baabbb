"""Defaults of attributes. DirectML's interface has none, so these are the recommendations of its documentation, and the
defaults of DirectMLX, PyDirectML and ONNX. Shared by descriptions, ``dmlgpu.ops.directml`` and ``dmlgpu.ops``."""

from __future__ import annotations

from collections.abc import Mapping

from dmlgpu.catalog.model import FieldSchema, OperatorSchema

ENTRIES: Mapping[str, float] = {
    "strides": 1,
    "dilations": 1,
    "input_window_strides": 1,
    "start_padding": 0,
    "end_padding": 0,
    "output_padding": 0,
    "input_window_offsets": 0,
    "offsets": 0,
    "input_pixel_offsets": 0.5,
    "output_pixel_offsets": -0.5,
}
"""Default of each entry of an array, by field."""

VALUES: Mapping[str, float | str] = {
    "mode": "CROSS_CORRELATION",
    "trans_a": "NONE",
    "trans_b": "NONE",
    "group_count": 1,
    "include_padding": False,
    "axis_direction": "INCREASING",
    "rounding_direction": "INCREASING",
    "has_exclusive_sum": False,
    "has_exclusive_product": False,
    "order": "DEPTH_COLUMN_ROW",
    "rounding_mode": "HALVES_TO_NEAREST_EVEN",
    "infinity_mode": "EITHER",
    "type": "PHILOX_4X32_10",
    "padding_mode": "CONSTANT",
    "padding_value": 0,
    "batch_dimension_count": 0,
    "antialiased": False,
    "input_pixel_offset": 0.5,
    "output_pixel_offset": -0.5,
    "spatial_scale": 1.0,
    "spatial_scale_x": 1.0,
    "spatial_scale_y": 1.0,
    "out_of_bounds_input_value": 0.0,
    "align_regions_to_corners": False,
    "normalize_variance": True,
    "use_mean": True,
    "use_variance": True,
    "mask_type": "NONE",
    "clip_threshold": 0.0,
    "use_clip_threshold": False,
    "couple_input_forget": False,
}
"""Single values by field; enumerations by the member's name."""

VALUES_OF: Mapping[tuple[str, str], float | str] = {
    ("CONVOLUTION", "direction"): "FORWARD",
    ("TOP_K1", "axis_direction"): "DECREASING",
    ("GEMM", "alpha"): 1.0,
    ("GEMM", "beta"): 1.0,
    ("ACTIVATION_SCALED_ELU", "alpha"): 1.67326319217681884765625,
    ("ACTIVATION_SCALED_ELU", "gamma"): 1.05070102214813232421875,
    **{(operator, "direction"): "FORWARD" for operator in ("RNN", "LSTM", "GRU")},
    **{
        (operator, "epsilon"): 1e-5
        for operator in (
            "BATCH_NORMALIZATION",
            "BATCH_NORMALIZATION_TRAINING",
            "BATCH_NORMALIZATION_TRAINING_GRAD",
            "LP_NORMALIZATION",
            "MEAN_VARIANCE_NORMALIZATION",
            "MEAN_VARIANCE_NORMALIZATION1",
            "MEAN_VARIANCE_NORMALIZATION2",
        )
    },
    **{
        (operator, field): value
        for operator in ("LOCAL_RESPONSE_NORMALIZATION", "LOCAL_RESPONSE_NORMALIZATION_GRAD")
        for field, value in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    },
}
"""Defaults of single operators, besides those in the catalog (``OperatorSchema.defaults``)."""

WINDOWS = ("window_size", "window_sizes", "sizes", "input_window_sizes")
"""Fields whose length is the rank of a window, and thus the length of related arrays."""


def default_value(schema: OperatorSchema, field: FieldSchema) -> float | str | None:
    """Return the default of an attribute, or of each entry of an array; None if it is required."""
    name = field.python_name
    if field.is_array:
        return ENTRIES.get(name)
    value = VALUES_OF.get((schema.name, name))
    if value is None:
        value = schema.defaults.get(field.name)
    return VALUES.get(name) if value is None else value


def length(schema: OperatorSchema, field: FieldSchema) -> tuple[str, int]:
    """Return the source of an array's length: another array, or a tensor and its number of dimensions without entry."""
    names = [field.python_name for field in schema.python_fields]
    window = next((name for name in WINDOWS if name in names and name != field.python_name), None)
    if window is not None:
        return window, 0
    rule = schema.counts[field.count_field or ""]
    return schema.field(rule.tensor or "").python_name, rule.less
