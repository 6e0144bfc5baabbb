"""Operations of matrix units, with one name for templates in each dialect of WGSL.

| operation | naga | Tint, the draft of the standard |
|---|---|---|
| types of a, b and sums | ``coop_mat16x16<f16, A>``, B, C | ``subgroup_matrix_left<f16, 16, 16>``, right, result |
| integers | | ``i8`` in arrays of ``i32``, with indices and strides in bytes; sums of ``i32`` |
| float32 | ``coop_mat8x8<f32, A>`` | ``f32`` |
| load of rows | ``coopLoadT`` | ``subgroupMatrixLoad(.., false, ..)`` |
| load of columns | ``coopLoad`` | ``subgroupMatrixLoad(.., true, ..)`` |
| multiply and add | ``coopMultiplyAdd`` | ``subgroupMatrixMultiplyAccumulate`` |
| store of rows | ``coopStoreT`` | ``subgroupMatrixStore`` |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

from dmlgpu.compiler.target import Matrices, MatrixDialect
from dmlgpu.compiler.wgsl.names import use


class MatrixWriter(ABC):
    """Writer of the operations for matrix units.

    Args:
        matrices: Matrix units of the adapter.
    """

    extensions: tuple[str, ...]
    """WGSL extensions to enable."""

    def __init__(self, matrices: Matrices):
        self._matrices = matrices
        self._element = use("f16") if matrices.component == "f16" else matrices.component
        self._sum = "i32" if matrices.component == "i8" else "f32"
        for extension in self.extensions:
            use(extension)

    def load(self, name: str, slab: str, index: str, stride: int, *, steps_adjacent: bool) -> str:
        """Return a matrix of operand ``a`` or ``b`` in a slab.

        Args:
            name: Name of the operand.
            slab: Array in workgroup memory.
            index: Its first element.
            stride: Elements from row to row of the array.
            steps_adjacent: Whether the steps of a row of a, or of a column of b, are adjacent.
        """
        return self._load(name, slab, index, stride, row_major=steps_adjacent == (name == "a"))

    @abstractmethod
    def zero(self) -> str:
        """Return a matrix of sums that are zero."""

    @abstractmethod
    def _load(self, name: str, slab: str, index: str, stride: int, *, row_major: bool) -> str: ...

    @abstractmethod
    def multiply_add(self, a: str, b: str, sums: str) -> str:
        """Return the sum of a product and a matrix of sums."""

    @abstractmethod
    def store(self, sums: str, array: str, index: str, stride: int = 0) -> str:
        """Return a call that stores a matrix of sums in an array in workgroup memory, row by row.

        Args:
            sums: The matrix.
            array: Array in workgroup memory.
            index: Its first element.
            stride: Elements from row to row; 0 if rows are adjacent.
        """

    @abstractmethod
    def load_sums(self, array: str, index: str, stride: int) -> str:
        """Return a matrix of sums that ``store`` stored."""


class _Naga(MatrixWriter):
    extensions = ("wgpu_cooperative_matrix",)

    def _type(self, role: str) -> str:
        return f"coop_mat{self._matrices.columns}x{self._matrices.rows}<{role}>"

    def zero(self) -> str:
        return f"{self._type(f'{self._sum}, C')}()"

    def _load(self, name: str, slab: str, index: str, stride: int, *, row_major: bool) -> str:
        function = "coopLoadT" if row_major else "coopLoad"
        matrix = self._type(f"{self._element}, {name.upper()}")
        return f"{function}<{matrix}>(&{slab}[{index}], {stride}u)"

    def multiply_add(self, a: str, b: str, sums: str) -> str:
        return f"coopMultiplyAdd({a}, {b}, {sums})"

    def store(self, sums: str, array: str, index: str, stride: int = 0) -> str:
        return f"coopStoreT({sums}, &{array}[{index}], {stride or self._matrices.columns}u)"

    def load_sums(self, array: str, index: str, stride: int) -> str:
        return f"coopLoadT<{self._type(f'{self._sum}, C')}>(&{array}[{index}], {stride}u)"


class _Tint(MatrixWriter):
    extensions = ("subgroups", "chromium_experimental_subgroup_matrix")

    @property
    def _sums(self) -> str:
        return f"subgroup_matrix_result<{self._sum}, {self._matrices.columns}, {self._matrices.rows}>"

    def zero(self) -> str:
        return f"{self._sums}()"

    def _load(self, name: str, slab: str, index: str, stride: int, *, row_major: bool) -> str:
        units = self._matrices
        side, columns, rows = (
            ("left", units.steps, units.rows) if name == "a" else ("right", units.columns, units.steps)
        )
        matrix = f"subgroup_matrix_{side}<{self._element}, {columns}, {rows}>"
        return f"subgroupMatrixLoad<{matrix}>(&{slab}, {index}, {str(not row_major).lower()}, {stride}u)"

    def multiply_add(self, a: str, b: str, sums: str) -> str:
        return f"subgroupMatrixMultiplyAccumulate({a}, {b}, {sums})"

    def store(self, sums: str, array: str, index: str, stride: int = 0) -> str:
        return f"subgroupMatrixStore(&{array}, {index}, {sums}, false, {stride or self._matrices.columns}u)"

    def load_sums(self, array: str, index: str, stride: int) -> str:
        return f"subgroupMatrixLoad<{self._sums}>(&{array}, {index}, false, {stride}u)"


WRITERS: Final[Mapping[MatrixDialect, type[MatrixWriter]]] = {MatrixDialect.NAGA: _Naga, MatrixDialect.TINT: _Tint}
"""Writers by dialect."""

EXTENSIONS: Final = tuple(extension for writer in WRITERS.values() for extension in writer.extensions)
"""All extensions."""
