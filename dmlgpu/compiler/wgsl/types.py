"""Representation of a tensor's elements in WGSL: words in storage, scalars and vectors in a body."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from dmlgpu.catalog.enums import BFLOAT16, DataType
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.plan import PlanTensor, View
from dmlgpu.compiler.rewrites.packing import PackedTensor
from dmlgpu.compiler.target import Target
from dmlgpu.compiler.wgsl.names import use


class Scalar(enum.StrEnum):
    """Type of one element in a body."""

    F32 = "f32"
    F16 = "f16"
    BOOL = "bool"
    I32 = "i32"
    U32 = "u32"
    I64 = "i64"
    U64 = "u64"
    F64 = "f64"
    I64_WORDS = "i64_words"  # vec2<u32>: low word, high word
    U64_WORDS = "u64_words"
    F64_WORDS = "f64_words"

    @property
    def wgsl(self) -> str:
        """The WGSL type."""
        return "vec2<u32>" if self.value.endswith("words") else self.value

    @property
    def is_words(self) -> bool:
        """Whether the value is a pair of words, for which WGSL's own operators are wrong."""
        return self.value.endswith("words")


_WIDE = {
    DataType.INT64: (Scalar.I64, Scalar.I64_WORDS, "shader-int64"),
    DataType.UINT64: (Scalar.U64, Scalar.U64_WORDS, "shader-int64"),
    DataType.FLOAT64: (Scalar.F64, Scalar.F64_WORDS, "shader-f64"),
}


def scalar_of(data_type: DataType, target: Target, portable: bool) -> Scalar:
    """Return the type of an element in a body that computes on it.

    Args:
        data_type: Type of the tensor.
        target: Adapter, which may support 64-bit arithmetic and f16 (a feature only if the caller allows it).
        portable: Always take 64-bit elements as pairs of words, and f16 as f32.

    Raises:
        NotSupported: For FLOAT64 arithmetic on an adapter without float64.
    """
    if data_type is DataType.FLOAT16 and target.has("shader-f16") and not portable:
        return Scalar(use("f16"))
    if data_type.bits <= 32:
        return Scalar.F32 if data_type.is_float else Scalar.I32 if data_type.is_signed else Scalar.U32
    native, pair, feature = _WIDE[data_type]
    if portable:
        return pair
    if target.has(feature):
        return native
    if data_type is DataType.FLOAT64:
        raise NotSupported(f"FLOAT64 arithmetic needs the adapter feature {feature}, which {target.name!r} lacks")
    return pair


PAIR = "vec4<u64>"
"""Block of two units of 16 bytes, which adapters with 64-bit words read and write at once."""

_BLOCKS = {64: "vec2<u32>", 128: "vec4<u32>"}


def block_of(bits: int) -> str:
    """Return the WGSL type of the block of words that holds a unit of ``bits``."""
    return _BLOCKS.get(bits, "u32")


@dataclass(frozen=True)
class TensorAccess:
    """Access of a kernel to one tensor.

    Attributes:
        scalar: WGSL type of one element; for raw tensors the block.
        unit: WGSL type of one load or store in the body.
        block: WGSL type that the storage variable is an array of.
        unit_bits: bits of one load or store.
        lanes: elements in a unit (``splat`` repeats one).
    """

    data_type: DataType
    view: View
    kind: Scalar
    lanes: int
    splat: bool
    unit_bits: int

    @property
    def block(self) -> str:
        """WGSL type that the storage variable is an array of."""
        if self.kind is Scalar.F64 and self.view is View.COMPUTE:
            return "f64"
        return block_of(self.unit_bits)

    @property
    def scalar(self) -> str:
        """WGSL type of one element in a body."""
        return self.block if self.view is View.RAW else self.kind.wgsl

    @property
    def unit(self) -> str:
        """WGSL type of one unit in a body."""
        return self.scalar if self.view is View.RAW else vector(self.kind, self.lanes)

    @property
    def base_shift(self) -> int:
        """Power of two by which a base offset in words is divided to count blocks."""
        return {64: 1, 128: 2}.get(self.unit_bits, 0)


def access(tensor: PlanTensor, target: Target, portable: bool = False) -> TensorAccess:
    """Return how a kernel for ``target`` accesses a tensor."""
    kind = Scalar.U32 if tensor.view is not View.COMPUTE else scalar_of(tensor.data_type, target, portable)
    splat = isinstance(tensor, PackedTensor) and tensor.broadcast
    return TensorAccess(tensor.data_type, tensor.view, kind, tensor.lanes, splat, tensor.unit_bits)


def vector(kind: Scalar, lanes: int) -> str:
    """Return the WGSL type of some lanes of a scalar."""
    return kind.wgsl if lanes == 1 else f"vec{lanes}<{kind.wgsl}>"


LANE_NAMES = "xyzw"


def _word_of(lane: int, unit_bits: int, bits: int) -> tuple[str, str]:
    """Return the index in ``word`` of a lane's word, and its first bit."""
    position = lane * bits
    if unit_bits < 32:
        return "word", f"shift + {position}u" if position else "shift"
    return ("word" if unit_bits == 32 else f"word.{LANE_NAMES[position // 32]}"), f"{position % 32}u"


def decode(a: TensorAccess) -> str:
    """Return the expression that converts a loaded block to a unit; it reads ``word`` and, below 32 bits, ``shift``."""
    if a.view is View.RAW:
        return "word" if a.unit_bits >= 32 else f"extractBits(word, shift, {a.unit_bits}u)"
    if a.data_type.bits == 64:
        return f"{use(f'{a.kind}_of_words')}(word)" if a.kind in (Scalar.I64, Scalar.U64) else "word"
    width = a.data_type.bits
    lanes = [_decode_lane(a, *_word_of(lane, a.unit_bits, width)) for lane in range(1 if a.splat else a.lanes)]
    return lanes[0] if a.lanes == 1 else f"{a.unit}({', '.join(lanes)})"


def _decode_lane(a: TensorAccess, word: str, shift: str) -> str:
    bits = a.data_type.bits
    if a.data_type is DataType.FLOAT16:
        return f"{use(f'{a.kind}_of_half')}(extractBits({word}, {shift}, 16u))"
    if a.data_type is BFLOAT16:
        return f"{use('f32_of_bfloat16')}(extractBits({word}, {shift}, 16u))"
    if bits < 32:
        source = f"bitcast<i32>({word})" if a.kind is Scalar.I32 else word
        return f"extractBits({source}, {shift}, {bits}u)"
    return word if a.kind is Scalar.U32 else f"bitcast<{a.kind.wgsl}>({word})"


def encode(a: TensorAccess) -> str:
    """Return the expression that converts the unit ``value`` to a block (its low bits, below 32)."""
    if a.view is View.RAW:
        return "value"
    if a.data_type.bits == 64:
        return f"{use(f'words_of_{a.kind}')}(value)" if a.kind in (Scalar.I64, Scalar.U64) else "value"
    if a.lanes == 1:
        return _encode_lane(a, "value")
    words: dict[str, list[str]] = {}
    for lane in range(a.lanes):
        position = lane * a.data_type.bits
        bits = _encode_lane(a, f"value.{LANE_NAMES[lane]}")
        word = LANE_NAMES[position // 32]
        words.setdefault(word, []).append(f"({bits} << {position % 32}u)" if position % 32 else bits)
    joined = [" | ".join(parts) for parts in words.values()]
    return joined[0] if len(joined) == 1 else f"{a.block}({', '.join(joined)})"


def _encode_lane(a: TensorAccess, value: str) -> str:
    bits = a.data_type.bits
    if a.data_type is DataType.FLOAT16:
        return f"{use(f'half_of_{a.kind}')}({value})"
    if a.data_type is BFLOAT16:
        return f"{use('bfloat16_of_f32')}({value})"
    if bits < 32:
        return f"extractBits(bitcast<u32>({value}), 0u, {bits}u)"
    return value if a.kind is Scalar.U32 else f"bitcast<u32>({value})"


def edge(data_type: DataType, kind: Scalar, lanes: int, expression: str) -> str:
    """Return a virtual tensor's value: rounded or wrapped to the tensor's type exactly as a store would."""
    if data_type.bits >= 32 or kind is Scalar.F16:
        return expression
    if data_type is DataType.FLOAT16:
        return f"{use(f'round_to_half{lanes if lanes > 1 else str()}')}({expression})"
    if data_type is BFLOAT16:
        return f"{use(f'round_to_bfloat16_{lanes}' if lanes > 1 else 'round_to_bfloat16')}({expression})"
    return f"extractBits({expression}, 0u, {data_type.bits}u)"


def raw_lane(unit: str, lane: int, bits: int, unit_bits: int) -> str:
    """Return the bits of one element of a raw unit of 32 bits or more as a separate block."""
    position = lane * bits
    if bits == 64:
        return f"{unit}.{LANE_NAMES[position // 32 :][:2]}" if unit_bits > 64 else unit
    word = unit if unit_bits == 32 else f"{unit}.{LANE_NAMES[position // 32]}"
    return word if bits == 32 else f"extractBits({word}, {position % 32}u, {bits}u)"


def raw_unit(lanes: list[str], bits: int) -> str:
    """Return a raw unit of 32 bits or more composed of the bits of its elements."""
    per_word = max(32 // bits, 1)
    words = []
    for first in range(0, len(lanes), per_word):
        parts = [
            f"({lane} << {index * bits}u)" if index else lane
            for index, lane in enumerate(lanes[first : first + per_word])
        ]
        words.append(" | ".join(parts))
    return words[0] if len(words) == 1 else f"{block_of(len(lanes) * bits)}({', '.join(words)})"
