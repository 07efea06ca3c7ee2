"""The filter on a chain, a few places at a time: all that is carried on is the state at the last place.

The steps are those of `kalman` in the exact form, so that a series cut into pieces gives what the whole series does.
States are in the basis of `chain_algebra.observed_first`.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from structgp.linalg.filters import kalman, kalman_emission
from structgp.linalg.markov.chain_algebra import observed_first
from structgp.linalg.markov.chains import Chain
from structgp.linalg.small import form_of


class Filtered(eqx.Module):
    """What a filter knows: the state at its last place, and log |K + W⁻¹| and Tᵀ (K + W⁻¹)⁻¹ T so far."""

    m: Float[Array, "D C"]
    P: Float[Array, "D D"]
    log_det: Float[Array, ""]
    gram: Float[Array, "C C"]


def begin(chain: Chain, columns: int) -> Filtered:
    """Before anything is seen, at the place where the chain begins."""
    chain = observed_first(chain)
    m, P = jnp.zeros((chain.size, columns)), chain.start()
    return Filtered(m, 0.5 * (P + P.T), jnp.zeros(()), jnp.zeros((columns, columns)))


def advance(
    chain: Chain,
    state: Filtered,
    since: Float[Array, ""],
    t: Float[Array, " N"],
    precision: Float[Array, " N"],
    columns: Float[Array, "N C"],
    which: Int[Array, " N"] | None = None,
) -> Filtered:
    """Go on from the last place, `since`, to N more; precision 0: nothing seen there."""
    if chain.varies:
        return _advance_varying(chain, state, since, t, precision, columns, which)
    chain, gaps = observed_first(chain), jnp.diff(t, prepend=jnp.reshape(since, 1))
    form, options = form_of(chain.size), kalman.Options(accurate=True)
    columns = jnp.where(precision[:, None] == 0, 0.0, columns)
    xs = kalman.stream(form, options, (chain.transition(gaps), chain.noise(gaps)), precision, columns)

    def body(state, x):
        A, Q, w, t = kalman.read(form, x)
        m, P = kalman.unpack_state(form, state)
        m_, P_, _ = kalman.reach(form, options, None, m, P, A, Q)
        m, P, _ = kalman.see(form, options, m_, P_, w, t)
        return kalman.pack_state(form, m, P), (form.pack(P_[:1, :1]), form.pack(m_[:1]))

    last, (p, mean) = lax.scan(body, kalman.pack_state(form, form.of(state.m), form.of(state.P)), xs)
    m, P = (form.array(x) for x in kalman.unpack_state(form, last))
    column = lambda M: jnp.moveaxis(form.array(form.unpack(M))[0], 0, -1)
    log_det, gram = _terms(precision[:, None], columns, column(p), column(mean))
    return Filtered(m, 0.5 * (P + P.T), state.log_det + log_det, state.gram + gram)


def _advance_varying(chain, state, since, t, precision, columns, which):
    """The same for a chain whose row depends on the place: its state stands behind a place for f, which is left empty."""
    inner = state.m[1:], state.P[1:, 1:]
    (m, P), log_det, gram = kalman_emission.advance(chain, inner, since, t, precision, columns, which)
    m, P = jnp.pad(m, ((1, 0), (0, 0))), jnp.pad(P, ((1, 0), (1, 0)))
    return Filtered(m, P, state.log_det + log_det, state.gram + gram)


def _terms(w, T, p, mean):
    """What the places add to log_det and gram, from (place, column) arrays."""
    d, e = 1.0 + w * p, T - mean
    log_det = jnp.sum(jnp.where(w > 0, jnp.log(d / jnp.where(w > 0, w, 1.0)), 0.0))
    return log_det, (w / d * e).T @ e


def ahead(chain: Chain, state: Filtered, gaps: Float[Array, " M"]) -> tuple[Float[Array, "M D C"], Float[Array, "M D D"]]:
    """Mean and covariance of the state at places this far after the last one."""
    chain = observed_first(chain)
    A = jnp.moveaxis(chain.transition(gaps), -1, 0)
    return A @ state.m, A @ state.P @ A.mT + jnp.moveaxis(chain.noise(gaps), -1, 0)
