"""What a chain's states would say of its parameters if they were seen: moments of their path, and its expected log density.

A path z₁, …, z_N moves by pushes ε_t = z_t − A z_{t−1} ~ N(0, Q). The smoother's (r⁻, N⁻) after a place give them without any
difference of large numbers,

    E ε = Q r⁻,   Cov ε = Q − Q N⁻ Q,   Cov(z_{t−1}, ε_t) = −P Aᵀ N⁻ Q,

and for other parameters z_t − A′z_{t−1} = ε_t + (A − A′) z_{t−1}, where over short gaps

    A(δ) − A′(δ) = ∫₀^δ A′(δ − s) (F − F′) A(s) ds

is a sum of small terms: a path says much of small differences there. Columns are those of T targets and of basis functions
whose weights have the mean β and the covariance R Rᵀ, so that z = z_y − z_Φ β. Moments are sums over the targets.

The coordinates of a path must not change with the parameters: they are f and its derivatives where a chain counts its state in
other units.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Num

from structgp.linalg.filters.kalman_smooth import Smoothed
from structgp.linalg.markov.chain_algebra import Product, Scaled, Sum, read_weights
from structgp.linalg.markov.chain_base import Chain, block_diagonal
from structgp.linalg.markov.chains import Matern, White
from structgp.linalg.markov.oscillator import Oscillator

NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)
SHORT = 1.0  # largest gap, in units of the fastest rate, for the integral


@functools.singledispatch
def units(chain: Chain) -> Float[Array, " D"]:
    """The coordinates of a path in units of the chain's own state."""
    return jnp.ones(chain.size)


@units.register
def _(chain: Matern):
    return chain.rate ** np.arange(chain.states)


@units.register
def _(chain: Oscillator):
    return jnp.stack([jnp.ones(()), jnp.sqrt(chain.frequency**2 + chain.decay**2)])


@units.register
def _(chain: Scaled):
    return units(chain.chain)


@units.register
def _(chain: Sum):
    return jnp.concatenate([units(part) for part in chain.parts])


@units.register
def _(chain: Product):
    return jnp.kron(units(chain.left), units(chain.right))


@functools.singledispatch
def drift(chain: Chain) -> Float[Array, "D D"]:
    """F in the coordinates of a path; what no parameter changes in it is the same to the last digit."""
    return chain.generator()


@drift.register(Matern)
@drift.register(Oscillator)
def _(chain):
    u = units(chain)
    return jnp.concatenate([np.eye(chain.size, k=1)[:-1], (u[:, None] * chain.generator() / u)[-1:]])


@drift.register
def _(chain: Scaled):
    return drift(chain.chain)


@drift.register
def _(chain: Sum):
    return block_diagonal([drift(part) for part in chain.parts])


@drift.register
def _(chain: Product):
    return jnp.kron(drift(chain.left), np.eye(chain.right.size)) + jnp.kron(np.eye(chain.left.size), drift(chain.right))


class Path(eqx.Module):
    """Second moments of the path of a chain, in coordinates that no parameter changes; steps are N − 1."""

    first: Float[Array, "D D"]  # z₁z₁ᵀ
    before: Float[Array, "n D D"]  # z_{t−1} z_{t−1}ᵀ
    push: Float[Array, "n D D"]  # ε ε ᵀ
    cross: Float[Array, "n D D"]  # z_{t−1} εᵀ
    gaps: Float[Array, " n"]
    columns: int = eqx.field(static=True)

    def block(self, at: int, size: int) -> "Path":
        """The part of the path that belongs to some of the coordinates."""
        cut = lambda M: M[..., at : at + size, at : at + size]
        return Path(cut(self.first), cut(self.before), cut(self.push), cut(self.cross), self.gaps, self.columns)


def path(
    chain: Chain, gaps: Float[Array, " N"], smoothed: Smoothed, beta: Float[Array, "P T"], root: Float[Array, "P P"]
) -> tuple[Path, Float[Array, "N T"], Float[Array, "N P"]]:
    """The moments of a path given everything; and, at each place, E f and the derivative of f in the weights, times R."""
    T, B = beta.shape[1], np.asarray(read_weights(chain, np.eye(chain.size)))  # from the smoother's basis to the chain's own
    A, Q = (jnp.moveaxis(move(gaps[1:]), -1, 0) for move in (chain.transition, chain.noise))
    into = np.linalg.inv(B)
    P, r, N = B @ smoothed.P[:-1] @ B.T, into.T @ smoothed.r_seen[1:], into.T @ smoothed.N_seen[1:] @ into
    mean, covariance = smoothed.states()
    mixed = lambda columns: (columns[..., :T] - columns[..., T:] @ beta, columns[..., T:] @ root)
    z, e, u = mixed(B @ mean), mixed(Q @ r), units(chain)
    second = lambda a, b, C: u[:, None] * (a[0] @ b[0].mT + T * (C + a[1] @ b[1].mT)) * u
    states = second(z, z, B @ covariance @ B.T)
    cross = second((z[0][:-1], z[1][:-1]), e, -P @ A.mT @ N @ Q)
    f, slope = mixed(mean[:, 0])
    return Path(states[0], states[:-1], second(e, e, Q - Q @ N @ Q), cross, gaps[1:], T), f, slope


def _moves(chain, gaps):
    """A(δ) in the coordinates of a path: (*gaps, D, D)."""
    u = units(chain)
    return u[:, None] * jnp.moveaxis(chain.transition(gaps), (0, 1), (-2, -1)) / u


def _change(old, new, gaps):
    """A(δ) of one chain less that of another."""
    difference = _moves(old, gaps) - _moves(new, gaps)
    if _jumps(old):
        return difference
    reach = jnp.maximum(jnp.max(jnp.abs(old.generator())), jnp.max(jnp.abs(new.generator())))
    short = reach * gaps < SHORT
    near = jnp.where(short, gaps, 0.0)
    s = near[:, None] * 0.5 * (NODES + 1)
    terms = _moves(new, near[:, None] - s) @ (drift(old) - drift(new)) @ _moves(old, s)
    integral = 0.5 * near[:, None, None] * jnp.sum(WEIGHTS[:, None, None] * terms, 1)
    return jnp.where(short[:, None, None], integral, difference)


def _jumps(chain):
    """Whether a chain holds one that forgets its state at once, which no rate describes."""
    return any(isinstance(node, White) for node in jax.tree.leaves(chain, is_leaf=lambda node: isinstance(node, White)))


def log_dets_and_traces(chain: Chain, old: Chain, path: Path) -> tuple[Float[Array, ""], Float[Array, ""], Num[Array, ""]]:
    """log|V| + Σ log|Q|, tr V⁻¹S₁ + Σ tr Q⁻¹M, and the number of Gaussians, for a path whose pushes are those of an old chain.

    The expected log density is −½ (T · the first + the second). Places that repeat the one before have no push.
    """
    moving = path.gaps > 0
    gaps, u = jnp.where(moving, path.gaps, 1.0), units(chain)
    change = _change(old, chain, gaps)
    both = change @ path.cross
    M = path.push + change @ path.before @ change.mT + both + both.mT
    log_det, trace = _gaussian(u[:, None] * jnp.moveaxis(chain.noise(gaps), -1, 0) * u, M)
    log_first, trace_first = _gaussian(u[:, None] * chain.start() * u, path.first)
    add = lambda terms: jnp.sum(jnp.where(moving, terms, 0.0))
    return log_first + add(log_det), trace_first + add(trace), 1 + jnp.sum(moving)


def _gaussian(Q, M):
    """log|Q| and tr Q⁻¹M through the factor of Q with a unit diagonal: close places make Q small in very unequal ways."""
    s = jnp.sqrt(jnp.diagonal(Q, axis1=-2, axis2=-1))
    scaled = lambda X: X / s[..., :, None] / s[..., None, :]
    L = jnp.linalg.cholesky(scaled(Q))
    half = lax.linalg.triangular_solve(L, scaled(M), left_side=True, lower=True)
    both = lax.linalg.triangular_solve(L, half.mT, left_side=True, lower=True)
    log_det = 2 * jnp.sum(jnp.log(s) + jnp.log(jnp.diagonal(L, axis1=-2, axis2=-1)), -1)
    return log_det, jnp.trace(both, axis1=-2, axis2=-1)
