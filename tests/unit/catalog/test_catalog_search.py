"""Finding operators by the names that other libraries have for them."""

from __future__ import annotations

import numpy as np
import pytest

from dmlgpu.catalog import catalog, operator
from dmlgpu.catalog.search import LONGEST, SOURCES, find, near, newest, synonyms, tasks
from dmlgpu.common.errors import InvalidArgument

onnx_defs = pytest.importorskip("onnx.defs", reason="the names of ONNX are the onnx package's")

WITHOUT_OPERATOR = """
    AffineGrid BitCast BlackmanWindow CenterCropPad Compress ConcatFromSequence Constant DFT DeformConv Det Flatten
    GridSample HammingWindow HannWindow If ImageDecoder LinearAttention Loop MelWeightMatrix Mish Multinomial
    NegativeLogLikelihoodLoss NonMaxSuppression Optional OptionalGetElement OptionalHasElement RegexFullMatch
    Reshape RotaryEmbedding STFT Scan SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert
    SequenceLength SequenceMap Shape Size SoftmaxCrossEntropyLoss SplitToSequence Squeeze StringConcat
    StringNormalizer StringSplit SwiGLU TfIdfVectorizer Unique Unsqueeze
"""
"""Operators of ONNX that DirectML lacks: composed of several, without data to compute, of strings and sequences."""

WEBNN = """
    abs add argMax argMin averagePool2d batchNormalization cast ceil clamp concat conv2d convTranspose2d cos
    cumulativeSum dequantizeLinear div elu equal erf exp expand floor gather gatherElements gatherND gelu gemm
    greater greaterOrEqual gru gruCell hardSigmoid hardSwish identity instanceNormalization isInfinite isNaN
    l2Pool2d layerNormalization leakyRelu lesser lesserOrEqual linear log logicalAnd logicalNot logicalOr logicalXor
    lstm lstmCell matmul max maxPool2d min mul neg notEqual pad pow prelu quantizeLinear reciprocal reduceL1
    reduceL2 reduceLogSum reduceLogSumExp reduceMax reduceMean reduceMin reduceProduct reduceSum reduceSumSquare
    relu resample2d reverse roundEven scatterElements scatterND sigmoid sign sin slice softmax softplus softsign
    split sqrt sub tan tanh tile transpose triangular where
"""
"""Methods of MLGraphBuilder that create operators with data to compute."""


def names_of(source: str) -> set[str]:
    return {name for known in synonyms().values() for name in known.of(source)}


# ---- the table


def test_every_operator_has_a_task_and_every_task_has_operators():
    assert synonyms().keys() == catalog().keys()
    assert {known.task for known in synonyms().values()} == set(tasks())


def test_superseded_operators_have_the_names_of_the_newest():
    assert newest("RESAMPLE") == newest("RESAMPLE3") == "RESAMPLE3"
    assert synonyms()["MAX_POOLING"] == synonyms()["MAX_POOLING2"]


def test_no_operator_has_a_name_twice():
    for operator_name, known in synonyms().items():
        for source in SOURCES:
            names = known.of(source)
            assert len(set(names)) == len(names), (operator_name, source)


def test_every_operator_of_onnx_is_found_or_has_none():
    """Operators of the newest opset, and no unknown ones."""
    current = {schema.name for schema in onnx_defs.get_all_schemas() if schema.domain == "" and not schema.deprecated}
    ever = {schema.name for schema in onnx_defs.get_all_schemas_with_history()}
    assert names_of("onnx") <= ever
    assert current - names_of("onnx") <= set(WITHOUT_OPERATOR.split())
    assert names_of("onnx").isdisjoint(WITHOUT_OPERATOR.split())


def test_every_method_of_webnn_is_found():
    assert names_of("webnn") == set(WEBNN.split())


def test_numpy_has_the_functions():
    def exists(name: str) -> bool:
        place: object = np
        for part in name.split("."):
            place = getattr(place, part, None)
        return callable(place)

    # Methods of arrays; functions of NumPy 2.0 and later, which older ones lack.
    later = {"cumulative_sum", "cumulative_prod", "vecdot", "matvec", "unstack", "bitwise_count", "concat"}
    later |= {"asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh", "permute_dims", "bitwise_invert"}
    later |= {"bitwise_left_shift", "bitwise_right_shift", "astype"}
    assert {name for name in names_of("numpy") if not exists(name)} <= later


# ---- searching


@pytest.mark.parametrize(
    ("word", "first"),
    [
        ("conv", ["CONVOLUTION"]),
        ("layernorm", ["MEAN_VARIANCE_NORMALIZATION2"]),
        ("layer_norm", ["MEAN_VARIANCE_NORMALIZATION2"]),
        ("torch.nn.functional.layer_norm", ["MEAN_VARIANCE_NORMALIZATION2"]),
        ("batch norm", ["BATCH_NORMALIZATION"]),
        ("matmul", ["GEMM"]),
        ("bmm", ["GEMM"]),
        ("resize", ["RESAMPLE3"]),
        ("LSTM", ["LSTM"]),
        ("argmax", ["ARGMAX"]),
        ("attention", ["MULTIHEAD_ATTENTION1", "MULTIHEAD_ATTENTION"]),
        ("where", ["ELEMENT_WISE_IF", "NONZERO_COORDINATES"]),
        ("np.where", ["ELEMENT_WISE_IF", "NONZERO_COORDINATES"]),
        ("clamp", ["ELEMENT_WISE_CLIP1", "ELEMENT_WISE_CLIP"]),
        ("PReLU", ["ACTIVATION_PARAMETERIZED_RELU"]),
        ("cumsum", ["CUMULATIVE_SUMMATION"]),
        ("softmax", ["ACTIVATION_SOFTMAX1", "ACTIVATION_SOFTMAX", "ACTIVATION_LOG_SOFTMAX1"]),
        ("add", ["ELEMENT_WISE_ADD", "ELEMENT_WISE_ADD1"]),
        ("max", ["ELEMENT_WISE_MAX", "REDUCE", "MAX_POOLING2"]),
        ("sum", ["REDUCE", "ELEMENT_WISE_ADD"]),
        ("gathernd1", ["GATHER_ND1"]),
        ("scatter", ["SCATTER_ELEMENTS"]),
        ("coordinates", ["NONZERO_COORDINATES"]),
        ("peepholes", ["LSTM"]),  # stands in the summary only
    ],
)
def test_the_best_match_comes_first(word, first):
    assert [match.operator.name for match in find(word)][: len(first)] == first


def test_results_have_the_matching_names():
    assert find("layer_norm")[0].names == ("PyTorch layer_norm", "PyTorch nn.LayerNorm")
    assert find("GlobalAveragePool")[0].names == ("ONNX GlobalAveragePool",)


@pytest.mark.parametrize("word", ["", "  ", "_", "zzz", "x" * (LONGEST + 1)])
def test_unrelated_words_find_nothing(word):
    assert find(word) == () and near(word) == ()


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("matmul", "DirectML has no operator 'matmul'; its name here is GEMM"),
        ("where", "DirectML has no operator 'where'; its name here is ELEMENT_WISE_IF or NONZERO_COORDINATES"),
        ("sofmax", "DirectML has no operator 'sofmax'; similar names: ACTIVATION_SOFTMAX1, ACTIVATION_SOFTMAX"),
        ("layrnorm", "MEAN_VARIANCE_NORMALIZATION2"),
        ("zzz", "DirectML has no operator 'zzz'"),
    ],
)
def test_a_name_that_directml_lacks(word, message):
    with pytest.raises(InvalidArgument) as rejection:
        operator(word)
    assert message in str(rejection.value)
    assert str(rejection.value).startswith("DirectML has no operator")
