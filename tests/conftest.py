import collections
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


# Nearly all the time of the tests is XLA's, about a third of a second for each program. So programs are counted, whether
# they are compiled or found in the cache on disk, and a session of `make test` with too many of them fails.
BUDGET = 2600
COMMON = 150  # what one more process asks for again, because each has its own memory
DELIBERATE = "not full"

_programs: collections.Counter[str] = collections.Counter()  # by test
_asking = ["collection"]
_processes = []


def _count(event, _seconds, **_about):
    if event == "/jax/core/compile/backend_compile_duration":
        _programs[_asking[-1]] += 1


jax.monitoring.register_event_duration_secs_listener(_count)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    _asking.append(item.nodeid)
    try:
        return (yield)
    finally:
        _asking.pop()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """A process of pytest-xdist hands over its count."""
    _processes.append(node)
    _programs.update(getattr(node, "workeroutput", {}).get("programs", {}))


def _most():
    return BUDGET + COMMON * max(0, len(_processes) - 2)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["programs"] = dict(_programs)
    elif session.config.option.markexpr == DELIBERATE and _programs.total() > _most():
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    total = _programs.total()
    terminalreporter.write_line(f"{total} XLA programs")
    if config.option.markexpr == DELIBERATE and total > _most():
        terminalreporter.section("too many XLA programs", red=True)
        terminalreporter.write_line(
            f"{total} programs are more than the {_most()} that `make test` may take: share shapes, let one program serve a "
            "law, or mark products with `full` (CONTRIBUTING.md, 'Tests in minutes'). The tests that ask for most:"
        )
        for test, count in _programs.most_common(30):
            terminalreporter.write_line(f"{count:6d}  {test}")
