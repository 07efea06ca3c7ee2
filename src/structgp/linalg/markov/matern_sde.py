"""The numbers of the Matérn process with m states, at unit rate and unit variance.

The process of order ν = m − ½ and rate λ solves (d/dt + λ)^m f = white noise. In the scaled state z_j = f^(j)/λ^j
everything depends on u = λ·gap alone and is of order one:

    F = companion matrix of (s + 1)^m,       A(u) = exp(F u) = e^{−u} Σ_{k<m} (F + I)^k u^k / k!      (F + I is nilpotent)
    V_jk = (−1)^{(j−k)/2} μ_{j+k},  μ_2n = Γ(n+½) Γ(m−n−½) / (Γ(½) Γ(m−½))   (spectral moments; odd ones vanish)
    Q(u) = q ∫₀ᵘ c(h) c(h)ᵀ dh,              c(h) = last column of A(h),   q = 2√π Γ(m)/Γ(m−½)

V − A V Aᵀ equals Q but cancels for small u. Since c_j c_k = e^{−2h} Σ_p a_p h^p, and with x = 2u

    ∫₀ᵘ h^p e^{−2h} dh = u^{p+1} g_p,    g_p = γ(p+1, x)/x^{p+1},    g_{p−1} = (x g_p + e^{−x})/p,

one series of positive terms at the highest p and a recurrence of positive terms give every entry to its own scale. From
u = u₀ on the difference is the better form. The derivative is closed: dQ/du = q c(u) c(u)ᵀ.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from structgp.linalg.markov.chain_base import horner, spread

_TERMS = 34  # of the incomplete-gamma series: below 1e-17 for x ≤ 2 u₀ ≤ 5
_FAR = 700.0  # e^{−u} is zero to rounding beyond; also keeps u^k finite


@functools.cache
def generator(m: int) -> np.ndarray:
    """F: the companion matrix of (s + 1)^m."""
    F = np.eye(m, k=1)
    F[-1] = [-math.comb(m, j) for j in range(m)]
    return F


@functools.cache
def nilpotent_terms(m: int) -> np.ndarray:
    """(F + I)^k / k! for k = 0, …, m−1, stacked: the polynomial part of A."""
    n = generator(m) + np.eye(m)
    return np.stack([np.linalg.matrix_power(n, k) / math.factorial(k) for k in range(m)])


@functools.cache
def stationary(m: int) -> np.ndarray:
    """V at unit variance, from the spectral moments."""
    moment = lambda n: math.gamma(n + 0.5) * math.gamma(m - n - 0.5) / (math.gamma(0.5) * math.gamma(m - 0.5))
    V = np.zeros((m, m))
    for j in range(m):
        for k in range(j % 2, m, 2):
            V[j, k] = (-1) ** ((j - k) // 2) * moment((j + k) // 2)
    return V


def diffusion(m: int) -> float:
    """q: the spectral density of the driving noise at unit rate and variance."""
    return 2 * math.sqrt(math.pi) * math.gamma(m) / math.gamma(m - 0.5)


@functools.cache
def _noise_polynomials(m: int) -> np.ndarray:
    """a[p, j, k]: q c_j c_k = e^{−2h} Σ_p a[p, j, k] h^p."""
    c = nilpotent_terms(m)[:, :, -1]
    a = np.zeros((2 * m - 1, m, m))
    for k in range(m):
        for l in range(m):
            a[k + l] += diffusion(m) * np.outer(c[k], c[l])
    return a


def transition(u: Float[Array, "*gaps"], m: int) -> Float[Array, "m m *gaps"]:
    """A(u) = exp(F u)."""
    u = jnp.minimum(u, _FAR)
    return jnp.exp(-u) * horner(nilpotent_terms(m), u)


def _noise_near(u, m):
    x, top = 2 * u, 2 * m - 2
    # Σ_n x^n / (a (a+1) … (a+n)), a = top + 1, from the far end
    series = 0.0
    for n in range(_TERMS, -1, -1):
        series = (1.0 + x * series) * (1.0 / (top + 1 + n))
    decay = jnp.exp(-x)
    g = [decay * series]
    for p in range(top, 0, -1):
        g.append((x * g[-1] + decay) * (1.0 / p))
    a = _noise_polynomials(m)
    power, Q = u, 0.0
    for p, g_p in enumerate(reversed(g)):
        Q = Q + spread(a[p], u) * (power * g_p)
        power = power * u
    return Q


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def noise(u: Float[Array, "*gaps"], m: int) -> Float[Array, "m m *gaps"]:
    """Q(u), every entry right to its own scale."""
    split = 0.5 if m <= 3 else 0.4 * m - 0.6
    A, V = transition(u, m), stationary(m)
    AV = [sum(A[:, k] * V[k, j] for k in range(m) if V[k, j]) for j in range(m)]
    far = spread(V, u) - sum(AV[j][:, None] * A[None, :, j] for j in range(m))
    return jnp.where(u < split, _noise_near(jnp.minimum(u, split), m), far)


@noise.defjvp
def _noise_jvp(m, primals, tangents):
    (u,), (du,) = primals, tangents
    c = transition(u, m)[:, -1]
    return noise(u, m), diffusion(m) * c[:, None] * c[None, :] * du
