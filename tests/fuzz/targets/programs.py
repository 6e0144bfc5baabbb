"""Changed descriptions that are valid, compiled to programs for targets that are made up: no driver is needed."""

from __future__ import annotations

import random

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.target import Policies, Profile, Target
from tests.fuzz.description_mutations import mutate
from tests.fuzz.devices import shared_device
from tests.fuzz.monitor import Monitor, Refused, shown
from tests.fuzz.targets.descriptions import draw_case

FEATURES = ("shader-int64", "shader-f64", "shader-f16", "immediates")


def run(seed: int, monitor: Monitor) -> None:
    """Compile one description; a tenth of them as a case has it, for a target that no case runs on."""
    rng = random.Random(f"programs {seed}")
    case = draw_case(rng)
    desc = case.desc if rng.random() < 0.1 else mutate(case.desc, rng, monitor)
    if isinstance(desc, Refused):
        return
    assert isinstance(desc, OperatorDesc)
    target = draw_target(rng)
    monitor.subject = lambda: f"from {case.name}, for {target}: {shown(desc, 2500)}"
    if not isinstance(monitor.call(shared_device("numpy").create_operator, desc), Refused):
        monitor.call(compiler.compile_operator, desc, target)


def draw_target(rng: random.Random) -> Target:
    """An adapter with some features and limits."""
    return Target(
        name="fuzz",
        profile=rng.choice(list(Profile)),
        features=frozenset(feature for feature in FEATURES if rng.random() < 0.5),
        loop_limit=rng.choice((None, None, 65535)),
        max_storage_buffers=rng.choice((8, 8, 10, 48)),
        max_workgroup_invocations=rng.choice((256, 1024)),
        max_workgroup_storage=rng.choice((16384, 32768)),
        max_binding_size=rng.choice((128 << 20, 1 << 30)),
        policies=Policies(deterministic=rng.random() < 0.3),
    )
