import pytest

import structgp as sg
from structgp.parameters.tree import leaves
from structgp.tables.expression import ExpressionError, kernel_names, parse_kernel


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        ("Matern52", sg.Matern52()),
        ("  Matern52 + Periodic(period=1)*Matern32", sg.Matern52() + sg.Periodic(period=1.0) * sg.Matern32()),
        ("2 * (Linear + Constant(3))", 2 * (sg.Linear() + sg.Constant(3.0))),
        ("Linear(variance=1, center=-0.5)", sg.Linear(center=-0.5)),
        ("SquaredExponential(lengthscale=[1, 2]).on(0, 2)", sg.SquaredExponential([1.0, 2.0]).on(0, 2)),
        ("Matern(nu=1.5).on('b') + On(Wiener, 'a')", sg.Matern(nu=1.5).on(1) + sg.Wiener().on(0)),
        ("ChangePoint(Matern12, Matern32, location=2, width=0.5)", sg.ChangePoint(sg.Matern12(), sg.Matern32(), 2.0, 0.5)),
    ],
)
def test_expressions_are_the_kernels_they_look_like(text, kernel):
    parsed = parse_kernel(text, columns=["a", "b", "c"])
    assert repr(parsed) == repr(kernel)
    assert type(parsed) is type(kernel)


def test_what_is_fixed_is_not_learned():
    held = {leaf.path: leaf.fixed for leaf in leaves(parse_kernel("Periodic(period=fixed(1)) + Matern52"))}
    assert held["terms[0].period"]
    assert not held["terms[0].lengthscale"]


@pytest.mark.parametrize("name", ["Kernel", "Warp", "Sum"])
def test_only_whole_kernels_have_names(name):
    assert name not in kernel_names()


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        ("", 0, "is empty"),
        ("Matern52 + Matren32", 11, r"no kernel 'Matren32' \(did you mean Matern32"),
        ("Matern52 + periodic(period=1)", 11, "did you mean Periodic"),
        ("Periodic(perod=1)", 9, r"no 'perod' \(did you mean period\?\): it has period, lengthscale, variance"),
        ("Matern52 - Matern32", 9, r"only \+ and \* combine"),
        ("Matern52 + 3", 11, "a level is Constant"),
        ("2 * 3", 0, "needs a kernel on one side"),
        ("Matern52(lengthscale=-1)", 0, "positive"),
        ("Matern52(1, 2, 3)", 15, "takes 2 values"),
        ("Matern52 +", 10, "not a kernel expression"),
        ("Matern52.on('spede')", 12, "did you mean speed"),
        ("Matern52.on(7)", 12, "below 3"),
        ("Matern52.plan(0)", 0, "only .on"),
        ("Matern52(*[1])", 9, "write the values out"),
        ("__import__('os').system('true')", 0, r"no \.system"),
        ("[k for k in (1,)]", 0, "no meaning"),
        ("(lambda: 1)()", 1, "only kernels can be called"),
        ("Matern52 * 'age'", 11, "not by 'age'"),
        ("Matern52(lengthscale='b')", 21, "lengthscale of Matern52 is a number, not the text 'b'"),
        ("Matern52(1, lengthscale=2)", 12, "given 'lengthscale' twice: leave one of them out"),
        ("Matern52(variance=1, variance=2)", 21, "given 'variance' twice"),
        ("Matern(1.5)", 0, r"needs its order by name, as in Matern\(nu=1.5\)"),
        ("Constant.on('é') + Foo", 19, "no kernel 'Foo'"),
    ],
)
def test_errors_point_at_the_place(text, at, message):
    with pytest.raises(ExpressionError, match=message) as caught:
        parse_kernel(text, columns=["age", "speed", "é"])
    assert caught.value.at == at
    if text:
        _, shown, mark = str(caught.value).splitlines()
        assert shown.strip() == text
        assert mark.index("^") == at + 2
