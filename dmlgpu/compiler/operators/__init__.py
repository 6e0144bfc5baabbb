"""Rules of operators that a table cannot express: relations between fields, output sizes, upgrade, lowering.

One module per family; a module's classes register themselves, so that adding an operator touches no list.
"""

from __future__ import annotations

import importlib
import pkgutil

from dmlgpu.catalog import validation
from dmlgpu.catalog.enums import FeatureLevel
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.compiler.operators.lowering import lowering, registered
from dmlgpu.compiler.plan import Plan

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")


def implemented() -> frozenset[str]:
    """Return names of the operators that can be lowered."""
    return registered()


def check(desc: OperatorDesc, level: FeatureLevel = FeatureLevel.LEVEL_6_4) -> None:
    """Check the relations between fields that the catalog's tables cannot express.

    Args:
        desc: a description that ``validation.validate`` accepts.
        level: the feature level whose rules apply.

    Raises:
        InvalidDescription: when one is broken.
        OperatorNotImplemented: when dmlgpu does not implement the operator yet.
    """
    lowering(desc.operator).check(desc)
    lowering(desc.operator).check_level(desc, level)


def check_rules(desc: OperatorDesc, level: FeatureLevel) -> None:
    """Check all rules of a feature level: those of the catalog, and those of the operator if it is implemented.

    Raises:
        InvalidDescription: when a rule is broken.
    """
    validation.validate(desc, level)
    if desc.operator in registered():
        check(desc, level)


def upgrade(desc: OperatorDesc) -> OperatorDesc:
    """Return an equivalent description of the newest operator of its line."""
    newer = lowering(desc.operator).upgrade(desc)
    return desc if newer is None else upgrade(newer)


def lower(desc: OperatorDesc) -> Plan:
    """Return the plan of a checked description, older operators upgraded first; it is the same for every adapter.

    Raises:
        NotSupported: when the operator would not finish within a reasonable time.
    """
    newest = upgrade(desc)
    return lowering(newest.operator).lower(newest)


def shader_files(operator: str) -> tuple[str, ...]:
    """Return the files below ``shaders/`` that hold an operator's bodies; none if it upgrades to another."""
    return lowering(operator).shaders
