import os

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
