"""Cases of an operator: the source of all tests of it.

A case is a pure function of its ``Key``, and its name spells the key:

    gather_nd1-float16-int64-2x3x4-permuted-negative-s17
    operator   types         sizes layout   variant  seed

Everything else (axes, windows, counts, contents) is drawn from generators seeded with the name. So cases can be listed,
sampled, shrunk by Hypothesis and rebuilt from their names alone. Examples of DirectML's documentation are named
``gather_nd1-example1``.
"""

from __future__ import annotations

import functools
import itertools
import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from dmlgpu.catalog import enums, loader
from dmlgpu.catalog.enums import DataType, FeatureLevel, TensorFlags
from dmlgpu.catalog.loader import OperatorSchema
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.overlap import has_overlap
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS, TensorDesc
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.conformance.cases.case import Array, Arrays, Case
from dmlgpu.conformance.cases.discriminating import DiscriminatingInputs, with_discriminating
from dmlgpu.conformance.cases.keys import (
    INPLACE,
    OWNED,
    PLAIN,
    PROFILES,
    Combination,
    Key,
    SizesList,
    Types,
    covering,
    quick_names,
)
from dmlgpu.conformance.cases.layouts import TensorLayout, draw_sizes, draw_tensor
from dmlgpu.conformance.cases.tolerance import CORRECTLY_ROUNDED, EXACT


class OperatorCases(ABC):
    """The cases of one operator.

    Attributes:
        desc_class: Its description.
        type_fields: The tensors that a case's types belong to; none stands for the operator's first one.
        variant_names: What can be special about a case of any types.
        standard_count: Number of its combinations in the standard profile.
        candidates: Among how many the next one that it takes is chosen. More cover everything with fewer keys.
        discriminating: Inputs that distinguish the operator from nearly correct formulas; each case has some of them.
        large_sizes: Sizes that only the full profile runs, above 65,535 workgroups.
        long_sizes: Sizes of long axes, in the standard profile too.
        added_keys: Further keys of the standard profile.
    """

    desc_class: type[OperatorDesc]
    type_fields: ClassVar[tuple[str, ...]] = ()
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN,)
    discriminating: ClassVar[tuple[DiscriminatingInputs, ...]] = ()
    standard_count: ClassVar[int] = 60
    candidates: ClassVar[int] = 24
    large_sizes: ClassVar[SizesList] = ((65537, 129),)
    long_sizes: ClassVar[SizesList] = ()
    added_keys: ClassVar[tuple[Key, ...]] = ()
    random_count: ClassVar[int] = 100
    ranks: ClassVar[tuple[int, ...]] = tuple(range(1, MAX_DIMENSIONS + 1))
    """Dimension counts of the (first) input."""

    def __init__(self, desc_class: type[OperatorDesc], **attributes: Any):
        self.desc_class = desc_class
        vars(self).update(attributes)

    # ---- Per-operator hooks -----------------------------------------------------------------------------------------

    @property
    def types(self) -> tuple[Types, ...]:
        """All combinations of data types, in the order of the name: those that the newest feature level allows."""
        table = self.schema.support_at(max(FeatureLevel))
        fields = self.type_fields or (self.schema.tensor_fields[0].name,)
        return tuple(itertools.product(*(table[field].types for field in fields)))

    def variants(self, types: Types) -> tuple[str, ...]:
        """Variants of a case with these types, in addition to OWNED and INPLACE."""
        return self.variant_names

    def chosen_keys(self) -> Iterable[Key]:
        """Keys whose variants nothing else has; ``standard_keys`` yields them, too."""
        return ()

    def discriminating_of(self, key: Key) -> tuple[DiscriminatingInputs, ...]:
        """Return the numbers that discriminate the operator from others, of those that a case of this key can check."""
        return self.discriminating

    @abstractmethod
    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        """Build the case of a key; ``rng`` draws the parts of the description that the key leaves open."""

    # ---- Derived cases ---------------------------------------------------------------------------------------------

    @property
    def stem(self) -> str:
        """The operator's name in lower case."""
        return self.desc_class.operator.lower()

    @functools.cached_property
    def schema(self) -> loader.OperatorSchema:
        """The operator's entry in the catalog."""
        return loader.operator(self.desc_class.operator)

    def allowed_variants(self, types: Types, layout: TensorLayout) -> tuple[str, ...]:
        """Return all variants that go with the types and the layout."""
        common = [*self.variants(types), *([OWNED] if self.schema.owned_inputs else [])]
        if self.schema.in_place and layout not in (TensorLayout.BROADCAST, TensorLayout.MIXED):
            common.append(INPLACE)
        return tuple(common)

    @functools.cache  # noqa: B019 - bounded by the catalog: one object per operator, for good
    def names(self, profile: str) -> tuple[str, ...]:
        """Names of the cases of a profile, one of PROFILES; building the cases can wait.

        Raises:
            InvalidArgument: For another profile.
        """
        if profile not in PROFILES:
            raise InvalidArgument(f"profile must be one of {', '.join(PROFILES)}, got {profile!r}")
        if profile == "quick":
            return quick_names().get(self.stem, ())
        keys = self.standard_keys() if profile == "standard" else self.full_keys()
        examples = (f"{self.stem}-example{index}" for index in documented_examples(self.schema))
        return (*examples, *dict.fromkeys(f"{self.stem}-{key}" for key in keys))

    def case(self, name: str) -> Case:
        """Return the case with a name.

        Raises:
            InvalidArgument: If the name is not one of this operator's.
        """
        stem, _, rest = name.partition("-")
        if stem != self.stem:
            raise InvalidArgument(f"{name!r} names no case of {self.desc_class.operator}")
        if rest.startswith("example") and rest.removeprefix("example").isdecimal():
            return self._example(name, int(rest.removeprefix("example")))
        return self.case_of(self._parse(name, rest))

    def uniform_tensors(self, key: Key, rng: np.random.Generator) -> dict[str, Any]:
        """Return all tensors by field, of the key's first type and sizes."""
        fields = self.schema.tensor_fields
        tensors = draw_tensors(key, rng, *((key.types[0], key.sizes, field.kind == "output") for field in fields))
        return dict(zip((field.python_name for field in fields), tensors, strict=True))

    def case_of(self, key: Key) -> Case:
        """Return the case of a key."""
        name = f"{self.stem}-{key}"
        rng = np.random.default_rng([zlib.crc32(name.encode()), 0])
        case = with_discriminating(self.build(key, name, rng), self.discriminating_of(key))
        if key.variant == OWNED:
            return with_owned_input(case, rng)
        return _in_place(case, rng) if key.variant == INPLACE else case

    # ---- Keys ------------------------------------------------------------------------------------------------------

    def full_keys(self) -> Iterator[Key]:
        """Return the keys of the full profile: the standard keys, every combination, random ones, large ones."""
        yield from self.standard_keys()
        yield from map(self.key_of, self.combinations())
        yield from (self._draw(seed) for seed in range(1, self.random_count + 1))
        # Ties are rare in FLOAT32, so the first large case tells a wrong place from a right one.
        by_chance = np.random.default_rng(zlib.crc32(self.stem.encode()))
        floats = [types for types in self.types if types[0] is DataType.FLOAT32]
        for index, sizes in enumerate(self.large_sizes):
            choices = floats if floats and not index else self.types
            yield Key(choices[by_chance.integers(len(choices))], sizes, TensorLayout.PACKED)

    def standard_keys(self) -> Iterator[Key]:
        """Return the keys of the standard profile: a selection that covers every property of the combinations, and long
        axes."""
        yield from self._selection
        yield from (
            Key(types, sizes, TensorLayout.PACKED) for sizes, types in zip(self.long_sizes, self._cycle(), strict=False)
        )
        yield from self.added_keys

    @functools.cached_property
    def _selection(self) -> tuple[Key, ...]:
        """Combinations that cover every property; the first few of them cover most."""
        chosen = covering(list(self.combinations()), self.candidates)
        return tuple(self.key_of(combination) for combination in itertools.islice(chosen, self.standard_count))

    def _cycle(self) -> Iterator[Types]:
        return itertools.cycle(self.types)

    def combinations(self) -> Iterator[Combination]:
        """Yield every combination of types, layout and variant, with all ranks in turn."""
        ranks = itertools.cycle(self.ranks)
        for types, layout in itertools.product(self.types, TensorLayout):
            for variant in self.allowed_variants(types, layout):
                yield Combination(types, layout, variant, next(ranks))

    def key_of(self, combination: Combination) -> Key:
        """Return the key of a combination, with sizes drawn for its rank."""
        types, layout, variant = combination.types, combination.layout, combination.variant
        rng = np.random.default_rng(zlib.crc32(f"{self.stem}-{types}-{layout}-{variant}".encode()))
        return Key(types, draw_sizes(rng, combination.rank), layout, variant)

    def _draw(self, seed: int) -> Key:
        rng = np.random.default_rng([zlib.crc32(self.stem.encode()), seed])
        types = self.types[rng.integers(len(self.types))]
        layout = list(TensorLayout)[rng.integers(len(TensorLayout))]
        variants = self.allowed_variants(types, layout)
        sizes = draw_sizes(rng, int(rng.choice(self.ranks)), most=20000)
        return Key(types, sizes, layout, variants[rng.integers(len(variants))], seed)

    def _parse(self, name: str, rest: str) -> Key:
        count = len(self.types[0])
        parts = rest.split("-")
        try:
            types = tuple(DataType[part.upper()] for part in parts[:count])
            sizes = tuple(int(part) for part in parts[count].split("x"))
            layout, seed = TensorLayout(parts[count + 1]), int(parts[-1].removeprefix("s"))
            variant = "-".join(parts[count + 2 : -1])
        except (KeyError, ValueError, IndexError) as error:
            raise InvalidArgument(f"{name!r} names no case of {self.desc_class.operator}") from error
        key = Key(types, sizes, layout, variant, seed)
        is_variant = variant in self.allowed_variants(types, layout) or key in self.chosen_keys()
        if types not in self.types or not is_variant or name != f"{self.stem}-{key}":
            raise InvalidArgument(f"{name!r} names no case of {self.desc_class.operator}")
        return key

    # ---- Examples of the pages -------------------------------------------------------------------------------------

    def _example(self, name: str, index: int) -> Case:
        """Return the documented case with an index, from 1."""
        examples = documented_examples(self.schema)
        if index not in examples:
            raise InvalidArgument(f"{name!r}: DirectML's page has {len(examples)} examples")
        desc, inputs, outputs = read_example(self.desc_class, self.schema, examples[index])
        return self.documented(Case(name, desc, lambda rng: inputs, self.tolerance(desc), outputs))

    def tolerance(self, desc: OperatorDesc) -> Any:
        """Return tolerance of the documented examples; their numbers are small integers or printed in full."""
        moves = desc.outputs[0].tensor is not None and not desc.outputs[0].tensor.data_type.is_float
        return EXACT if moves else CORRECTLY_ROUNDED

    def documented(self, case: Case) -> Case:
        """Hook: additional properties of a documented case."""
        return case


Cases = TypeVar("Cases", bound=type[OperatorCases])

REGISTRY: dict[str, OperatorCases] = {}
"""The case object of each operator, by stem."""


def cases(desc_class: type[OperatorDesc]) -> Callable[[Cases], Cases]:
    """Register a subclass of ``OperatorCases`` as the cases of an operator."""

    def decorate(family: Cases) -> Cases:
        register(family, desc_class)
        return family

    return decorate


def register(family: type[OperatorCases], *desc_classes: type[OperatorDesc], **attributes: Any) -> None:
    """Register the cases of operators that differ from each other in attributes of their class of cases only.

    Args:
        family: The class of cases.
        desc_classes: The operators' descriptions.
        attributes: Attributes of the class, with values for these operators.
    """
    for desc_class in desc_classes:
        REGISTRY[desc_class.operator.lower()] = family(desc_class, **attributes)


def draw_axes(key: Key, rng: np.random.Generator) -> tuple[int, ...]:
    """Return a set of axes, in any order: those that the variant names, the longest of a large tensor, or random."""
    rank = len(key.sizes)
    match key.variant:
        case "inner":
            return (rank - 1,)
        case "outer":
            return (0,)
        case "every":
            return tuple(range(rank))
    if len(key.sizes) <= 3 and math.prod(key.sizes) > 20000:
        return (int(np.argmax(key.sizes)),)
    return tuple(int(axis) for axis in rng.permutation(rank)[: rng.integers(1, rank + 1)])


def draw_tensors(
    key: Key, rng: np.random.Generator, *tensors: tuple[DataType, Iterable[int], bool]
) -> tuple[TensorDesc, ...]:
    """Return tensor descriptions in the key's layout, for (type, sizes, whether it is an output) each."""
    return tuple(
        draw_tensor(data_type, tuple(int(size) for size in sizes), key.layout, rng, output=output)
        for data_type, sizes, output in tensors
    )


def with_owned_input(case: Case, rng: np.random.Generator) -> Case:
    """Return the case with one of the inputs that are there handed over at initialization."""
    slots = [slot for slot in case.desc.inputs if slot.tensor is not None]
    slot = slots[int(rng.integers(len(slots)))]
    assert slot.tensor is not None
    owned: Any = replace(slot.tensor, flags=TensorFlags.OWNED_BY_DML)
    if slot.position is not None:
        tensors = getattr(case.desc, slot.field)
        owned = (*tensors[: slot.position], owned, *tensors[slot.position + 1 :])
    return replace(case, desc=case.desc.replace(**{slot.field: owned}))


def _in_place(case: Case, rng: np.random.Generator) -> Case:
    """Return the case with its output in an input's buffer, and so in its layout."""
    output = case.desc.outputs[0].tensor
    assert output is not None
    candidates = [
        index
        for index, slot in enumerate(case.desc.inputs)
        if slot.tensor is not None and (slot.tensor.data_type, slot.tensor.sizes) == (output.data_type, output.sizes)
    ]
    index = candidates[int(rng.integers(len(candidates)))]
    tensor = case.desc.inputs[index].tensor
    assert tensor is not None and not has_overlap(tensor.sizes, tensor.element_strides)
    return replace(case, desc=case.desc.replace(**{case.desc.outputs[0].field: tensor}), in_place=index)


# ---- the examples that DirectML's pages print ------------------------------------------------------------------------


def documented_examples(schema: OperatorSchema) -> dict[int, Any]:
    """Return the examples by index, from 1, that show the operator at all: BIT_XOR's page prints one of another
    operator."""
    required = {field.name for field in schema.tensor_fields if not field.optional}
    numbered = enumerate(schema.examples, start=1)
    return {index: example for index, example in numbered if required <= _entries(example).keys()}


def read_example(
    desc_class: type[OperatorDesc], schema: OperatorSchema, example: Any
) -> tuple[OperatorDesc, Arrays, tuple[Array, ...]]:
    """Description, inputs and outputs of an example; anything for absent outputs."""
    entries = _entries(example)
    attributes = entries.pop("attributes", example["attributes"])
    tensors = {field: _tensors(entry) for field, entry in entries.items()}
    fields: dict[str, Any] = {}
    for field in schema.python_fields:
        if field.name in tensors:
            fields[field.python_name] = tensors[field.name][0]
        elif field.name in attributes:
            fields[field.python_name] = _attribute(field.type, attributes[field.name])
    desc = desc_class(**fields)
    arrays = {
        (field.python_name, position): array
        for field in schema.tensor_fields
        if field.name in tensors
        for position, array in tensors[field.name][1].items()
    }
    inputs = tuple(arrays.get((slot.field, slot.position)) for slot in desc.inputs)
    outputs = tuple(arrays.get((slot.field, slot.position), np.empty(0)) for slot in desc.outputs)
    return desc, inputs, outputs


def _entries(example: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an example, corrected where the page is wrong."""
    return {**example["tensors"], **example.get("corrected", {})}


def _tensors(entry: Any) -> tuple[Any, dict[int | None, Array]]:
    """Return the value of a tensor field as the catalog prints it, and the contents by position in the array, if it is
    one."""
    if isinstance(entry, list):
        tensors = [_tensor(element) for element in entry]
        return tuple(desc for desc, _ in tensors), {position: array for position, (_, array) in enumerate(tensors)}
    desc, array = _tensor(entry)
    return desc, {None: array}


def _tensor(entry: Any) -> tuple[TensorDesc, Array]:
    """Description and contents of a tensor as the catalog prints it."""
    data_type = DataType[entry["type"]]
    strides = entry.get("strides")
    desc = TensorDesc(data_type, tuple(entry["sizes"]), None if strides is None else tuple(strides))
    return desc, np.array(entry["values"]).astype(data_type.numpy).reshape(desc.sizes)


def _attribute(kind: str, value: Any) -> Any:
    """Return an attribute as the catalog prints it; enumeration members are spelled in full, numbers not used are
    omitted."""
    if value is None:
        return 0.0
    if not kind.startswith("DML_"):
        return value
    if kind == "DML_TENSOR_DATA_TYPE":
        return DataType[value.removeprefix("DML_TENSOR_DATA_TYPE_")]
    name = "".join(word.capitalize() for word in kind.removeprefix("DML_").split("_"))
    return getattr(enums, name)[value.removeprefix(f"{kind}_")]
