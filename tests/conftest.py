import itertools
import os
from pathlib import Path

import hypothesis
import jax
import pytest

hypothesis.settings.register_profile("quick", deadline=None, derandomize=True, max_examples=25, database=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture
def x64():
    """64-bit JAX for tests that call it themselves; the library's own door does not need it."""
    with jax.enable_x64(True):
        yield


MAPPED = 30_000  # Linux allows a process 65,530 mappings; every compiled program takes some, and a crash follows the last
_finished = itertools.count()


def pytest_runtest_teardown():
    """Let go of compiled programs when there are many: those that are needed again come from the cache on disk."""
    maps = Path("/proc/self/maps")
    if next(_finished) % 20 == 0 and maps.exists() and maps.read_bytes().count(b"\n") > MAPPED:
        jax.clear_caches()
