"""Coverage of WGSL by the kernels of a run: names that they use, avoid because of the driver, or never use.

Child processes read the WGSL of each kernel that they compile. The run merges their answers, so a kernel that several
of them compile counts once.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from dmlgpu.common.errors import counted
from dmlgpu.compiler.quirks import Quirk, quirks_in_force
from dmlgpu.conformance.running import fields
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.rendered import RenderedBackend
from dmlgpu.runtime.shader_source import without_comments

EXERCISED: Final = "exercised"
"""JSON field of a child's answers, and of the record that ends a run."""

_SCANS = ("Add", "ExclusiveAdd", "InclusiveAdd", "Mul", "ExclusiveMul", "InclusiveMul")
_LANES = ("And", "Or", "Xor", "All", "Any", "Ballot", "Broadcast", "BroadcastFirst", "Elect", "Max", "Min")
_SHUFFLES = ("Shuffle", "ShuffleDown", "ShuffleUp", "ShuffleXor")
SUBGROUP_FUNCTIONS: Final = tuple(f"subgroup{name}" for name in (*_SCANS, *_LANES, *_SHUFFLES)) + tuple(
    f"quad{name}" for name in ("Broadcast", "SwapDiagonal", "SwapX", "SwapY")
)

_OTHER_FUNCTIONS = """
    bitcast all any select arrayLength abs acos acosh asin asinh atan atanh atan2 ceil clamp cos cosh
    countLeadingZeros countOneBits countTrailingZeros cross degrees determinant distance dot dot4U8Packed
    dot4I8Packed exp exp2 extractBits faceForward firstLeadingBit firstTrailingBit floor fma fract frexp
    insertBits inverseSqrt ldexp length log log2 max min mix modf normalize pow quantizeToF16 radians reflect
    refract reverseBits round saturate sign sin sinh smoothstep sqrt step tan tanh transpose trunc
    atomicLoad atomicStore atomicAdd atomicSub atomicMax atomicMin atomicAnd atomicOr atomicXor atomicExchange
    atomicCompareExchangeWeak
    pack4x8snorm pack4x8unorm pack4xI8 pack4xU8 pack4xI8Clamp pack4xU8Clamp pack2x16snorm pack2x16unorm pack2x16float
    unpack4x8snorm unpack4x8unorm unpack4xI8 unpack4xU8 unpack2x16snorm unpack2x16unorm unpack2x16float
    storageBarrier workgroupBarrier workgroupUniformLoad
"""
FUNCTIONS: Final = frozenset([*_OTHER_FUNCTIONS.split(), *SUBGROUP_FUNCTIONS])
"""Builtin functions of WGSL for compute shaders, without those of textures."""

_COMPONENTS = ("bool", "i32", "u32", "f32", "f16")
TYPES: Final = frozenset(
    [
        *_COMPONENTS,
        *("i64", "u64", "f64"),
        *(f"vec{size}<{component}>" for size in (2, 3, 4) for component in _COMPONENTS),
        *(f"mat{columns}x{rows}" for columns in (2, 3, 4) for rows in (2, 3, 4)),
        *("atomic<u32>", "atomic<i32>", "array", "struct", "ptr"),
    ]
)
"""Types of WGSL, and naga's 64-bit scalars."""

_STATEMENTS = ("if", "for", "while", "loop", "switch", "break", "continue", "continuing", "return")
_SPACES = ("storage", "uniform", "workgroup", "private", "immediate")
_BUILTINS = (
    *("global_invocation_id", "local_invocation_id", "local_invocation_index", "num_workgroups", "workgroup_id"),
    *("subgroup_invocation_id", "subgroup_size", "num_subgroups", "subgroup_id"),
)
FEATURES: Final = frozenset(
    [
        *_STATEMENTS,
        "override",
        *(f"var<{space}>" for space in _SPACES),
        *(f"@builtin({name})" for name in _BUILTINS),
    ]
)
"""Statements, address spaces and builtin values of WGSL. The ``enable`` directives of kernels are counted with them."""

VOCABULARY: Final[Mapping[str, frozenset[str]]] = {"functions": FUNCTIONS, "types": TYPES, "features": FEATURES}

_NEEDED: Final[Mapping[str, frozenset[str]]] = {
    "subgroup": frozenset(
        [*SUBGROUP_FUNCTIONS, *(name for name in FEATURES if name.startswith("@builtin(") and "subgroup" in name)]
    ),
    "shader-f16": frozenset(name for name in TYPES if "f16" in name),
    "shader-int64": frozenset(["i64", "u64"]),
    "shader-f64": frozenset(["f64"]),
    "immediates": frozenset(["var<immediate>"]),
}
"""Names that a kernel can use only if the adapter has a feature, by feature."""

# ---- reading kernels -------------------------------------------------------------------------------------------------

_DECLARATION = re.compile(
    r"^(?:@\w+(?:\([^()\n]*\))?\s*)*\b(?:fn|var(?:\s*<[^<>]*>)?|const|alias|struct|override)\s+(\w+)", re.MULTILINE
)
_WORD = re.compile(r"[.@]?[A-Za-z_]\w*[(<]?")
_VECTOR = re.compile(r"vec([234])<\s*(\w+)")
_ATOMIC = re.compile(r"atomic<\s*(\w+)")
_SHORT_VECTOR = re.compile(r"vec[234][iufh]")
_SHORT_MATRIX = re.compile(r"mat[234]x[234][fh]")
_SPACE = re.compile(r"var\s*<\s*(\w+)")
_BUILTIN = re.compile(r"@builtin\(\s*(\w+)")
_ALIAS = re.compile(r"^alias\s+(\w+)\s*=\s*(\w+)\s*;", re.MULTILINE)
_ENABLE = re.compile(r"^enable\s+([\w\s,]+);", re.MULTILINE)
_SHORT = {"i": "i32", "u": "u32", "f": "f32", "h": "f16"}


def used_by(wgsl: str) -> frozenset[str]:
    """Return the names of ``VOCABULARY`` that a kernel uses, and its ``enable`` directives.

    Declarations that no entry point reaches do not count: drivers do not get them.
    """
    text = without_comments(wgsl)
    declarations = dict(_declarations(text))
    aliases = dict(_ALIAS.findall(text))
    used = {f"enable {name.strip()}" for names in _ENABLE.findall(text) for name in names.split(",")}
    pending = [name for name, body in declarations.items() if "@compute" in body] or list(declarations)
    reached: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            identifiers, uses, vectors = _read(declarations[name])
            pending += identifiers & declarations.keys()
            used |= uses - declarations.keys()
            used |= {f"vec{size}<{aliases.get(component, component)}>" for size, component in vectors} & TYPES
    return frozenset(used)


def _declarations(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and sources of the declarations at module level."""
    matches = [(match[1], match.start()) for match in _DECLARATION.finditer(text)]
    name, start = "", 0
    for next_name, end in (*matches, ("", len(text))):
        # A declaration that begins a line in a function belongs to the function.
        if end < len(text) and text.count("{", start, end) != text.count("}", start, end):
            continue
        if name:
            yield name, text[start:end]
        name, start = next_name, end


@functools.lru_cache(maxsize=4096)  # kernels share most declarations
def _read(text: str) -> tuple[frozenset[str], frozenset[str], frozenset[tuple[str, str]]]:
    """Return the identifiers of a declaration, the names it uses, and the sizes and components of its vectors."""
    identifiers, uses = set[str](), set[str]()
    for word in set(_WORD.findall(text)):
        name = word.rstrip("(<")
        identifiers.add(name)
        if name in TYPES or name in FEATURES or (name in FUNCTIONS and name != word):
            uses.add(name)
        elif _SHORT_VECTOR.fullmatch(name):
            uses.add(f"{name[:4]}<{_SHORT[name[4]]}>")
        elif _SHORT_MATRIX.fullmatch(name):
            uses.add(name[:-1])
    uses |= {f"var<{space}>" for space in _SPACE.findall(text)} & FEATURES
    uses |= {f"@builtin({name})" for name in _BUILTIN.findall(text)} & FEATURES
    uses |= {f"atomic<{name}>" for name in _ATOMIC.findall(text)} & TYPES
    return frozenset(identifiers), frozenset(uses), frozenset(_VECTOR.findall(text))


def digest_of(wgsl: str) -> str:
    """Return a hash of a kernel, by which the kernels of several processes are merged."""
    return hashlib.blake2b(wgsl.encode(), digest_size=8).hexdigest()


# ---- what is avoided -------------------------------------------------------------------------------------------------

ADAPTER: Final = "adapter"


@dataclass(frozen=True)
class Avoided:
    """Something that dmlgpu's kernels avoid on an adapter.

    Attributes:
        by: ``probe float16``, ``quirk mesa-loops``, or ``adapter`` if it lacks a feature.
        what: Its description, in words.
        why: The measured fact, the fault, or the missing feature.
        names: Its names in ``VOCABULARY``; empty if it has none.
    """

    by: str
    what: str
    why: str
    names: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """The reason, as a cell of a table."""
        return f"{self.by}: {self.why}"


def avoided_on(device: Device) -> tuple[Avoided, ...]:
    """Return everything that kernels on a device avoid, and the features that its adapter lacks; none for ``numpy``."""
    if not isinstance(device.backend, RenderedBackend):
        return ()
    info = device.adapter
    quirks = (
        Avoided(f"quirk {quirk.name}", ", ".join(_changes_of(quirk)), quirk.why, _needing(quirk.features))
        for quirk in quirks_in_force(info)
    )
    lacking = (
        Avoided(ADAPTER, feature, f"lacks {feature}", _needing([feature]))
        for feature in _NEEDED
        if feature not in info.features
    )
    return (*_by_probes(device), *quirks, *lacking)


def _changes_of(quirk: Quirk) -> tuple[str, ...]:
    return (*quirk.features, *quirk.schedules, *(f"{name} = {value}" for name, value in quirk.sets.items()))


def _needing(features: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({name for feature in features for name in _NEEDED.get(feature, ())}))


def _by_probes(device: Device) -> Iterator[Avoided]:
    """Yield everything that kernels avoid because a probe did not find a fact, or an environment variable says so."""
    from dmlgpu.runtime.wgpu.backend import GpuBackend  # noqa: PLC0415 - other adapters do without wgpu
    from dmlgpu.runtime.wgpu.libraries import features_of  # noqa: PLC0415
    from dmlgpu.runtime.wgpu.probes import PROBES  # noqa: PLC0415

    info, backend = device.adapter, device.backend
    if not isinstance(backend, GpuBackend):
        return
    features = features_of(backend.context.device)
    for probe in PROBES:
        relied = probe.facts(info, features)
        if relied is None or not probe.applies(info, features):
            continue
        for fact, text in probe.avoided.items():
            if fact not in relied:
                what, _, why = text.partition(" (")
                names = tuple(probe.builtins.get(fact, ()))
                yield Avoided(f"probe {probe.name}", what, probe.origin(info) or why.rstrip(")"), names)


# ---- of a run --------------------------------------------------------------------------------------------------------


def kind_of(name: str) -> str:
    """Return the kind of a name: ``functions``, ``types`` or ``features``, to which ``enable`` directives belong."""
    return next((kind for kind, names in VOCABULARY.items() if name in names), "features")


@dataclass(frozen=True)
class Exercised:
    """Coverage of WGSL by the kernels of a run.

    Attributes:
        kernels: Number of different kernels.
        used: Number of kernels that use a name, by name.
        avoided: Everything that dmlgpu's kernels avoid; kernels in plain WGSL may use it.
        never: Names that no kernel uses.
    """

    kernels: int
    used: Mapping[str, int]
    avoided: tuple[Avoided, ...] = ()
    never: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Any) -> Exercised:
        """Read the result of ``to_json``.

        Raises:
            ValueError: If the record is malformed.
        """
        return cls(**fields.read_fields(record, _READERS, "kernels", "used", "avoided", "never"))

    def reasons(self) -> dict[str, str]:
        """Return the reasons why names are avoided, by name."""
        reasons: dict[str, list[str]] = {}
        for avoided in self.avoided:
            for name in avoided.names:
                reasons.setdefault(name, []).append(avoided.reason)
        return {name: "; ".join(texts) for name, texts in reasons.items()}

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return a row for each name that is used or avoided: kind, name, number of kernels, why it is avoided."""
        reasons, order = self.reasons(), list(VOCABULARY)
        names = sorted(
            {*self.used, *reasons}, key=lambda name: (order.index(kind_of(name)), -self.used.get(name, 0), name)
        )
        rows = [
            (kind_of(name), name, f"{self.used[name]:,}" if name in self.used else "-", reasons.get(name, ""))
            for name in names
        ]
        return rows + [("others", other.what, "-", other.reason) for other in self.avoided if not other.names]

    def never_used(self) -> dict[str, list[str]]:
        """Return the names that are neither used nor avoided, by kind."""
        names = sorted(set(self.never) - self.reasons().keys())
        return {kind: [name for name in names if kind_of(name) == kind] for kind in VOCABULARY}

    def counts(self) -> dict[str, str]:
        """Return the number of used names of each kind: ``8 of 121``."""
        used, never = Counter(map(kind_of, self.used)), Counter(map(kind_of, self.never))
        return {kind: f"{used[kind]} of {used[kind] + never[kind]}" for kind in VOCABULARY}

    def avoided_text(self) -> str:
        """Return a list of everything that is avoided, with the probe or quirk; empty if nothing is."""
        by: dict[str, list[str]] = {}
        for avoided in self.avoided:
            if avoided.by != ADAPTER:
                by.setdefault(avoided.by, []).append(avoided.what)
        return "; ".join(f"{', '.join(texts)} ({name})" for name, texts in by.items())

    def summary(self) -> list[str]:
        """Return a line with the numbers of used names and, if anything is avoided, a second line with it."""
        counts = ", ".join(f"{text} {kind}" for kind, text in self.counts().items())
        avoided = self.avoided_text()
        line = f"exercised by {counted(self.kernels, 'kernel')}: {counts} of WGSL"
        return [line, f"avoided: {avoided}"] if avoided else [line]


def _avoided(value: Any) -> Avoided:
    return Avoided(**fields.read_fields(value, _AVOIDED, *_AVOIDED))


_AVOIDED: Mapping[str, fields.Reader[Any]] = {
    **dict.fromkeys(("by", "what", "why"), fields.text),
    "names": fields.list_of(fields.text),
}
_READERS: Mapping[str, fields.Reader[Any]] = {
    "kernels": fields.count,
    "used": fields.mapping_of(fields.count),
    "avoided": fields.list_of(_avoided),
    "never": fields.list_of(fields.text),
}


class KernelNotes:
    """Kernels of a child process that its run does not know yet."""

    def __init__(self) -> None:
        self._compiled, self._known = dict[str, str](), set[str]()

    def add(self, texts: Sequence[str]) -> None:
        """Note the WGSL of kernels about to be compiled."""
        self._compiled |= {digest: text for text in texts if (digest := digest_of(text)) not in self._known}

    def discard(self) -> None:
        """Forget the kernels of a case that did not compile."""
        self._compiled.clear()

    def take(self, device: Device) -> dict[str, Any] | None:
        """Return the new kernels as an answer; None if there are none. The first answer has what is avoided, too."""
        if not self._compiled:
            return None
        avoided = [] if self._known else [asdict(each) for each in avoided_on(device)]
        kernels = {digest: sorted(used_by(text)) for digest, text in self._compiled.items()}
        self._known.update(kernels)
        self._compiled.clear()
        return {"kernels": kernels, "avoided": avoided}


@dataclass
class RunNotes:
    """Kernels of a run, merged from its child processes. Several threads may add to it."""

    kernels: dict[str, Sequence[str]] = field(default_factory=dict)
    avoided: dict[Avoided, None] = field(default_factory=dict)

    def add(self, answer: Mapping[str, Any]) -> None:
        """Add what a child process found (``KernelNotes.take``)."""
        self.kernels.update(answer["kernels"])
        self.avoided.update(dict.fromkeys(map(_avoided, answer["avoided"])))

    def exercised(self) -> Exercised | None:
        """Return the coverage of the run; None if it compiled nothing."""
        if not self.kernels:
            return None
        used = Counter(name for names in self.kernels.values() for name in names)
        every = sorted(frozenset().union(*VOCABULARY.values()))
        never = tuple(name for name in every if name not in used)
        return Exercised(len(self.kernels), dict(sorted(used.items())), tuple(self.avoided), never)
