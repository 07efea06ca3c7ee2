"""What is begun before it is needed."""

import functools
import threading

import jax
import numpy as np

from structgp.background import FEW, Early, Program, compiling


def counted():
    """A program, and how often it was traced."""
    traced = []

    @functools.partial(jax.jit, static_argnames="power")
    def program(x, power):
        traced.append(power)
        return x**power

    return program, traced


def test_a_call_finds_what_was_compiled_ahead():
    program, traced = counted()
    compiling(program, np.ones(3), 2).wait()
    assert traced == [2]
    with jax.enable_x64(True):
        np.testing.assert_array_equal(program(np.full(3, 3.0), 2), 9.0)
    assert traced == [2]


def test_other_arguments_are_compiled_when_they_come():
    program, traced = counted()
    compiling(program, np.ones(3), 2).wait()
    with jax.enable_x64(True):
        np.testing.assert_array_equal(program(np.full(3, 3.0), 3), 27.0)
    assert traced == [2, 3]


def test_what_cannot_be_compiled_is_left_to_the_call(capfd):
    program, _ = counted()
    compiling(program, "text", 2).wait()
    assert capfd.readouterr() == ("", "")


def test_work_is_done_when_its_context_ends():
    done = []
    with Early(lambda: done.append(jax.numpy.zeros(1).dtype)):
        pass
    assert done == [np.float64]


def test_what_can_wait_comes_after_what_is_needed_first():
    done, gate = [], threading.Event()
    first = Early(lambda: (gate.wait(60), done.append("first")))
    with Early(lambda: done.append("second"), after=first):
        gate.set()
    assert done == ["first", "second"]


def test_few_rows_are_compiled_quickly_to_the_same_numbers():
    doubled = Program(lambda x, times: times * x, static_argnames="times")
    assert doubled.of(FEW) is doubled.quickly
    assert doubled.of(FEW + 1) is doubled.well
    np.testing.assert_array_equal(doubled.of(1)(np.arange(3.0), times=2), doubled.of(FEW + 1)(np.arange(3.0), times=2))
