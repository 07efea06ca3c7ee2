import collections
import gc
import itertools
import os
import sys
from pathlib import Path

import hypothesis
import jax
import pytest

if os.environ.get("STRUCTGP_SHAPES"):  # before anything imports the package
    import shapes

    shapes.check_structgp()

hypothesis.settings.register_profile("quick", deadline=None, derandomize=True, max_examples=25, database=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture
def x64():
    """64-bit JAX for tests that call it themselves; the library's own door does not need it."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def _reference_machine(monkeypatch):
    """Plans say the same on every machine, and nothing is measured for them."""
    from structgp.engines import machine, plan

    monkeypatch.setattr(plan, "at_hand", machine.reference)


def pytest_collectstart():
    """What is imported stays: there is no garbage to look for."""
    gc.disable()


def pytest_collection_finish():
    """What was imported is never looked at again."""
    gc.freeze()
    gc.enable()


MAPPED = 30_000  # Linux allows a process 65,530 mappings; every compiled program takes some, and a crash follows the last
_finished = itertools.count()


def pytest_runtest_teardown():
    """Let go of pictures, and of many compiled programs: those that are needed again come from the cache on disk."""
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close("all")
    maps = Path("/proc/self/maps")
    if next(_finished) % 20 == 0 and maps.exists() and maps.read_bytes().count(b"\n") > MAPPED:
        jax.clear_caches()
        gc.collect()  # programs that are held in a circle as well


# Nearly all the time of the tests is XLA's, so that programs are counted, whether they are compiled or found in the cache on
# disk, and a session of `make test` with too many of them fails (CONTRIBUTING.md, "Tests in minutes").
BUDGET = 8_600  # for two processes: about 7,900 are expected, more where programs are let go of and asked for again
COMMON = 150  # what one more process asks for again, because each has its own memory
MAKE_TEST = "not full"  # the tests that it selects

_programs: collections.Counter[str] = collections.Counter()  # by the test that asked for them
_asking = ["collection"]
_processes = []


def _count(event, _seconds, **_about):
    if event == "/jax/core/compile/backend_compile_duration":
        _programs[_asking[-1]] += 1


jax.monitoring.register_event_duration_secs_listener(_count)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Programs are counted for each test. Averaging over parameters multiplies them: only tests that are about it average."""
    from structgp.learn import peak

    usual = peak.ENOUGH
    _asking.append(item.nodeid)
    peak.ENOUGH = usual if item.get_closest_marker("averaged") else 0
    try:
        return (yield)
    finally:
        _asking.pop()
        peak.ENOUGH = usual


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """A process of pytest-xdist has ended and hands over its count."""
    _processes.append(node)
    _programs.update(getattr(node, "workeroutput", {}).get("programs", {}))


def _allowed(config):
    return BUDGET + COMMON * max(0, len(_processes) - 2) if config.option.markexpr == MAKE_TEST else float("inf")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["programs"] = dict(_programs)
    elif _programs.total() > _allowed(session.config):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    total, allowed = _programs.total(), _allowed(config)
    most = 30 if total > allowed else config.option.durations
    if total and most:
        terminalreporter.section("too many XLA programs" if total > allowed else "most XLA programs", red=total > allowed)
        for test, count in reversed(_programs.most_common(most)):
            terminalreporter.write_line(f"{count:6d}  {test}")
    if total > allowed:
        terminalreporter.write_line(
            f"{total} programs, but `make test` may take {allowed}: share shapes, let one program serve several laws, or mark "
            "what has a representative as `full` (CONTRIBUTING.md, 'Tests in minutes')."
        )
    elif total:
        terminalreporter.write_line(f"{total} XLA programs")
