"""The yardstick: plain NumPy and LAPACK, which no release of structgp changes; times are told as multiples of it."""

import numpy as np

from benchmarks.registry import Run, problem


def make(N: int):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((N, N))
    return A @ A.T + N * np.eye(N), rng.standard_normal(1000 * N)


YARDSTICK = problem(
    name="yardstick",
    about="a Cholesky factor, sorting, elementwise functions and a loop in Python: how fast this machine is now",
    make=make,
    sizes=(1000,),
    quick=(100,),
    references=("numpy",),
)


@YARDSTICK.method("numpy")
def numpy(data):
    C, x = data

    def call():
        log_det = 2 * np.log(np.diag(np.linalg.cholesky(C))).sum()
        spread = np.cumsum(np.exp(-np.abs(np.sort(x))))[-1]
        return {"log_det": float(log_det), "spread": float(spread), "loop": sum(i % 7 for i in range(300 * len(C)))}

    return Run(call)
