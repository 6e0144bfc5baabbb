"""The bounded cache, and bounds of all other caches of the package."""

import ast
import re
import threading
import weakref
from pathlib import Path

import pytest

from dmlgpu import CacheInfo, CacheLimits, Device, InvalidArgument
from dmlgpu.common.cache import Cache
from dmlgpu.compiler import stages as compiler
from tests.life_cycle import subtract

PACKAGE = Path(__file__).parents[3] / "dmlgpu"


def filled(entries, size, *entry_sizes):
    """Return a cache with values of some sizes, by letters from ``a``."""
    cache = Cache(CacheLimits(entries, size))
    for letter, entry_size in zip("abcdefgh", entry_sizes, strict=False):
        cache.put(letter, letter.upper(), entry_size)
    return cache


def held(cache):
    return [letter for letter in "abcdefgh" if cache.get(letter)]


def test_the_least_recently_used_entry_is_evicted_first():
    cache = filled(3, 100, 1, 1, 1)
    assert cache.get("a") == "A"
    cache.put("d", "D", 1)
    assert held(cache) == ["a", "c", "d"]


def test_bytes_are_bounded():
    cache = filled(9, 10, 4, 4, 4)
    assert held(cache) == ["b", "c"]
    cache.put("d", "D", 10)
    assert held(cache) == ["d"]


def test_an_entry_beyond_the_limits_evicts_nothing():
    cache = filled(9, 10, 4, 4)
    assert cache.put("c", "C", 11) == "C"
    assert held(cache) == ["a", "b"]


def test_a_cache_of_no_entries_stores_nothing():
    assert held(filled(0, 100, 1)) == []


def test_lower_limits_evict_at_once():
    cache = filled(9, 100, 10, 10, 10, 10)
    cache.limits = CacheLimits(entries=9, size=25)
    assert held(cache) == ["c", "d"]
    cache.limits = CacheLimits(entries=1, size=25)
    assert held(cache) == ["d"]


def test_storing_twice_keeps_the_first():
    cache = filled(9, 100, 10)
    assert cache.put("a", "other", 10) == "A"
    assert cache.info.size == 10


def test_info_counts():
    cache = filled(2, 100, 10, 20, 30)
    cache.get("a")
    cache.get("b")
    cache.get("c")
    assert cache.info == CacheInfo(entries=2, size=50, hits=2, misses=1, evictions=1)
    cache.clear()
    assert cache.info == CacheInfo(entries=0, size=0, hits=2, misses=1, evictions=1)
    assert len(cache) == 0


def test_values_are_created_once():
    cache, calls = filled(2, 100), []
    for _ in range(2):
        assert cache.get_or_make("a", lambda: calls.append(1) or "A", len) == "A"
    assert calls == [1]
    assert cache.info.size == 1


def test_finalizers_of_dropped_values_may_use_the_cache():
    class Value:
        pass

    cache = Cache(CacheLimits(1, 100))
    value, sizes = Value(), []
    weakref.finalize(value, lambda: sizes.append(cache.info.entries))
    cache.put("a", value, 1)
    del value
    cache.put("b", Value(), 1)
    assert sizes == [1]


def test_threads_share_a_cache():
    cache = Cache(CacheLimits(8, 1000))

    def work(seed):
        for number in range(2000):
            key = (number * seed) % 13
            assert cache.get_or_make(key, lambda key=key: key, lambda _: 7) == key

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2, 3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    info = cache.info
    assert (info.entries, info.size) == (8, 56)
    assert info.hits + info.misses == 8000


@pytest.mark.parametrize("name", ["entries", "size"])
@pytest.mark.parametrize("value", [-1, 1.5, None, True, "many"])
def test_limits_are_numbers(name, value):
    with pytest.raises(InvalidArgument) as caught:
        CacheLimits(**{"entries": 1, "size": 1, name: value})
    assert str(caught.value).startswith(f"CacheLimits: {name} must be an integer between 0 and {2**64 - 1}, got ")


def test_limits_are_limits():
    with pytest.raises(InvalidArgument) as caught:
        filled(1, 1).limits = 3
    assert str(caught.value) == "limits must be CacheLimits, got int"


def test_programs_are_bounded(monkeypatch):
    monkeypatch.setattr(compiler, "programs", Cache(CacheLimits(2, 1 << 20)))
    target = Device("numpy").backend.target
    first, *_ = [compiler.compile_operator(desc, target) for desc in _subtractions(3)]
    assert len(compiler.programs) == 2
    assert compiler.compile_operator(next(_subtractions(1)), target) is not first


def test_the_size_of_programs_counts_their_text(monkeypatch):
    monkeypatch.setattr(compiler, "programs", Cache(CacheLimits(2, 1 << 20)))
    (kernel,) = compiler.compile_operator(next(_subtractions(1)), Device("numpy").backend.target).kernels
    assert compiler.programs.info.size > len(kernel.wgsl)


def test_a_device_that_compiles_nothing_has_an_empty_cache():
    device = Device("numpy")
    device.compile_operator(device.create_operator(next(_subtractions(1))))
    device.pipeline_cache.clear()
    assert device.pipeline_cache.info.entries == 0


def _subtractions(count):
    """Return descriptions of different sizes."""
    for size in range(4, 4 + count):
        tensor = type(subtract().a_tensor)(subtract().a_tensor.data_type, (1, 1, 1, size))
        yield subtract(tensor, tensor, tensor)


def _unbounded(path):
    """Yield functions with arguments whose results a file caches without bound and without a comment that explains
    it."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef) or not node.args.args:
            continue
        for decorator in node.decorator_list:
            called = ast.unparse(decorator)
            if called in ("functools.cache", "cache") or re.search(r"lru_cache\((maxsize=)?None\)", called):
                around = lines[decorator.lineno - 2 : decorator.lineno]
                if not any("bounded by" in line.lower() for line in around):
                    yield f"{path.relative_to(PACKAGE.parent)}:{node.lineno} {node.name}"


@pytest.mark.slow
def test_unbounded_caches_have_a_comment_that_names_their_bound():
    assert [result for path in sorted(PACKAGE.rglob("*.py")) for result in _unbounded(path)] == []
