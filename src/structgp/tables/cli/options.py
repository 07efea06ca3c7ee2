"""The options and arguments of commands, each said once."""

import dataclasses
import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from .routes import Options

LEVEL = 0.95  # that an interval holds, where nothing is said
SMALL = 20_000_000  # bytes of a table whose columns are looked up while a command is typed


def columns_beginning(incomplete: str) -> list[str]:
    """The columns of the table on the line that is being typed, for shell completion; nothing where none can be read."""
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    try:
        path = next(path for path in map(Path, shlex.split(line)[2:]) if path.is_file() and path.stat().st_size < SMALL)
        from ..reading import read_table

        names = read_table(path).frame.columns
    except Exception:  # a line that is not finished may hold anything
        return []
    return [name for name in names if name.startswith(incomplete)]


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Makes everything that is drawn at random repeatable.")]
Budget = Annotated[str, typer.Option("--budget", help="About how long all may take, such as 60s, 5m or 1h.")]
TargetOption = Annotated[
    str | None,
    typer.Option("--target", help="The column to be predicted; a picture needs none.", autocompletion=columns_beginning),
]
TaskOption = Annotated[str, typer.Option("--task", help="auto, regression, classification or counts.")]
TimeOption = Annotated[
    str | None, typer.Option("--time", help="Take this column as the only input.", autocompletion=columns_beginning)
]
KernelsOption = Annotated[
    list[str],
    typer.Option(
        "--kernel", help='A kernel, as in "Matern52 + Periodic(period=1)*Matern32"; once for each that is to be tried.'
    ),
]
LikelihoodOption = Annotated[
    str,
    typer.Option("--likelihood", help="Of numbers: auto, gaussian, student-t, twinned (outliers in groups), heteroscedastic."),
]
ParametersOption = Annotated[
    str, typer.Option("--parameters", help="auto: averaged over where few rows leave them unsure; best, laplace, hmc …")
]
StructureOption = Annotated[str, typer.Option("--structure", help="auto, dense, markov, additive, projection-pursuit …")]
ApproximateOption = Annotated[
    str | None, typer.Option("--approximate", help="One function of all columns, through so many: inducing:500, neighbours:30.")
]
DataArgument = Annotated[Path, typer.Argument(help="A table: CSV, TSV, xlsx, ods, Parquet, Arrow or NetCDF; or a picture.")]
FilesArgument = Annotated[
    Path, typer.Argument(help="A table: CSV, TSV, xlsx, ods, Parquet, Arrow or NetCDF; a picture; or many, 'meter/*.parquet'.")
]
SchedulerOption = Annotated[
    str | None, typer.Option("--scheduler", help="A Dask scheduler whose workers have the parts: tcp://10.0.0.1:8786.")
]
DatesOption = Annotated[
    str, typer.Option("--dates", help="Whether 01/02/2020 is day-first or month-first; auto decides and says.")
]
ZoneOption = Annotated[str, typer.Option("--zone", help="The zone in which times are meant and shown, such as Europe/Berlin.")]
TargetsOption = Annotated[
    str | None, typer.Option("--targets", help="Several columns, as in a,b,c: learned together, and their gaps filled.")
]
LateOption = Annotated[
    str, typer.Option("--lags", help="Whether targets that come late are looked for: auto (few), yes or no.")
]
HorizonOption = Annotated[int | None, typer.Option("--horizon", min=1, help="How many steps of a series are forecast.")]
SeriesArgument = Annotated[Path, typer.Argument(help="A table, as fit takes it; or a model of a series.")]
ModelsArgument = Annotated[list[Path], typer.Argument(help="Models that structgp fit has written: each predicts these rows.")]
ModelArgument = Annotated[Path, typer.Argument(help="A model that structgp fit has written.")]
OutFolder = Annotated[Path, typer.Option("--out", help="The folder for the results.")]
PredictionFile = Annotated[
    Path | None, typer.Option("--out", help="The file for the predictions; without it they are printed.")
]
ForecastFile = Annotated[
    Path | None, typer.Option("--out", help="The file for the forecast; without it the forecast is printed.")
]
ReportOption = Annotated[Path | None, typer.Option("--report", help="The file for a report, such as report.html.")]
ReportFile = Annotated[Path, typer.Option("--out", help="The file for the report.")]
LevelOption = Annotated[float, typer.Option("--level", help="The probability that an interval holds.")]
ChangingOption = Annotated[
    str, typer.Option("--target", help="The column in which changes are looked for.", autocompletion=columns_beginning)
]
OrderOption = Annotated[
    str | None, typer.Option("--time", help="The column that orders the rows.", autocompletion=columns_beginning)
]
InputOption = Annotated[
    str, typer.Option("--input", help="The column that drives the system, or several: u,v.", autocompletion=columns_beginning)
]
OutputOption = Annotated[
    str, typer.Option("--output", help="The column that follows, or several: y,z.", autocompletion=columns_beginning)
]
LagsOption = Annotated[int | None, typer.Option("--lags", min=2, help="How many steps the response has.")]
MethodOption = Annotated[
    str, typer.Option("--method", help="gp, dc, tc, ls, poles, joint (u with gaps) or analog (any times).")
]
RunsArgument = Annotated[
    Path, typer.Argument(help="A table of runs; it need not exist before the first one. Lines are added to CSV only.")
]
MaximiseOption = Annotated[str | None, typer.Option("--maximise", help="The column whose values should be large.")]
MinimiseOption = Annotated[str | None, typer.Option("--minimise", help="The column whose values should be small.")]
BoundsOption = Annotated[list[str], typer.Option("--bounds", help="A range: temp=20:80, or flow=0.1:10:log.")]
IntegerOption = Annotated[list[str], typer.Option("--integer", help="A range of whole numbers: stages=1:8.")]
ChoicesOption = Annotated[list[str], typer.Option("--choices", help="Categories: solvent=water,ethanol.")]
ConstraintOption = Annotated[list[str], typer.Option("--constraint", help='What must hold: "temp + 2*flow <= 100".')]
OutcomeOption = Annotated[list[str], typer.Option("--outcome", help='A limit of another measured column: "cost <= 5".')]
IgnoreOption = Annotated[
    list[str], typer.Option("--ignore", help="A column that is left out.", autocompletion=columns_beginning)
]
CountOption = Annotated[int, typer.Option("--n", min=1, help="How many runs are suggested side by side.")]
AppendOption = Annotated[Path | None, typer.Option("--append", help="Add the suggestions to this table, as pending runs.")]
ExplainOption = Annotated[bool, typer.Option("--explain", help="Say why in a column suggested_because, where there is one.")]
NoiseOption = Annotated[
    float | None, typer.Option("--noise", help="The variance of measurements: 0 if exact; learned if not given.")
]
AcquisitionOption = Annotated[str, typer.Option("--acquisition", help="ei, pi, ucb or thompson.")]
DimensionsOption = Annotated[str, typer.Option("--dimensions", help="How many coordinates, or auto to let the data choose.")]
ColorOption = Annotated[
    str | None,
    typer.Option("--color", help="The column that rows are coloured by; it is not laid out.", autocompletion=columns_beginning),
]
DemoArgument = Annotated[str, typer.Argument(help="co2, friedman, additive, nonstationary or sinc.")]
VersionOption = Annotated[bool, typer.Option("--version", help="Print the version and stop.")]


@dataclasses.dataclass(frozen=True)
class Learning(Options):
    """What can be asked wherever a model of a column is learned."""

    time: TimeOption = None
    task: TaskOption = "auto"
    kernel: KernelsOption = ()  # type: ignore[assignment]
    structure: StructureOption = "auto"
    approximate: ApproximateOption = None
    likelihood: LikelihoodOption = "auto"
    parameters: ParametersOption = "auto"
    budget: Budget = "2m"
    dates: DatesOption = "auto"
    zone: ZoneOption = ""
    seed: SeedOption = 0


@dataclasses.dataclass(frozen=True)
class Comparing(Learning):
    """The same, where models are beside each other: with the best parameters, unless more is asked for."""

    parameters: ParametersOption = "best"
