"""What a report shows of the systems that make some columns of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...inputs.reading import few
from ..reading import SECONDS
from ..several import Record
from .figures import Figure, Trace
from .words import short_number

WIDE = "which the band of the impulse response counts"  # said of frequencies that were not excited


def system_figures(record: Record) -> list[Figure]:
    """The responses of a system to each of its inputs, with their bands."""
    system, found = record.system, []
    one = record.unit.removesuffix("s") if record.unit in (*SECONDS, "steps") else f"1 ({record.unit})"
    for number, source in enumerate(record.sources):
        to = f" to {source}" if len(record.sources) > 1 else ""
        for title, part in (("Impulse response", system.impulse_of(number)), ("Step response", system.step_of(number))):
            traces = (Trace("band", part.t, part.lower, "95 %", part.upper), Trace("line", part.t, part.mean, "mean"))
            found.append(Figure(f"{title}{to}", f"time after {source} ({record.unit})", record.target, traces))
        at = system.frequency(source=number)
        quiet = ~at.excited
        gain = (
            Trace("band", at.frequency, at.lower, "95 %", at.upper),
            Trace("line", at.frequency, at.gain, "gain"),
            Trace("points", at.frequency[quiet], at.gain[quiet], "not excited by the input"),
        )
        found.append(Figure(f"Gain{to}", f"frequency (radians for each {one})", "gain", gain))
    return found


def system_rows(record: Record) -> list[list[str]]:
    """What was found of a system in plain words, its header first."""
    system, target, unit = record.system, record.target, record.unit
    explained = f"{system.fit:.1f} % of {target} (100 % is exact, 0 % is no better than the mean)"
    rows = [["explained", explained], ["left over", f"about ±{short_number(system.noise)}"]]
    for number, source in enumerate(record.sources):
        step = system.step_of(number)
        end, sure = float(step.mean[-1]), 1.96 * float(step.sd[-1])
        felt = f"changes {target} by {short_number(end)} ± {short_number(sure)} in the end"
        if abs(end) > sure:
            half = step.t[np.argmax(np.sign(end) * step.mean >= 0.5 * abs(end))]
            felt += f", by half of that {_later(half, unit)}"
        rows.append([f"a lasting change of {source} by 1", felt])
        strongest = int(np.argmax(np.abs(system.weights[number])))
        rows.append([f"{source} is felt most", _later(system.dt * strongest, unit)])
        rows.append([f"{source} tells of", _excited(system.frequency(source=number), unit)])
    for number, source in enumerate(record.sources):
        of = f" of {source}" if len(record.sources) > 1 else ""
        modes = [_mode(pole, system.dt, unit) for pole in system.poles(source=number).poles if pole.imag >= 0]
        rows.append([f"what an impulse{of} leaves", "; ".join(modes) or "nothing after one step"])
    return [["", ""], *rows]


def _later(time: float, unit: str) -> str:
    return "at once" if time == 0 else f"{_span(float(time), unit)} later"


def _span(time: float, unit: str) -> str:
    counted = unit if unit in (*SECONDS, "steps") else f"({unit})"
    number = short_number(time)
    return f"{number} {counted.removesuffix('s') if number == '1' else counted}"


def _mode(pole: complex, dt: float, unit: str) -> str:
    """What a pole does: how fast it fades, and whether it swings."""
    size = abs(pole)
    fades = "gone after one step" if size < 0.05 else f"half of it left after {_span(dt * np.log(0.5) / np.log(size), unit)}"
    if pole.imag > 1e-9:
        return f"it swings with a period of {_span(2 * np.pi * dt / np.angle(pole), unit)}, {fades}"
    return f"it changes sign at every step, {fades}" if pole.real < 0 and size >= 0.05 else f"it fades, {fades}"


def _excited(at: Any, unit: str) -> str:
    """Of which changes an input tells anything."""
    if at.excited.all():
        return "changes of any speed"
    edges, here = np.diff(at.excited.astype(int)), at.frequency
    if at.excited[0] and np.sum(edges != 0) == 1:
        period = _span(2 * np.pi / here[np.argmax(edges != 0)], unit)
        return f"changes slower than a period of {period}; of faster ones nothing, {WIDE}"
    return f"{100 * at.excited.mean():.0f} % of the frequencies; of the others nothing, {WIDE}"


def system_headline(records: Sequence[Record]) -> str:
    """How well the inputs explain the outputs, and what a lasting change of one does."""
    said = []
    for record in records:
        system, target = record.system, record.target
        said.append(f"{system.fit:.1f} % of {target} is explained by {few(record.sources)}, over {system.lags} lags.")
        steps = [system.step_of(number) for number in range(len(record.sources))]
        ends = [
            (source, float(step.mean[-1]), 1.96 * float(step.sd[-1]))
            for source, step in zip(record.sources, steps, strict=True)
        ]
        sure = [f"by {short_number(end)} where {source} rises by 1" for source, end, reach in ends if abs(end) > reach]
        none = [source for source, end, reach in ends if abs(end) <= reach]
        said += [f"In the end {target} changes {few(sure)}."] if sure else []
        said += [f"No lasting effect of {few(none)} on {target} is sure."] if none else []
    return " ".join(said)
