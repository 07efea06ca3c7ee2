"""Evidence and gradient of a Matérn-3/2 series on an accelerator: joined in parallel, against one place after the other.

    python -m benchmarks.gpu_markov [--sizes 1000000 10000000] [--json FILE]

Times are of value and gradient in lengthscale, variance and noise, float64, warm, best and median of several calls.
"""

import argparse
import functools
import json
import platform
import time

import jax
import jax.numpy as jnp
import numpy as np

from structgp.linalg.filters import kalman, kalman_parallel
from structgp.linalg.markov import chains


def objective(evidence):
    """The log evidence of (lengthscale, variance, noise) as a function that can be differentiated and compiled."""

    def log_evidence(theta, gaps, y):
        chain = chains.Matern(2, jnp.sqrt(3.0) / theta[0], theta[1])
        log_det, gram = evidence(chain, gaps, jnp.full(len(gaps), 1 / theta[2]), y[:, None])
        return -0.5 * (log_det + gram[0, 0] + len(gaps) * jnp.log(2 * jnp.pi))

    return jax.jit(jax.value_and_grad(log_evidence))


def measure(name, function, theta, gaps, y, repeats):
    began = time.perf_counter()
    value, gradient = jax.block_until_ready(function(theta, gaps, y))
    first = time.perf_counter() - began
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(function(theta, gaps, y))
        times.append(time.perf_counter() - began)
    row = {
        "method": name,
        "N": len(y),
        "first_s": first,
        "best_ms": 1e3 * min(times),
        "median_ms": 1e3 * float(np.median(times)),
    }
    row |= {"value": float(value), "gradient": [float(g) for g in gradient]}
    print(
        f"{name:<24} N={len(y):>9}  best {row['best_ms']:9.2f} ms  median {row['median_ms']:9.2f} ms  first {first:6.1f} s",
        flush=True,
    )
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10**6, 10**7])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--segments", type=int, nargs="+", default=[kalman_parallel.SEGMENT], help="places in a segment")
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = []
    with jax.enable_x64(True):
        device = jax.devices()[0]
        print(f"{device.device_kind} ({device.platform}), jax {jax.__version__}, {platform.machine()}")
        theta = jnp.asarray([0.7, 1.3, 0.1])
        for N in options.sizes:
            rng = np.random.default_rng(0)
            gaps = jnp.asarray(rng.exponential(0.1, N))
            y = jnp.asarray(np.sin(np.cumsum(np.asarray(gaps))) + 0.3 * rng.standard_normal(N))
            for segment in options.segments:
                joined = functools.partial(kalman_parallel.evidence, accurate=False, segment=segment)
                parallel = measure(f"parallel, segment {segment}", objective(joined), theta, gaps, y, options.repeats)
                rows.append(parallel)
            host = jax.devices("cpu")[0]
            on_host = [jax.device_put(x, host) for x in (theta, gaps, y)]
            with jax.default_device(host):
                sequential = measure("sequential, host CPU", objective(kalman.evidence), *on_host, 3)
            error = np.abs(np.subtract(parallel["gradient"], sequential["gradient"])) / np.abs(sequential["gradient"])
            print(
                f"  differs by {abs(parallel['value'] / sequential['value'] - 1):.1e} in value, {error.max():.1e} in gradient"
            )
            rows.append(sequential)
        if device.platform == "gpu":
            few = slice(0, 10**5)
            rows.append(measure("sequential, this device", objective(kalman.evidence), theta, gaps[few], y[few], 2))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"device": device.device_kind, "jax": jax.__version__, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
