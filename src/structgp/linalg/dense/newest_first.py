"""Gaussian prediction from the newest 0, 1, …, R points at once, with one O(R²) update for a new point.

With the points ordered newest first, the leading blocks of one Cholesky factor C = L Lᵀ serve every run length. Kept are the
rows of W = L⁻¹, which are the normalised errors b_r of predicting the r-th newest point from the newer ones, and their values
u = W y. A next point with variance a and covariances k has t = W k, and given the newest r points

    mean_r = Σ_{j<r} t_j u_j,     v_r = a − Σ_{j<r} t_j².

Its own errors f_0 = it, f_{r+1} = f_r − t_r b_r (variance v_r) turn the old errors into those that also know the new point,

    b′_0 = f_0 / √v_0,     b′_{r+1} = (b_r − t_r f_r / v_r) √(v_r / v_{r+1}),

which is Levinson's recursion for any covariance. Rows beyond the points that were seen are zero and stay so.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float


class Whitened(eqx.Module):
    """W and u of the newest R points."""

    W: Float[Array, "R R"]
    u: Float[Array, " R"]


def nothing(size: int) -> Whitened:
    """Before any point is seen."""
    return Whitened(jnp.zeros((size, size)), jnp.zeros(size))


def look(seen: Whitened, k: Float[Array, " R"], a: Float[Array, ""]) -> tuple[Float[Array, " R1"], Float[Array, " R1"]]:
    """Mean and variance of a point given the newest 0, 1, …, R points; k are its covariances with them, newest first."""
    t = jnp.sum(seen.W * k, axis=1)
    before = lambda x: jnp.concatenate([jnp.zeros(1), jnp.cumsum(x)])
    return before(t * seen.u), a - before(t * t)


def prepend(seen: Whitened, k: Float[Array, " R"], a: Float[Array, ""], y: Float[Array, ""]) -> Whitened:
    """With a point in front; the oldest falls out at the end."""
    R = len(seen.u)

    def step(carry, row):
        f, e, v = carry  # f_r as weights of the points, its value, its variance; the new point comes first
        w, u = row
        t = jnp.sum(w * k)
        b = jnp.concatenate([jnp.zeros(1), w])
        left = v - t * t
        scale = jnp.sqrt(v / left)
        return (f - t * b, e - t * u, left), ((b - t / v * f)[:R] * scale, (u - t / v * e) * scale)

    first = jnp.zeros(R + 1).at[0].set(1.0)
    _, (W, u) = lax.scan(step, (first, y, a), (seen.W, seen.u))
    root = jnp.sqrt(a)
    return Whitened(
        jnp.concatenate([(first[:R] / root)[None], W[:-1]]),
        jnp.concatenate([(y / root)[None], u[:-1]]),
    )
