"""Parameters: numbers that know where they live.

A kernel, a likelihood or a mean declares each of its numbers once:

    class Matern32(...):
        lengthscale: Array = parameter(1.0, positive)

From that follow the check of a given value, the map to the whole real line that learning works on, the prior that enters
as a MAP term, and the name in a summary. A value can carry a *note* of its own: `fixed(2.0)` is not learned,
`learned(2.0, prior=LogNormal(0, 1))` has a prior. Notes are static; they are part of what a tree *is*, not of its numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._types import as_float, is_traced
from .priors import Prior
from .supports import Nonnegative, Orthonormal, Simplex, Support, positive

SMALL = 0.01  # of the other numbers, where one that is zero begins to be learned


@dataclasses.dataclass(frozen=True)
class Note:
    """What is said about one parameter of one value: learned or not, within what, believed how."""

    fixed: bool = False
    prior: Prior | None = None
    bounds: tuple[float, float] | None = None


@dataclasses.dataclass(frozen=True)
class Annotated:
    """A value on its way into a constructor, with its note."""

    value: Any
    note: Note


def fixed(value: Any) -> Any:
    """This value is not learned: ``Matern32(lengthscale=fixed(2.0))``."""
    return Annotated(value, Note(fixed=True))


def learned(value: Any, prior: Prior | None = None, bounds: tuple[float, float] | None = None) -> Any:
    """A starting value with a prior, or with bounds for the search: ``Matern32(learned(1.0, prior=LogNormal(0, 1)))``."""
    return Annotated(value, Note(prior=_as_prior(prior), bounds=None if bounds is None else _as_bounds(bounds)))


def parameter(default: Any, support: Support = positive, prior: Prior | None = None) -> Any:
    """Declare a number of a kernel, likelihood or mean: its default, the set it lives in, what is believed of it."""
    metadata = {"support": support, "prior": prior}
    return eqx.field(default=default, converter=as_float, metadata=metadata)


class Parametrised(eqx.Module):
    """An immutable value with declared parameters, possibly made of other such values."""

    stands_for_numbers: ClassVar[bool] = False  # whether it may be given in place of a parameter

    notes: tuple[tuple[str, Note], ...] = eqx.field(static=True, kw_only=True, default=(), repr=False)
    ties: tuple[tuple[str, ...], ...] = eqx.field(static=True, kw_only=True, default=(), repr=False)

    def __post_init__(self) -> None:
        notes = dict(self.notes)
        for name, support in _declared(self).items():
            value = getattr(self, name)
            if isinstance(value, Annotated):
                notes[name], value = value.note, value.value
                if isinstance(value, Parametrised):  # a metric in place of a lengthscale: the note is for all of its numbers
                    value = _annotate(value, (), **vars(notes.pop(name)))
                object.__setattr__(self, name, value)
            bounds = notes[name].bounds if name in notes else None
            if bounds is not None:
                _check_bounds(f"{type(self).__name__}: {name}", support, bounds)
            if isinstance(value, Parametrised) and not value.stands_for_numbers:
                raise TypeError(f"{type(self).__name__}: {name} must be a number or an array of numbers, got {value!r}")
            if isinstance(value, Parametrised) or is_traced(value):
                continue
            if value is None:
                if type(self).__dataclass_fields__[name].default is not None:
                    raise TypeError(f"{type(self).__name__}: {name} must be a number or an array of numbers, got None")
                continue
            support.check(f"{type(self).__name__}: {name}", value)
            if isinstance(support, Nonnegative) and np.all(np.asarray(value) == 0):
                notes[name] = dataclasses.replace(notes.get(name, Note()), fixed=True)
        object.__setattr__(self, "notes", tuple(sorted(notes.items(), key=lambda item: item[0])))

    def replace(self, values: Mapping[str, Any] | None = None, **fields: Any) -> Self:
        """The same value with other numbers: ``k.replace(lengthscale=2)`` or ``k.replace({"terms[0].lengthscale": 2})``."""
        changed = dataclasses.replace(self, **fields) if fields else self
        return with_values(changed, values) if values else changed

    def freeze(self, *paths: str) -> Self:
        """Do not learn these parameters (all of them when none is named)."""
        return _annotate(self, paths, fixed=True)

    def thaw(self, *paths: str) -> Self:
        """Learn these parameters again (all of them when none is named)."""
        return _annotate(self, paths, fixed=False)

    def with_prior(self, priors: Mapping[str, Prior] | None = None, **fields: Prior) -> Self:
        """Believe this of the parameters: ``k.with_prior(lengthscale=LogNormal(0, 1))``; it enters `fit` as MAP."""
        tree = self
        for path, prior in {**(priors or {}), **fields}.items():
            tree = _annotate(tree, (path,), prior=_as_prior(prior))
        return tree

    def with_bounds(self, bounds: Mapping[str, tuple[float, float]] | None = None, **fields: tuple[float, float]) -> Self:
        """Search these parameters only between two values: ``k.with_bounds(lengthscale=(0.1, 10))``."""
        tree = self
        for path, pair in {**(bounds or {}), **fields}.items():
            tree = _annotate(tree, (path,), bounds=_as_bounds(pair))
        return tree

    def tie(self, *paths: str) -> Self:
        """Make these parameters one: they take the value of the first and are learned together."""
        if len(paths) < 2:
            raise ValueError(f"tie needs at least two parameters, got {list(paths)}; see .parameters() for their names")
        values = named_values(self)
        for path in paths:
            _known(values, path, self)
        if len({np.shape(values[path]) for path in paths}) > 1:
            shapes = ", ".join(f"{path}: {np.shape(values[path])}" for path in paths)
            raise ValueError(f"tied parameters need one shape, got {shapes}")
        supports = {leaf.path: leaf.support for leaf in leaves(self)}
        if len({_alike(supports[path]) for path in paths}) > 1:
            kinds = ", ".join(f"{path} is {type(supports[path]).__name__.lower()}" for path in paths)
            raise ValueError(f"tied parameters need to live in one set, but {kinds}: tie those that may take the same values")
        return with_values(dataclasses.replace(self, ties=(*self.ties, paths)), {paths[0]: values[paths[0]]})

    def parameters(self) -> dict[str, Any]:
        """Every parameter by its path, with its value."""
        return named_values(self)

    def __repr__(self) -> str:
        fields = [(f.name, getattr(self, f.name)) for f in dataclasses.fields(self) if f.name not in ("notes", "ties")]
        return f"{type(self).__name__}({', '.join(f'{name}={show(value)}' for name, value in fields if value is not None)})"


def _alike(support: Support) -> Support:
    """The set that matters for a tie: what may be zero is learned as what is positive."""
    return positive if isinstance(support, Nonnegative) else support


def _as_prior(prior: Any) -> Prior | None:
    if prior is not None and not isinstance(prior, Prior):
        raise TypeError(
            f"a prior is a density such as LogNormal(0, 1), got {prior!r}; a value goes to replace(...) or learned(...)"
        )
    return prior


def _as_bounds(bounds: Any) -> tuple[float, float]:
    try:
        low, high = map(float, bounds)
    except (TypeError, ValueError):
        raise ValueError(f"bounds are two numbers, a lower and an upper one, as in (0.1, 10), got {bounds!r}") from None
    return low, high


def show(value: Any) -> str:
    """A number, an array or a nested value as it would be typed."""
    if is_traced(value) or isinstance(value, (str, bool, eqx.Module)):
        return str(value) if is_traced(value) else repr(value)
    if isinstance(value, tuple):
        return "(" + ", ".join(show(item) for item in value) + ("," if len(value) == 1 else "") + ")"
    if callable(value):
        return getattr(value, "__name__", repr(value))
    array = np.asarray(value)
    return f"{array:.4g}" if array.ndim == 0 else "[" + ", ".join(show(item) for item in array) + "]"


class Leaf(NamedTuple):
    """One parameter in a tree, and all that is known of it."""

    path: str
    position: int  # among the leaves of the tree
    value: Any
    support: Support
    prior: Prior | None
    fixed: bool
    bounds: tuple[float, float] | None
    follows: str | None  # the path of the parameter it is tied to

    @property
    def free_size(self) -> int:
        """How many entries of θ it has."""
        return int(np.prod(self.support.free_shape(np.shape(self.value))))


def leaves(tree: Any) -> list[Leaf]:
    """The parameters of a tree in their order; everything else in it is passed over."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    found = []
    groups: dict[tuple[str, ...], None] = {}
    for position, (keys, value) in enumerate(flat):
        parent, owner, name, path = None, tree, "", ""
        for key in keys:
            if isinstance(owner, Parametrised):
                groups |= dict.fromkeys(tuple(_join(path, p) for p in group) for group in owner.ties)
            if isinstance(key, jax.tree_util.GetAttrKey):
                parent, name, path = owner, key.name, _join(path, key.name)
                owner = getattr(owner, key.name)
            else:
                index = getattr(key, "idx", getattr(key, "key", None))
                path, owner = f"{path}[{index}]", owner[index]
        if isinstance(parent, Parametrised) and name in _declared(parent):
            note = dict(parent.notes).get(name, Note())
            prior = note.prior if note.prior is not None else _metadata(parent, name)["prior"]
            found.append(Leaf(path, position, value, _declared(parent)[name], prior, note.fixed, note.bounds, None))
    leader = _leaders(groups)
    return [
        leaf._replace(follows=leader[leaf.path]) if leader.get(leaf.path, leaf.path) != leaf.path else leaf for leaf in found
    ]


def _leaders(groups: Iterable[tuple[str, ...]]) -> dict[str, str]:
    """For each tied parameter the one it follows; groups that share a parameter are one group."""
    leader: dict[str, str] = {}
    for group in groups:
        first = leader.get(group[0], group[0])
        joined = {leader.get(path, path) for path in group}
        leader |= {path: first for path, old in leader.items() if old in joined}
        leader |= dict.fromkeys(group, first)
    return leader


def learned_leaves(tree: Any) -> list[Leaf]:
    """The parameters that learning moves."""
    return [leaf for leaf in leaves(tree) if not leaf.fixed and leaf.follows is None]


def named_values(tree: Any) -> dict[str, Any]:
    """Every parameter by its path."""
    return {leaf.path: leaf.value for leaf in leaves(tree)}


def free_vector(tree: Any) -> np.ndarray:
    """θ: the learned parameters of a tree, mapped to the whole real line and strung together."""
    parts = [np.ravel(leaf.support.free(np.asarray(leaf.value))) for leaf in learned_leaves(tree)]
    return np.concatenate(parts) if parts else np.zeros(0)


def without_zeros(tree: Any) -> Any:
    """The tree with zeros beside other numbers made small, where learning can begin; a parameter of zeros alone is fixed."""
    small = {}
    for leaf in learned_leaves(tree):
        value = np.asarray(leaf.value)
        if isinstance(leaf.support, Nonnegative) and np.any(value == 0) and np.any(value > 0):
            small[leaf.path] = np.where(value == 0, SMALL * value[value > 0].mean(), value)
    return with_values(tree, small) if small else tree


class FreeMap:
    """From θ to the tree whose learned parameters are θ, for one tree: the inverse of `free_vector`."""

    def __init__(self, tree: Any) -> None:
        self._flat, self._treedef = jax.tree_util.tree_flatten(tree)
        everything, start = leaves(tree), 0
        self._moved: list[tuple[Support, tuple[int, ...], slice, list[int]]] = []
        for leaf in everything:
            if leaf.fixed or leaf.follows is not None:
                continue
            shape = leaf.support.free_shape(np.shape(leaf.value))
            part = slice(start, start + int(np.prod(shape)))
            positions = [other.position for other in everything if leaf.path in (other.path, other.follows)]
            self._moved.append((leaf.support, shape, part, positions))
            start = part.stop

    def log_volume(self, theta: Any) -> Any:
        """log |∂values/∂θ|."""
        return sum((support.log_volume(theta[part].reshape(shape)) for support, shape, part, _ in self._moved), start=0.0)

    def __call__(self, theta: Any) -> Any:
        flat = list(self._flat)
        for support, shape, part, positions in self._moved:
            value = support.constrain(theta[part].reshape(shape))
            for position in positions:
                flat[position] = value
        return jax.tree_util.tree_unflatten(self._treedef, flat)


def with_free(tree: Any, theta: Any) -> Any:
    """The tree whose learned parameters are θ."""
    return FreeMap(tree)(theta)


def log_volume(tree: Any, theta: Any) -> Any:
    """log |∂values/∂θ| of the learned parameters, by which `log_prior` becomes a density of θ."""
    return FreeMap(tree).log_volume(theta)


def with_values(tree: Any, values: Mapping[str, Any]) -> Any:
    """The tree with some parameters, named by their paths, set to new values."""
    flat, treedef = jax.tree_util.tree_flatten(tree)
    by_path = {leaf.path: leaf for leaf in leaves(tree)}
    switched_off = []
    for path, value in values.items():
        leaf = by_path[_known(by_path, path, tree)]
        leaf.support.check(path, value)
        for other in by_path.values():
            if (other.follows or other.path) == (leaf.follows or path):
                flat[other.position] = as_float(value)
        if isinstance(leaf.support, Nonnegative) and not is_traced(value) and np.all(np.asarray(value) == 0):
            switched_off.append(path)
    changed = jax.tree_util.tree_unflatten(treedef, flat)
    return _annotate(changed, tuple(switched_off), fixed=True) if switched_off else changed


def as_numpy(tree: Any) -> Any:
    """The same tree with its arrays on the host."""
    return jax.tree_util.tree_map(lambda leaf: np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf, tree)


def log_prior(tree: Any) -> jax.Array:
    """Σ log p(value) over the parameters that have a prior, as densities of the values themselves (not of θ)."""
    terms = [leaf.prior.log_prob(leaf.value) for leaf in leaves(tree) if leaf.prior is not None and leaf.follows is None]
    return sum((jnp.sum(term) for term in terms), start=jnp.zeros(()))


def free_bounds(leaf: Leaf) -> tuple[float, float] | None:
    """The user's bounds of a parameter on the scale of θ."""
    if leaf.bounds is None:
        return None
    with np.errstate(divide="ignore"):  # the edge of the support lies at infinity
        low, high = (float(leaf.support.free(np.asarray(bound))) for bound in leaf.bounds)
    return low, high


def _check_bounds(name: str, support: Support, bounds: tuple[float, float]) -> None:
    """Refuse bounds for the search that are not in order, or not where the parameter lives."""
    if isinstance(support, (Simplex, Orthonormal)):
        raise ValueError(f"{name} cannot have bounds: its numbers depend on each other; give it a prior instead")
    with np.errstate(divide="ignore", invalid="ignore"):
        outside = np.isnan(support.free(np.asarray(bounds))).any()
    if outside or not bounds[0] < bounds[1]:
        kind = type(support).__name__.lower()
        raise ValueError(
            f"{name} needs a lower and an upper bound, in this order and {kind}, got {bounds[0]:g} and {bounds[1]:g}"
        )


def free_names(tree: Any) -> list[str]:
    """The name of every entry of θ, in order."""
    names: list[str] = []
    for leaf in learned_leaves(tree):
        size = int(np.prod(leaf.support.free_shape(np.shape(leaf.value))))
        names += [leaf.path] if np.ndim(leaf.value) == 0 else [f"{leaf.path}[{i}]" for i in range(size)]
    return names


def _metadata(owner: Parametrised, name: str) -> Mapping[str, Any]:
    return type(owner).__dataclass_fields__[name].metadata


def _declared(owner: Parametrised) -> dict[str, Support]:
    fields = type(owner).__dataclass_fields__.values()
    return {field.name: field.metadata["support"] for field in fields if "support" in field.metadata}


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _known(paths: Any, path: str, tree: Any) -> str:
    if path not in paths:
        raise ValueError(f"{type(tree).__name__} has no parameter {path!r}; it has: {', '.join(paths)}")
    return path


def _annotate(tree: Any, paths: tuple[str, ...], prefix: str = "", **changes: Any) -> Any:
    """The tree with the notes of the named parameters changed (of all of them when none is named)."""
    if not prefix and paths:
        known = named_values(tree)
        for path in paths:
            if not any(k == path or k.startswith((f"{path}.", f"{path}[")) for k in known):
                _known(known, path, tree)
    if isinstance(tree, (tuple, list)):
        return type(tree)(_annotate(item, paths, f"{prefix}[{i}]", **changes) for i, item in enumerate(tree))
    if not isinstance(tree, Parametrised):
        return tree
    notes, children, declared = dict(tree.notes), {}, _declared(tree)
    for field in dataclasses.fields(tree):
        value, path = getattr(tree, field.name), _join(prefix, field.name)
        if isinstance(value, (Parametrised, tuple, list)) and field.name not in ("notes", "ties"):
            children[field.name] = _annotate(value, paths, path, **changes)
        elif field.name in declared and (not paths or any(path == p or path.startswith((f"{p}.", f"{p}[")) for p in paths)):
            notes[field.name] = dataclasses.replace(notes.get(field.name, Note()), **changes)
    return dataclasses.replace(tree, notes=tuple(sorted(notes.items(), key=lambda item: item[0])), **children)
