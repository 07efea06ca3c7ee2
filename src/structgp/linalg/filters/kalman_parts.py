"""A long series in parts: what each part has to say to the others, small as it is, and what it hears from them.

A part begins just before its first site and ends at the first place of the next part, where it has no site. With z the state at
its beginning, the part says that it leaves A z + b with covariance C at its end, and that its observations are as probable as
exp(−½ zᵀJz + zᵀη) makes them. The filter itself finds that, from m = [0 | I], P = 0 with columns [T | 0]: then b and A are the
columns of the last m, C the last P, and with the gram G over those columns J = G_ZZ, η = −G_ZT.

From all messages follow (m, P) at the beginning of every part, with F = (I + PJ)⁻¹,

    m ← A F (m + Pη) + b,    P ← A F P Aᵀ + C,

and backwards what all later parts say at its end, with J₂ and η₂ from behind the part,

    J ← Aᵀ(I + J₂C)⁻¹J₂A + J,    η ← Aᵀ(I + J₂C)⁻¹(η₂ − J₂b) + η,

which in terms of the filtered (m, P) there is r = (I + JP)⁻¹(η − Jm), N = (I + JP)⁻¹J: the adjoint's (r, N), and the
smoother's.

Most chains forget. Where A over the first and over the last places of a part is zero to rounding, (J, η) of the first and
(b, C) of the last are the message of all of it, and nothing between them has to be looked at.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from structgp.linalg.filters import kalman, kalman_emission, kalman_parallel
from structgp.linalg.filters.kalman import Others
from structgp.linalg.markov.chain_algebra import observed_first
from structgp.linalg.markov.chains import Chain
from structgp.linalg.small import form_of

EDGE = 1024  # places at either end that are all of the message, once the filter has forgotten
FORGOTTEN = 1e-18  # of a state in units of its standard deviation, after so many places


class Message(NamedTuple):
    """What a part says of the state at its end, given that at its beginning, and of the latter."""

    A: Float[Any, "D D"]
    b: Float[Any, "D C"]
    C: Float[Any, "D D"]
    eta: Float[Any, "D C"]
    J: Float[Any, "D D"]


def message(chain: Chain, t: Float[Array, " N"], precision: Float[Array, " N"], columns: Float[Array, "N C"]) -> Message:
    """The message of all places of a part, exact for any chain."""
    C, D = columns.shape[1], chain.size
    known = jnp.concatenate([jnp.zeros((D, C)), jnp.eye(D)], axis=1), jnp.zeros((D, D))
    columns = jnp.concatenate([jnp.where(precision[:, None] == 0, 0.0, columns), jnp.zeros((len(columns), D))], axis=1)
    if chain.varies:
        (_, gram), (m, P) = kalman_emission.filtered(chain, t, precision, columns, begin=known)
    else:
        options = kalman.Options(True, False, min(kalman.Options().segment, len(t)))
        data = (kalman.segments(x, options) for x in (jnp.diff(t, prepend=t[:1]), precision, columns))
        (_, gram), _, last = kalman.forward(observed_first(chain), options, *data, known)
        form = form_of(D, C + D)
        m, P = (form.array(x) for x in kalman.unpack_state(form, last))
    return Message(m[:, C:], m[:, :C], P, -gram[C:, :C], gram[C:, C:])


def message_at_once(
    chain: Chain, t: Float[Array, " N"], precision: Float[Array, " N"], columns: Float[Array, "N C"]
) -> Message:
    """The same with many places at a time, for machines with many lanes."""
    gaps = jnp.diff(t, prepend=t[:1])
    return Message(*kalman_parallel.message(chain, gaps, precision, columns))


def of_edges(head: Message, tail: Message) -> Message:
    """The message of a part that has forgotten its beginning, from those of its first and of its last places."""
    return Message(jnp.zeros_like(head.A), tail.b, tail.C, head.eta, head.J)


def forgets(chain: Chain, edge: Message) -> Array:
    """Whether nothing is left of the state after these places."""
    variance = jnp.diagonal(observed_first(chain).start())
    units = jnp.sqrt(variance[None, :] / variance[:, None])
    return jnp.max(jnp.abs(edge.A) * units) < FORGOTTEN


def meet(begin: tuple[Float[Any, "D C"], Float[Any, "D D"]], messages: list[Message]) -> list[Others]:
    """What every part hears, from what is known before the first of them and from all messages, in the order of time."""
    m, P = (np.asarray(part, dtype=float) for part in begin)
    eye = np.eye(len(P))
    begins = []
    for A, b, C, eta, J in messages:
        begins.append((m, P))
        F = np.linalg.solve(eye + P @ J, np.concatenate([m + P @ eta, P], axis=1))
        m, P = A @ F[:, : m.shape[1]] + b, _symmetric(A @ F[:, m.shape[1] :] @ A.T + C)
    begins.append((m, P))
    J2, eta2, news = np.zeros_like(P), np.zeros_like(m), []
    for (A, b, C, eta, J), before, (m, P) in zip(messages[::-1], begins[-2::-1], begins[:0:-1], strict=True):
        later = np.linalg.solve(eye + J2 @ P, np.concatenate([eta2 - J2 @ m, J2], axis=1))
        news.append(Others(*before, later[:, : m.shape[1]], _symmetric(later[:, m.shape[1] :]), np.zeros(())))
        through = A.T @ np.linalg.solve(eye + J2 @ C, np.concatenate([eta2 - J2 @ b, J2 @ A], axis=1))
        eta2, J2 = through[:, : m.shape[1]] + eta, _symmetric(through[:, m.shape[1] :] + J)
    return [news[-1]._replace(first=np.ones(())), *news[-2::-1]]


def _symmetric(P: np.ndarray) -> np.ndarray:
    return 0.5 * (P + P.T)
