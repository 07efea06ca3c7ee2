"""Who works: the same calls on parts of data one after the other here, by an executor, or by the workers of a Dask cluster.

A part is made where it is worked on, from what it is read from, and never moves; a call takes small things to it and brings
small things back, in the order of the parts, so that sums over them do not depend on who was first.
"""

from __future__ import annotations

import abc
import concurrent.futures
import itertools
import sys
import threading
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from ._types import how_many


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """A call in double precision, which every thread and process has to ask for itself."""
    with jax.enable_x64(True):
        return function(*map(resolved, arguments))


def resolved(value: Any) -> Any:
    """What a handle stands for; anything else is itself."""
    if isinstance(value, Kept):
        return value.value()
    return value.compute(scheduler="synchronous") if is_lazy(value) else value


def portable(value: Any) -> Any:
    """A value with JAX's arrays as NumPy's: those would be restored in the precision of the thread that reads them."""
    return jax.tree.map(lambda leaf: np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf, value)


def is_lazy(value: Any) -> bool:
    """Whether this is a collection of Dask's, or a part of one, which nothing has computed yet."""
    return hasattr(value, "__dask_graph__") and hasattr(value, "compute")


class Crew(abc.ABC):
    """Who works. The functions that it is given are those of modules, so that other processes find them by name."""

    @abc.abstractmethod
    def made(self, function: Callable[..., Any], *arguments: Sequence[Any]) -> list[Any]:
        """Handles of function(*row) for each row of arguments, made where they will be used; arguments may be handles."""

    @abc.abstractmethod
    def map(self, function: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
        """function(*row) for each row of arguments, in their order; arguments may be handles."""

    @property
    @abc.abstractmethod
    def words(self) -> str:
        """Who that is."""


class Here(Crew):
    """This process, one part after the other: what does not find room is made again when it is needed.

    `room` is how many bytes of parts are kept.
    """

    def __init__(self, room: float) -> None:
        self.room = room

    def made(self, function: Callable[..., Any], *arguments: Sequence[Any]) -> list[Any]:
        return [Kept(function, row, self.room) for row in zip(*arguments, strict=True)]

    def map(self, function: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
        return [call(function, *row) for row in zip(*arguments, strict=False)]

    @property
    def words(self) -> str:
        return "one after the other"


class Pool(Crew):
    """An executor as in `concurrent.futures`, of threads or of processes, each of which keeps what it has made."""

    def __init__(self, executor: Any, room: float) -> None:
        self.executor, self.room = executor, room

    made = Here.made

    def map(self, function: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
        rows = [portable(row) for row in zip(*arguments, strict=False)]
        return list(self.executor.map(call, itertools.repeat(function, len(rows)), *zip(*rows, strict=True)))

    @property
    def words(self) -> str:
        return f"by {type(self.executor).__name__}"


class Devices(Crew):
    """Devices of this process, on which parts are laid in turn, and stay; each is served by a thread of its own."""

    def __init__(self, devices: Sequence[Any], room: float) -> None:
        self.devices, self.room = tuple(devices), room
        self._turns = itertools.cycle(self.devices)

    def made(self, function: Callable[..., Any], *arguments: Sequence[Any]) -> list[Any]:
        made = Here.made(self, function, *arguments)  # type: ignore[arg-type]
        for handle in made:
            handle.device = _device_of(handle.arguments) or next(self._turns)
        return made

    def map(self, function: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
        rows = list(zip(*arguments, strict=False))
        places = [_device_of(row) or device for row, device in zip(rows, itertools.cycle(self.devices), strict=False)]
        found: dict[int, Any] = {}

        def work(device: Any) -> None:
            with jax.default_device(device):
                found.update({i: call(function, *row) for i, row in enumerate(rows) if places[i] == device})

        with concurrent.futures.ThreadPoolExecutor(len(self.devices)) as pool:
            list(pool.map(work, self.devices))
        return [found[i] for i in range(len(rows))]

    @property
    def words(self) -> str:
        return f"on {how_many(len(self.devices), 'device')}"


def _device_of(row: Iterable[Any]) -> Any:
    """The device that the first handle among some arguments lies on."""
    return next((value.device for value in row if isinstance(value, Kept)), None)


class Cluster(Crew):
    """The workers of a Dask cluster. When one of them dies, the others make its parts again from what they are read from."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def made(self, function: Callable[..., Any], *arguments: Sequence[Any]) -> list[Any]:
        sent = lambda value: self.client.compute(value) if is_lazy(value) else value
        return self._submitted(function, [tuple(map(sent, row)) for row in zip(*arguments, strict=True)])

    def map(self, function: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
        return self.client.gather(self._submitted(function, list(zip(*arguments, strict=False))))

    def _submitted(self, function: Callable[..., Any], rows: list[tuple[Any, ...]]) -> list[Any]:
        name = lambda: f"structgp-{function.__name__.strip('_')}-{uuid.uuid4().hex}"  # a key of its own is not looked up
        return [self.client.submit(call, function, *portable(row), key=name()) for row in rows]

    @property
    def words(self) -> str:
        count = len(self.client.scheduler_info()["workers"])
        return f"on {how_many(count, 'worker')}"


def crew_for(over: Any, room: float) -> Crew:
    """Who was asked for: a Dask client or its address, an executor, devices of JAX, or else the current client, or nobody."""
    if isinstance(over, Crew):
        return over
    if isinstance(over, str):
        from distributed import Client

        try:
            return Cluster(Client(over))
        except (OSError, ValueError) as problem:
            _forget_unconnected()
            raise ConnectionError(
                f"no Dask scheduler answers at over={over!r} ({problem}): an address is like 'tcp://10.0.0.1:8786'"
            ) from None
    if over is None:
        client = _current_client()
        return Here(room) if client is None else Cluster(client)
    if hasattr(over, "get_executor"):
        return Cluster(over)
    if isinstance(over, (list, tuple)) and over and all(isinstance(device, jax.Device) for device in over):
        return Devices(over, room)
    if hasattr(over, "submit") and hasattr(over, "map"):
        return Pool(over, room)
    raise TypeError(
        "over must be a Dask client, the address of a scheduler such as 'tcp://10.0.0.1:8786', an executor as in "
        f"concurrent.futures, or devices such as jax.devices(), got {over!r}"
    )


def lazily(function: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
    """Dask's promises of function(*row) for each row of arguments."""
    import dask

    promise = dask.delayed(call, pure=False)
    return [promise(function, *row) for row in zip(*arguments, strict=False)]


def one_promise(value: Any) -> Any:
    """A promise of Dask's of a value that is there, kept once however often it is asked for."""
    import dask

    return dask.delayed(value, traverse=False, pure=False)


def lazy_array(parts: list[Any], width: tuple[int, ...] = ()) -> Any:
    """A Dask array of rows that promises will bring, nobody knows how many."""
    import dask.array as da

    return da.concatenate([da.from_delayed(part, (np.nan, *width), dtype=float) for part in parts])


def _current_client() -> Any:
    client = _default_client()
    return client if client is not None and client.status == "running" else None


def _forget_unconnected() -> None:
    """A client that found no scheduler is no longer the current one, for which everything would wait for ever."""
    client = _default_client()
    if client is not None and client.status != "running":
        client.close()


def _default_client() -> Any:
    distributed = sys.modules.get("distributed")
    if distributed is None:  # nobody can have a client without it
        return None
    try:
        return distributed.default_client()
    except ValueError:
        return None


class Kept:
    """A value that is made when it is asked for, and kept while there is room for it."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...], room: float, name: str = "") -> None:
        self.function, self.arguments, self.room, self.name = function, arguments, room, name
        self.device: Any = None  # where it is made, if that matters
        if not name:  # in another process, where copies of a handle come and go, what is kept stays
            self.name = uuid.uuid4().hex
            weakref.finalize(self, _STORE.drop, self.name)

    def value(self) -> Any:
        """What it is, made if need be."""
        found = _STORE.find(self.name)
        if found is None:
            found = call(self.function, *self.arguments)
            _STORE.keep(self.name, found, self.room)
        return found

    def __reduce__(self) -> Any:
        return Kept, (self.function, self.arguments, self.room, self.name)


class _Store:
    """The values that this process keeps, those that were not used for longest given up first."""

    def __init__(self) -> None:
        self._values: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, name: str) -> Any:
        with self._lock:
            if name in self._values:
                self._values.move_to_end(name)
            return self._values.get(name)

    def keep(self, name: str, value: Any, room: float) -> None:
        with self._lock:
            self._values[name] = value
            while self._values and sum(map(size, self._values.values())) > room:
                self._values.popitem(last=False)

    def drop(self, name: str) -> None:
        with self._lock:
            self._values.pop(name, None)


_STORE = _Store()


def size(value: Any) -> int:
    """The bytes of all arrays in a value."""
    return sum(int(getattr(leaf, "nbytes", 0)) for leaf in jax.tree.leaves(value))
