"""The function of each operator as source text, from the catalog, modules that compile it at first use, and the names
that DirectMLX has for them.

The text has the annotations, defaults and docstring that callers of ``dmlgpu.ops.directml`` see; stubs for type
checkers have the same text without the body.
"""

from __future__ import annotations
import __future__

import functools
import linecache
import re
from collections.abc import Iterator, Mapping
from typing import Any

from dmlgpu.catalog import enums
from dmlgpu.catalog.defaults import ENTRIES
from dmlgpu.catalog.documentation import attribute_meaning, default_source, single_type, tensor_meaning, wrapped
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.loader import catalog
from dmlgpu.catalog.model import FieldKind, FieldSchema, OperatorSchema, class_name

REDUCED_AXES = {("REDUCE", "axes"), ("ARGMIN", "axes"), ("ARGMAX", "axes")}
"""Axes that default to all axes."""

SIZES = {
    "MAX_UNPOOLING": True,
    "DIAGONAL_MATRIX": True,
    "DIAGONAL_MATRIX1": False,
    "ONE_HOT": True,
    "FILL_VALUE_CONSTANT": True,
    "FILL_VALUE_SEQUENCE": True,
    "RANDOM_GENERATOR": True,
    "RESAMPLE": False,
    "RESAMPLE1": False,
    "RESAMPLE2": False,
    "RESAMPLE3": False,
    "RESAMPLE_GRAD": True,
    "RESAMPLE_GRAD1": True,
    "AVERAGE_POOLING_GRAD": True,
    "SLICE1": False,
    "SLICE_GRAD": True,
    "SPLIT": True,
    "ROI_ALIGN": True,
    "ROI_ALIGN1": True,
    "ROI_ALIGN_GRAD": False,
    "FOLD": True,
}
"""Operators whose first output has sizes that the caller chooses, and whether they are required."""

REQUIRED_TYPE = ("CAST", "DIAGONAL_MATRIX")
"""Operators whose output type is required."""

ON_REQUEST = ("ROI_ALIGN_GRAD.output_roi_gradient_tensor", "MULTIHEAD_ATTENTION")
"""Optional outputs that are computed only on request; graphs omit the others if nothing reads them."""


FRIENDLIER = ("argmax", "argmin", "dequantize", "gru", "lstm", "one_hot", "quantize", "split")
"""Names under which ``dmlgpu.ops`` has friendlier functions; ``__all__`` of ``ops.directml`` leaves them out."""


class FunctionSource:
    """The source of one operator's function on tensors, arrays and numbers.

    Attributes:
        schema: The operator.
        inputs, outputs, attributes: Its fields by kind.
    """

    def __init__(self, schema: OperatorSchema):
        self.schema = schema
        fields = schema.python_fields
        self.inputs = [field for field in fields if field.kind is FieldKind.INPUT]
        self.outputs = [field for field in fields if field.kind is FieldKind.OUTPUT]
        self.attributes = [field for field in fields if field.kind is FieldKind.ATTRIBUTE]

    # ---- parameters -------------------------------------------------------------------------------------------------

    @property
    def needs_graph(self) -> bool:
        """Whether all inputs are optional, so that a call may have no operand to take the graph from."""
        return all(field.optional for field in self.inputs) and len(self.inputs) < 2

    @property
    def result(self) -> str:
        """Name of the return type."""
        if len(self.outputs) > 1:
            return outputs_class(self.schema.name)
        return "tuple[Array, ...]" if self.outputs[0].is_array else "Array"

    def operands(self) -> Iterator[str]:
        """Yield the positional parameters."""
        for field in sorted(self.inputs, key=lambda field: field.optional):
            operand_type = "Sequence[Operand]" if field.is_array else "Operand"
            yield f"{parameter(field)}: {operand_type}{' | None = None' if field.optional else ''}"

    def keywords(self) -> Iterator[str]:
        """Yield the keyword parameters: required ones first."""
        attributes = [f"{field.python_name}: {self.annotation(field)}" for field in self.attributes]
        yield from (attribute for attribute in attributes if " = " not in attribute)
        sizes_type = "Sequence[Sequence[int]]" if self.outputs[0].is_array else "Sequence[int]"
        if SIZES.get(self.schema.name):
            yield f"output_sizes: {sizes_type}"
        requires_type = self.schema.name in REQUIRED_TYPE
        if self.typed_outputs and requires_type:
            yield "output_type: TypeLike"
        yield from (attribute for attribute in attributes if " = " in attribute)
        if SIZES.get(self.schema.name) is False:
            yield f"output_sizes: {sizes_type} | None = None"
        if self.typed_outputs and not requires_type:
            yield "output_type: TypeLike | None = None"
        for field in self.optional_outputs:
            on_request = f"{self.schema.name}.{field.python_name}".startswith(ON_REQUEST)
            yield f"{parameter(field)}: bool = {not on_request}"
        yield "device: Device | str | None = None"
        if self.needs_graph:
            yield "graph: Graph | None = None"
        yield "name: str | None = None"

    def single_type(self, field: FieldSchema) -> str:
        """Return the type of an attribute, or of its entries."""
        if field.type == "DML_TENSOR_DATA_TYPE":
            return "TypeLike"
        name = single_type(field)
        if field.type.startswith("DML_") or field.type == "OPERATOR_DESC":
            return f"{name} | str"
        return {"ScaleBias": "ScaleBias | tuple[float, float]", "Size2D": "Size2D | tuple[int, int]"}.get(name, name)

    def annotation(self, field: FieldSchema) -> str:
        """Return type and default of an attribute."""
        single = self.single_type(field)
        annotation = f"Sequence[{single}]" if field.is_array else single
        default = self.default(field)
        if default is None:
            return annotation
        return f"{annotation} | None = None" if default == "None" else f"{annotation} = {default}"

    def default(self, field: FieldSchema) -> str | None:
        """Return the source text of an attribute's default; None if it is required."""
        name = field.python_name
        if field.optional or name in ENTRIES or name == "scales" or (self.schema.name, name) in REDUCED_AXES:
            return "None"
        if field.type == "DML_TENSOR_DATA_TYPE" and self.inputs:
            return "None"
        return default_source(self.schema, field)

    @functools.cached_property
    def typed_outputs(self) -> list[FieldSchema]:
        """Outputs whose data type the caller may choose."""
        if any(field.type == "DML_TENSOR_DATA_TYPE" for field in self.attributes):
            return []
        required = {field.name for field in self.inputs if not field.optional}
        if not required and self.inputs:
            return []
        return [
            field
            for field in self.outputs
            if len(self.output_types(field)) > 1
            and not any(
                "DataType" in relation.same and field.name in relation.tensors and required & set(relation.tensors)
                for relation in self.schema.relations
            )
        ]

    def output_types(self, field: FieldSchema) -> tuple[DataType, ...]:
        """Return the data types of an output at the newest feature level."""
        return self.schema.support[max(self.schema.support)][field.name].types

    @property
    def default_type(self) -> str:
        """The data type of outputs by default, in words."""
        if self.schema.name == "REDUCE":
            return "the input's, UINT32 for ARGMIN and ARGMAX"
        if self.schema.name == "DEQUANTIZE":
            return "the scale's"
        types = self.output_types(self.typed_outputs[0])
        default = next(candidate.name for candidate in (DataType.UINT8, DataType.UINT32) if candidate in types)
        is_quantized = any("zero_point" in field.python_name or field.is_array for field in self.inputs)
        return f"the zero point's, {default} without one" if is_quantized else default

    @property
    def optional_outputs(self) -> list[FieldSchema]:
        """Outputs that may be absent."""
        return [field for field in self.outputs if field.optional]

    # ---- text -------------------------------------------------------------------------------------------------------

    @classmethod
    def listed(cls) -> list[str]:
        """Return ``__all__`` of the module of all functions: named tuples of outputs, then functions, each sorted."""
        sources = [cls(schema) for schema in catalog().values()]
        results = (source.result for source in sources if len(source.outputs) > 1)
        return [*sorted(results), *sorted({source.schema.stem for source in sources} - {*FRIENDLIER})]

    def stub(self) -> str:
        """Return the function for type checkers, after the class of its outputs."""
        return "\n".join([*self.outputs_class(), *self.head(), *self.docstring(), "    ..."])

    def source(self) -> str:
        """Return the function, after the class of its outputs."""
        lines = [*self.outputs_class(), *self.head(), *self.docstring(), *self.body()]
        return "\n".join(lines) + "\n"

    def outputs_class(self) -> Iterator[str]:
        """Yield the lines of the named tuple of several outputs."""
        if len(self.outputs) < 2:
            return
        yield f"class {self.result}(NamedTuple):"
        yield f'    """Outputs of ``{self.schema.stem}``; None for omitted ones."""'
        yield ""
        for field in self.outputs:
            yield f"    {parameter(field)}: Array{' | None' if field.optional else ''}"
        yield ""
        yield ""

    def head(self) -> Iterator[str]:
        """Yield the lines of the signature."""
        yield f"def {self.schema.stem}("
        yield from (f"    {operand}," for operand in self.operands())
        yield "    *,"
        yield from (f"    {keyword}," for keyword in self.keywords())
        yield f") -> {self.result}:"

    def docstring(self) -> Iterator[str]:
        """Yield the lines of the docstring."""
        yield from wrapped(f'"""{self.schema.summary}', 4)
        yield ""
        yield "    Args:"
        for field in self.inputs:
            yield from wrapped(f"{parameter(field)}: {_in_short(tensor_meaning(self.schema, field))}.", 8, 4)
        for field in self.attributes:
            yield from wrapped(f"{field.python_name}: {self.meaning(field)}.", 8, 4)
        if self.schema.name in SIZES:
            default = "" if SIZES[self.schema.name] else "; None where they follow from the rest"
            yield from wrapped(f"output_sizes: sizes of {parameter(self.outputs[0])}{default}.", 8, 4)
        if self.typed_outputs:
            names = " and ".join(parameter(field) for field in self.typed_outputs)
            types = ", ".join(data_type.name for data_type in self.output_types(self.typed_outputs[0]))
            default = "" if self.schema.name in REQUIRED_TYPE else f"; None for {self.default_type}"
            yield from wrapped(f"output_type: type of {names}: {types}{default}.", 8, 4)
        for field in self.optional_outputs:
            yield f"        {parameter(field)}: whether it is computed."
        yield "        device: where arrays are computed; None for the tensors' device, or ``default_device()``."
        if self.needs_graph:
            yield "        graph: the graph to add a node to; None for that of the tensors, or to compute at once."
        yield "        name: of the node in a graph, for messages, labels and pictures."
        yield '    """'

    def meaning(self, field: FieldSchema) -> str:
        """Return the description of an attribute, with the meaning of None."""
        name = field.python_name
        text = _in_short(attribute_meaning(self.schema, field))
        if name in ENTRIES and not field.optional:
            return f"{text}; None for {ENTRIES[name]:g} everywhere"
        if name == "axes" and self.default(field) == "None":
            return f"{text}; None for all"
        if name == "scales":
            return f"{text}; None for those that lead to output_sizes"
        if field.type == "DML_TENSOR_DATA_TYPE":
            return f"{text}, the output's{'; None for that of the input' * bool(self.inputs)}"
        return text

    def body(self) -> Iterator[str]:
        """Yield the call of ``call_op``."""
        values = [f"'{field.python_name}': {parameter(field)}" for field in self.inputs]
        values += [f"'{field.python_name}': {field.python_name}" for field in self.attributes]
        arguments = [f"descs.{self.schema.class_name}", f"{{{', '.join(values)}}}", "device=device"]
        arguments += ["graph=graph", "name=name"] if self.needs_graph else ["name=name"]
        if self.typed_outputs:
            types = (f"'{field.python_name}': output_type" for field in self.typed_outputs)
            arguments.append(f"types={{{', '.join(types)}}}")
        if self.schema.name in SIZES:
            arguments.append(f"sizes={{'{self.outputs[0].python_name}': output_sizes}}")
        if self.optional_outputs:
            requested = (f"'{field.python_name}': {parameter(field)}" for field in self.optional_outputs)
            arguments.append(f"requested={{{', '.join(requested)}}}")
        call = f"call_op({', '.join(arguments)})"
        if len(self.outputs) > 1:
            yield f"    return {self.result}(*{call})"
        else:
            yield f"    return {call}{'' if self.outputs[0].is_array else '[0]'}"


def parameter(field: FieldSchema) -> str:
    """Return the name of a tensor's parameter: ``input`` for ``input_tensor``."""
    return field.python_name.replace("_tensors", "s").removesuffix("_tensor")


def _in_short(text: str) -> str:
    """Return a text with tensors named as parameters are."""
    return re.sub(r"\b([a-z_]+)_tensor(s?)\b", r"\1\2", text)


def outputs_class(operator: str) -> str:
    """Return the name of the named tuple of an operator's outputs: ``TopK1Outputs``."""
    return f"{class_name(operator)}Outputs"


class FunctionModule:
    """The functions of a module, compiled when they are first used.

    Args:
        name: The module's name, under which functions are found.
        members: The module's globals, in which compiled functions are stored.
        names: Names in the source, besides enumerations.
    """

    def __init__(self, name: str, members: dict[str, Any], names: Mapping[str, Any]):
        self._members = members
        public = {name: value for name, value in vars(enums).items() if not name.startswith("_")}
        self._globals = {**public, **names, "__name__": name}

    def get(self, name: str) -> Any:
        """Return a function or a named tuple of outputs; the module's ``__getattr__``.

        Raises:
            AttributeError: If there is no operator of this name.
        """
        if name == "__all__":
            return FunctionSource.listed()
        if name in self._operators:
            self._compile(catalog()[self._operators[name]])
            if name in self._members:
                return self._members[name]
        raise AttributeError(f"module {self._globals['__name__']!r} has no attribute {name!r}")

    def names(self) -> list[str]:
        """Return all names of the module, of functions that are not compiled yet as well; its ``__dir__``."""
        functions = (schema.stem for schema in catalog().values())
        return sorted({*self._members, *FunctionSource.listed(), *functions})

    @functools.cached_property
    def _operators(self) -> Mapping[str, str]:
        return {name: operator for operator in catalog() for name in (operator.lower(), outputs_class(operator))}

    def _compile(self, schema: OperatorSchema) -> None:
        text = FunctionSource(schema).source()
        file = f"<{self._globals['__name__']}.{schema.stem}>"
        code = compile(text, file, "exec", __future__.annotations.compiler_flag, dont_inherit=True)
        compiled: dict[str, Any] = {}
        exec(code, self._globals, compiled)
        linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file  # used by tracebacks and inspect
        for name, value in compiled.items():  # another thread may have been first: its objects stay
            self._globals.setdefault(name, self._members.setdefault(name, value))


# ---- DirectMLX's names ----------------------------------------------------------------------------------------------

_ELEMENT_WISE = """
abs acos acosh asin asinh atan atan_yx atanh bit_and bit_count bit_not bit_or bit_shift_left bit_shift_right bit_xor
ceil cos cosh dequantize_linear difference_square divide erf exp floor identity is_nan log logical_and logical_not
logical_or logical_xor max mean min modulus_floor modulus_truncate multiply negate quantize_linear recip sign sin sinh
sqrt subtract tan tanh
"""
"""Names of ELEMENT_WISE operators without that prefix."""

_SAME = """
activation_celu activation_elu activation_gelu activation_hard_sigmoid activation_identity activation_leaky_relu
activation_parameterized_relu activation_parametric_softplus activation_relu activation_scaled_elu
activation_scaled_tanh activation_shrink activation_sigmoid activation_softplus activation_softsign activation_tanh
activation_thresholded_relu batch_normalization batch_normalization_grad batch_normalization_training
batch_normalization_training_grad convolution convolution_integer cumulative_product cumulative_summation dequantize
gather gather_elements gemm gru local_response_normalization quantized_linear_convolution reverse_subsequences
roi_align_grad scatter_elements scatter_nd upsample_2d value_scale_2d
"""
"""Names of the operators themselves."""

_OTHERS = {
    "clip_grad": "element_wise_clip_grad1",
    "equals": "element_wise_logical_equals",
    "gather_nd": "gather_nd1",
    "greater_than": "element_wise_logical_greater_than",
    "greater_than_or_equal": "element_wise_logical_greater_than_or_equal",
    "if_": "element_wise_if",
    "less_than": "element_wise_logical_less_than",
    "less_than_or_equal": "element_wise_logical_less_than_or_equal",
    "mean_variance_normalization": "mean_variance_normalization2",
    "non_zero_coordinates": "nonzero_coordinates",
    "resample_grad": "resample_grad1",
    "roi_align": "roi_align1",
}
"""Operators by other names."""

DIRECTMLX_NAMES = {
    **{name: f"element_wise_{name}" for name in _ELEMENT_WISE.split()},
    **{name: name for name in _SAME.split()},
    **_OTHERS,
}
"""DirectMLX's names of functions of ``ops.directml``."""

_WINDOW = "input, window_size, strides, start_padding, end_padding, dilations"

DIRECTMLX_PARAMETERS = {
    "activation_linear": ("activation_linear", "input, alpha, beta"),
    "average_pooling": ("average_pooling1", f"{_WINDOW}, include_padding=False"),
    "cast": ("cast", "input, data_type: output_type"),
    "clip": ("element_wise_clip1", "input, min, max, scale_bias"),
    "depth_to_space": ("depth_to_space1", "input, block_size, order"),
    "fill_value_constant": (
        "fill_value_constant",
        "graph, sizes: output_sizes, data_type: value_data_type, value",
    ),
    "fill_value_sequence": (
        "fill_value_sequence",
        "graph, sizes: output_sizes, data_type: value_data_type, start: value_start, delta: value_delta",
    ),
    "is_infinity": ("element_wise_is_infinity", "input, mode: infinity_mode"),
    "join": ("join", "inputs, axis"),
    "max_pooling": ("max_pooling2", f"{_WINDOW}, output_indices=False"),
    "padding": ("padding1", "input, mode: padding_mode, value: padding_value, start_padding, end_padding"),
    "random_generator": ("random_generator", "input_state, sizes: output_sizes, output_state"),
    "reduce": ("reduce", "input, function, axes, output_type"),
    "round": ("element_wise_round", "input, mode: rounding_mode"),
    "slice": (
        "slice1",
        "input, offsets: input_window_offsets, sizes: input_window_sizes, strides: input_window_strides",
    ),
    "slice_grad": (
        "slice_grad",
        "input_gradient, output_sizes, offsets: input_window_offsets, sizes: input_window_sizes, "
        "strides: input_window_strides",
    ),
    "space_to_depth": ("space_to_depth1", "input, block_size, order"),
    "threshold": ("element_wise_threshold", "input, min, scale_bias"),
    "tile": ("tile", "input, repeats"),
    "top_k": ("top_k1", "input, axis, k, axis_direction=AxisDirection.DECREASING"),
}
"""Operators with positional parameters: the function, and its parameters, ``name: name there`` if these differ.

DirectMLX's ``top_k`` puts the size ``k`` on the last dimension; here it is on the axis.
"""


def listed_parameters(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, name in ``ops.directml`` and default (or "") of each parameter in an entry of
    DIRECTMLX_PARAMETERS."""
    for entry in text.split(", "):
        names, _, default = entry.partition("=")
        name, _, target = names.partition(": ")
        yield name, target or name, default
