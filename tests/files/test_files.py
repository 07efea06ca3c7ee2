import json
import os
import struct

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import structgp as sg
import zoo
from structgp.files import save, values
from structgp.files.container import checksum
from structgp.files.rules import OLDER, complete
from structgp.parameters.tree import leaves
from structgp.posterior import Moments, Result

RNG = np.random.default_rng(5)
NOT_SAVED = (
    "Cascade",
    "Coregion",
    "HypothesisClass",
    "Lagged",
    "LowPassFilters",
    "MaternFilters",
    "PoleFilters",
    "Warp",
    "Warp-learned",
)  # they hold functions or classes of the caller


def same_beliefs(a, b, X):
    """Both models predict the same, at every place and jointly, and tell the same story."""
    p, q = a.predict(X), b.predict(X)
    np.testing.assert_allclose(p.mean, q.mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(p.variance, q.variance, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(p.observed.variance, q.observed.variance, rtol=1e-12, atol=1e-12)
    assert a.log_evidence == b.log_evidence
    assert a.learning == b.learning
    assert a.plan == b.plan
    assert a.summary() == b.summary()
    assert repr(a) == repr(b)
    assert eqx.tree_equal(a.gp, b.gp)
    assert eqx.tree_equal(a.inputs, b.inputs)
    assert eqx.tree_equal(a.data, b.data)


def through_a_file(fitted, tmp_path):
    fitted.save(tmp_path / "model.structgp")
    return sg.load(tmp_path / "model.structgp")


@pytest.fixture(scope="module")
def fitted():
    kernel = sg.Matern52([0.7, 1.6]).with_prior(variance=sg.LogNormal(0.0, 1.0))
    return sg.GP(kernel, mean=0.0).fit(zoo.X[2], zoo.Y[2], restarts=1, max_evaluations=20, parameters="best")


@pytest.fixture
def saved(fitted, tmp_path):
    fitted.save(tmp_path / "model.structgp")
    return tmp_path / "model.structgp"


# what comes back


def through_a_description(value):
    writer = values.Writer()
    text = json.dumps(writer.encode(value, "value"), allow_nan=False)
    return values.Reader(writer.arrays).decode(json.loads(text))


@pytest.mark.parametrize("name", [name for name in zoo.KERNELS if name not in NOT_SAVED])
def test_every_kernel_comes_back(name):
    kernel, _ = zoo.KERNELS[name]
    after = through_a_description(kernel)
    assert eqx.tree_equal(after, kernel)
    assert repr(after) == repr(kernel)
    assert [leaf._replace(value=None) for leaf in leaves(after)] == [leaf._replace(value=None) for leaf in leaves(kernel)]


MODELS = ("Matern52", "On-Sum", "Spline", "ChangePoint-smooth", "SquaredExponential-Factor")


@pytest.mark.parametrize("name", zoo.mostly_full(MODELS, "Spline"))
def test_models_come_back(name, tmp_path):
    kernel, D = zoo.KERNELS[name]
    before = sg.GP(kernel, sg.Gaussian(0.15)).condition(zoo.X[D], zoo.Y[D])
    same_beliefs(before, through_a_file(before, tmp_path), zoo.XS[D])


@pytest.mark.parametrize("name", list(zoo.LIKELIHOODS))
def test_every_likelihood_comes_back(name, tmp_path):
    before = sg.GP(sg.Matern32(0.8), zoo.LIKELIHOODS[name]).condition(zoo.X[1], zoo.Y[1])
    same_beliefs(before, through_a_file(before, tmp_path), zoo.XS[1])


MEANS = {"none": None, "constant": 0.4, "linear": sg.LinearMean([0.3, -0.2], 0.1), "polynomial": sg.polynomial(2)}


@pytest.mark.parametrize("name", zoo.mostly_full(MEANS, "polynomial"))
def test_means_come_back(name, tmp_path):
    before = sg.GP(sg.Matern52(0.8), sg.Gaussian(0.1), MEANS[name]).condition(zoo.X[2], zoo.Y[2])
    same_beliefs(before, through_a_file(before, tmp_path), zoo.XS[2])


@pytest.mark.parametrize("name", list(zoo.INPUTS))
def test_inputs_come_back_as_what_they_are(name):
    before = sg.as_inputs(zoo.INPUTS[name])
    after = through_a_description(before)
    assert type(after) is type(before)
    assert eqx.tree_equal(after, before)
    np.testing.assert_array_equal(after.points, before.points)


def test_a_model_on_a_grid_comes_back(tmp_path):
    before = sg.GP(sg.Matern52([0.7, 1.6]), sg.Gaussian(0.2)).condition(zoo.INPUTS["grid with holes"], zoo.Y[2])
    same_beliefs(before, through_a_file(before, tmp_path), zoo.XS[2])


@pytest.mark.parametrize("structure", list(zoo.ENGINES))
def test_every_engine_comes_back(structure, tmp_path):
    kernel = sg.Polynomial(0.8) if structure == "features" else sg.Matern32(0.8)
    before = sg.GP(kernel, sg.Gaussian(0.2)).condition(zoo.X[1], zoo.Y[1], structure=structure)
    same_beliefs(before, through_a_file(before, tmp_path), zoo.XS[1])


@pytest.mark.full
def test_a_learned_model_with_several_targets_missing_values_and_known_noise(tmp_path):
    Y = np.stack([zoo.Y[1], zoo.Y[1] ** 2], axis=1)
    Y[3] = np.nan
    noise = np.linspace(0.01, 0.1, zoo.N)
    before = sg.GP(sg.Matern52()).fit(zoo.X[1], Y, missing="infer", noise=noise, restarts=0, max_evaluations=10)
    after = through_a_file(before, tmp_path)
    same_beliefs(before, after, zoo.XS[1])
    assert after.learning.evaluations == before.learning.evaluations
    np.testing.assert_array_equal(after.sample(zoo.XS[1], n=2, seed=1), before.sample(zoo.XS[1], n=2, seed=1))
    np.testing.assert_allclose(after.leave_one_out().mean, before.leave_one_out().mean, rtol=1e-12)


def test_notes_and_ties_survive(tmp_path):
    kernel = sg.Matern32(sg.fixed(0.8)) + sg.Matern52(sg.learned(0.8, bounds=(0.1, 10.0))) + sg.Constant()
    kernel = kernel.with_prior({"terms[2].variance": sg.Gamma(2.0, 3.0)}).tie("terms[0].variance", "terms[1].variance")
    before = sg.GP(kernel, sg.Gaussian(sg.fixed(0.1))).condition(zoo.X[1], zoo.Y[1])
    after = through_a_file(before, tmp_path)
    assert after.gp.kernel.terms[0].notes == kernel.terms[0].notes
    assert after.gp.kernel.ties == kernel.ties
    assert [leaf[3:] for leaf in leaves(after.gp)] == [leaf[3:] for leaf in leaves(before.gp)]
    again = after.gp.fit(zoo.X[1], zoo.Y[1], restarts=0, max_evaluations=10)
    assert float(again.kernel.terms[0].lengthscale) == 0.8
    assert again.kernel.terms[0].variance == again.kernel.terms[1].variance


def test_update_works_after_load_and_an_updated_model_can_be_saved(fitted, tmp_path):
    more = RNG.uniform(-2, 2, (3, 2)), RNG.standard_normal(3)
    before, after = fitted.update(*more), through_a_file(fitted, tmp_path).update(*more)
    np.testing.assert_allclose(after.log_evidence, before.log_evidence, rtol=1e-10)
    same_beliefs(before, through_a_file(before, tmp_path), zoo.XS[2])


def test_a_model_that_needed_jitter_keeps_it(tmp_path):
    gp = sg.GP(sg.SquaredExponential(1.0), sg.Gaussian(0.0))
    before = gp.condition(np.linspace(0, 1, 60), np.sin(np.linspace(0, 1, 60)))
    after = through_a_file(before, tmp_path)
    assert float(before.conditional.jitter) > 0
    np.testing.assert_allclose(after.conditional.jitter, before.conditional.jitter, rtol=1e-9)
    np.testing.assert_allclose(after.predict([0.5, 2.0]).mean, before.predict([0.5, 2.0]).mean, rtol=1e-12)
    np.testing.assert_allclose(after.predict([0.5, 2.0]).variance, before.predict([0.5, 2.0]).variance, rtol=1e-6, atol=1e-12)


def test_a_file_is_small_and_the_same_each_time(saved, fitted, tmp_path):
    assert not [name for name, shape in shapes(saved).items() if shape == [zoo.N, zoo.N]], "the factor is not stored"
    fitted.save(tmp_path / "again.structgp")
    assert saved.stat().st_size == (tmp_path / "again.structgp").stat().st_size


def test_generic_values_come_back():
    values = {
        "a": (1, 2.5, [True, None]),
        "b": {3: (np.inf, -np.inf, "text")},
        "n": {"k": np.arange(3)},
        "m": Moments(1.0, 2),
    }
    back = through_a_description(values)
    assert eqx.tree_equal(back, values)
    assert type(back["m"]) is Moments


def test_every_class_with_derived_fields_has_a_rule_that_computes_them():
    derived = [cls for cls in values.registry().values() if any(map(values.is_derived, values.fields_of(cls).values()))]
    assert derived
    assert [cls for cls in derived if cls not in complete.registry] == []


def test_values_are_found_in_all_rooms_and_told_apart():
    names = {cls: name for rooms in (values.ROOMS, values.ESTIMATORS) for name, cls in values.registry(rooms).items()}
    assert {name: values.name_of(cls) for cls, name in names.items()} == {name: name for name in names.values()}
    assert values.registry()["Matern"] is sg.Matern
    assert values.registry()["linalg.markov.chains:Matern"] is not sg.Matern
    assert not OLDER.keys() & values.registry().keys()


def test_every_result_can_be_saved():
    """Whatever has `predict`, `prediction` or draws and is found in the rooms of results is one that `save` takes."""
    rooms = ("inference", "process", "models")
    results = [cls for cls in values.registry(rooms).values() if hasattr(cls, "predict") or cls.__name__.startswith("Fitted")]
    assert len(results) >= 10
    assert [cls.__name__ for cls in results if not issubclass(cls, Result)] == []


# what cannot be saved


class Mine(sg.Kernel):
    def between(self, x, z):
        return jnp.exp(-jnp.sum((x - z) ** 2))


def double(x):
    return 2 * x


@pytest.mark.parametrize(
    ("gp", "message"),
    [
        (sg.GP(sg.Matern32() + Mine()), r"fitted\.gp\.kernel\.terms\[1\] is Mine, a class of .*test_files, which cannot"),
        (sg.GP(sg.Warp(sg.Matern32(), double)), r"fitted\.gp\.kernel\.function is the function double.*joblib\.dump"),
        (sg.GP(sg.Matern32(), mean=double), r"fitted\.gp\.mean\.function is the function double.*never code"),
        (sg.GP(sg.Matern32(), mean=sg.Basis(lambda x: x)), r"fitted\.gp\.mean\.function is the function <lambda>"),
        (sg.GP(sg.Warp(sg.Matern32(), zoo.Bend())), r"fitted\.gp\.kernel\.function is Bend, a class of"),
    ],
)
def test_code_cannot_be_saved(gp, message, tmp_path):
    fitted = gp.condition(zoo.X[1], zoo.Y[1])
    with pytest.raises(TypeError, match=message):
        fitted.save(tmp_path / "model.structgp")
    assert os.listdir(tmp_path) == []


def test_a_class_of_the_same_name_is_not_ours(tmp_path):
    Matern32 = type("Matern32", (Mine,), {})
    with pytest.raises(TypeError, match=r"gp\.kernel is Matern32, a class of"):
        sg.GP(Matern32()).condition(zoo.X[1], zoo.Y[1]).save(tmp_path / "model.structgp")


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (sg.GP(sg.Matern32()), "save needs a fitted model, got GP: fit or condition a GP first"),
        (sg.GPRegressor(), "this GPRegressor has learned nothing yet: call fit before save"),
        (None, "save needs a fitted model, got NoneType"),
    ],
)
def test_only_fitted_models_are_saved(thing, message, tmp_path):
    with pytest.raises((TypeError, ValueError), match=message):
        save(thing, tmp_path / "model.structgp")


def test_arrays_of_other_things_cannot_be_saved():
    with pytest.raises(TypeError, match=r"here\[0\] is an array of complex128, which cannot be saved"):
        values.Writer().encode((np.zeros(2, complex),), "here")


def test_a_place_that_cannot_be_written(fitted, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"folder .*nowhere does not exist: make it first"):
        fitted.save(tmp_path / "nowhere" / "model.structgp")
    with pytest.raises(ValueError, match=r"is a folder: give the name of a file in it, such as .*model\.structgp"):
        fitted.save(tmp_path)


@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_a_save_that_fails_leaves_nothing_half_written(fitted, tmp_path, monkeypatch, where, existing):
    path = tmp_path / "model.structgp"
    if existing:
        path.write_bytes(b"what was there")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, where, full)
    with pytest.raises(OSError, match="No space left"):
        fitted.save(path)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == (["model.structgp"] if existing else [])
    assert not existing or path.read_bytes() == b"what was there"


def test_saving_replaces_a_file_follows_a_link_and_gives_the_usual_permissions(fitted, tmp_path):
    path, link, plain = tmp_path / "model.structgp", tmp_path / "link", tmp_path / "plain"
    path.write_text("old")
    plain.write_text("as other files")
    link.symlink_to(path)
    fitted.save(str(link))
    assert link.is_symlink()
    assert path.stat().st_mode == plain.stat().st_mode
    assert sg.load(path).log_evidence == fitted.log_evidence


# files that are not models


def header(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    return json.loads(raw[8 : 8 + size]), raw[8 + size :]


def shapes(path):
    return {name: about["shape"] for name, about in header(path)[0].items() if name != "__metadata__"}


def rewrite(path, change):
    """Change the description of a saved model in place, by someone who knows how to make the checksum right again."""
    with safe_open(path, framework="np") as container:
        texts, arrays = container.metadata(), {name: container.get_tensor(name) for name in container.keys()}  # noqa: SIM118
    description = json.loads(texts["description"])
    change(description)
    texts["description"] = json.dumps(description)
    save_file(arrays, path, {**texts, "checksum": checksum(texts, arrays)})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty: .* save the model again"),
        (b"x,y\n1.0,2.0\n3.0,4.0\n", "is not a structgp model but another kind of file"),
        (b"\x89PNG\r\n\x1a\n" + bytes(40), "is not a structgp model but a PNG image"),
        (b"\x80\x04\x95" + bytes(40), "a pickle, which structgp never opens"),
        (b"PK\x03\x04" + bytes(40), "but a zip archive"),
        (b"abc", "another kind of file, or a piece of one"),
        (bytes(8) + b"{", "is cut off or damaged"),
    ],
)
def test_foreign_files(content, message, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        sg.load(path)


def test_safetensors_of_others(tmp_path):
    save_file({"w": np.zeros(3)}, tmp_path / "plain", None)
    save_file({"w": np.zeros(3)}, tmp_path / "torch", {"format": "pt"})
    for name in ("plain", "torch"):
        with pytest.raises(ValueError, match="is a safetensors file, but not a structgp model"):
            sg.load(tmp_path / name)


@pytest.mark.parametrize("name", [None, 3, ["model.structgp"]])
def test_what_is_not_the_name_of_a_file(name, fitted):
    with pytest.raises(TypeError, match=r"load needs the name of a file, such as 'model\.structgp', got"):
        sg.load(name)
    with pytest.raises(TypeError, match="save needs the name of a file"):
        fitted.save(name)


def test_a_pipe_is_not_waited_for_and_not_replaced(fitted, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe is a pipe, a socket or a device: give the name of a file"):
        fitted.save(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe is a pipe, a socket or a device: copy its content to a file, and load that"):
        sg.load(tmp_path / "pipe")


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none\.structgp: check the name"):
        sg.load(tmp_path / "none.structgp")
    with pytest.raises(ValueError, match="is a folder: give the name of a model file in it"):
        sg.load(tmp_path)


def test_a_few_bytes_are_a_piece_of_a_file_and_not_a_pickle(tmp_path):
    (tmp_path / "m.structgp").write_bytes((1920).to_bytes(8, "little"))  # the length of a description, which begins with 0x80
    with pytest.raises(ValueError, match="a piece of one"):
        sg.load(tmp_path / "m.structgp")


def test_a_truncated_file_at_any_length(saved):
    raw = saved.read_bytes()
    for size in (4, 8, 9, 100, len(raw) // 2, len(raw) - 1):
        saved.write_bytes(raw[:size])
        with pytest.raises(ValueError, match=r"cut off or damaged|a piece of one"):
            sg.load(saved)


def test_a_newer_format(saved):
    rewrite(saved, lambda d: d.update(version=3, structgp="9.1.0"))
    with pytest.raises(ValueError, match=r"is in format 3, written by structgp 9\.1\.0; .* reads formats up to 2: upgrade"):
        sg.load(saved)


def kernel_of(description):
    return description["model"]["Fitted"]["gp"]["GP"]["kernel"]


def rename(name):
    return lambda d: d["model"]["Fitted"]["gp"]["GP"].update(kernel={name: kernel_of(d)["Matern52"]})


CHANGES = {
    "no version": (lambda d: d.pop("version"), "its format version is None"),
    "another version": (lambda d: d.update(version="1"), "its format version is '1'"),
    "unknown class": (rename("os.system"), "it holds a 'os.system', which this structgp .* does not know"),
    "class of another room": (rename("Learning"), "Learning has no field"),
    "abstract class": (rename("Radial"), "it holds a 'Radial'"),
    "wrong field": (
        lambda d: kernel_of(d)["Matern52"].update(scale=1.0),
        "Matern52 has no field 'scale'; it has notes, ties, len",
    ),
    "lost field": (lambda d: d["model"]["Fitted"].pop("data"), "Fitted lacks its field 'data'"),
    "two kinds": (lambda d: kernel_of(d).update(Matern32={}), r"described by \['Matern32', 'Matern52'\], which means nothing"),
    "lost array": (lambda d: kernel_of(d)["Matern52"].update(lengthscale={"array": "t99"}), "the array 't99' is missing"),
    "bad array": (lambda d: kernel_of(d)["Matern52"].update(lengthscale={"array": "t0", "path": "/"}), "does not fit together"),
    "bad value": (lambda d: kernel_of(d)["Matern52"].update(variance=-1.0), "Matern52: variance must be positive and finite"),
    "huge order": (
        lambda d: d["model"]["Fitted"]["gp"]["GP"].update(kernel={"Matern": {"nu": 1e6 + 0.5}}),
        "nu must be at most 100.5, got 1000000.5",
    ),
    "bad number": (lambda d: kernel_of(d)["Matern52"].update(variance={"number": "7"}), "does not fit together"),
    "bad prior": (
        lambda d: kernel_of(d)["Matern52"].update(notes={"tuple": [{"tuple": ["variance", {"LogNormal": {"sd": -1.0}}]}]}),
        "LogNormal: sd must be positive",
    ),
    "not a kernel": (lambda d: d["model"]["Fitted"]["gp"]["GP"].update(kernel=3), "GP needs a kernel"),
    "not a model": (lambda d: d.update(model={"Note": {}}), "it holds a Note where a model is needed"),
    "nothing": (lambda d: d.pop("model"), "it holds a NoneType where a model is needed"),
    "wrong part": (lambda d: d["model"]["Fitted"].update(plan={"Note": {}}), "its plan is a Note"),
    "wrong rows": (
        lambda d: d["model"]["Fitted"]["inputs"]["Points"].update(X=kernel_of(d)["Matern52"]["lengthscale"]),
        "different numbers of rows",
    ),
    "a list": (lambda d: kernel_of(d).update(Matern52=[]), "lacks its field|does not fit together"),
}


@pytest.mark.parametrize("name", list(CHANGES))
def test_changed_files(name, saved):
    change, message = CHANGES[name]
    rewrite(saved, change)
    with pytest.raises(ValueError, match=f"model.structgp is damaged or was changed: .*{message}"):
        sg.load(saved)


def test_a_description_that_is_not_json(saved):
    head, data = header(saved)
    for text in ("{", "[" * 100_000, "[]"):
        head["__metadata__"] = {"format": "structgp", "description": text}
        raw = json.dumps(head).encode()
        saved.write_bytes(struct.pack("<Q", len(raw)) + raw + data)
        with pytest.raises(ValueError, match="its description is not JSON"):
            sg.load(saved)


def test_a_file_of_an_older_structgp_takes_defaults_for_new_fields(saved, fitted):
    rewrite(saved, lambda d: d["model"]["Fitted"].pop("learning"))
    after = sg.load(saved)
    assert after.learning is None
    assert after.log_evidence == fitted.log_evidence


def as_older(description):
    """The plan as older files hold it: choices that were refusals among the fields of engines, accuracy left to these."""
    offers = description["model"]["Fitted"]["plan"]["Plan"]["offers"]["tuple"]
    offers[:] = [{"Offer": fields} for item in offers for fields in item.values()]
    for offer in (item["Offer"] for item in offers):
        for name in set(offer) - {"engine", "cost", "reason", "note", "error"}:
            del offer[name]
        if offer["cost"] is not None:
            del offer["cost"]["Cost"]["rows"]
        for name, fields in offer["engine"].items():
            if name in ("SpaceTimeChains", "ToeplitzLines", "FourierToeplitz"):
                fields["refusal"] = "some cells are missing"


@pytest.mark.full
def test_plans_of_older_files(tmp_path, monkeypatch):
    from structgp.engines import base, grid_holes

    monkeypatch.setattr(grid_holes, "WHOLE", 10)
    monkeypatch.setattr(base, "MOST_HOLES", 0)  # an iterative algorithm, though there are few holes
    grid = sg.Grid(np.linspace(0.0, 1.0, 6), np.linspace(0.0, 1.0, 5))
    gp = sg.GP(sg.SquaredExponential([0.5, 0.6]), sg.Gaussian(0.1))
    y = np.where(np.arange(30) == 7, np.nan, np.sin(5 * grid.points.sum(axis=1)))
    fitted, path = gp.condition(grid, y, missing="infer", structure="kronecker"), tmp_path / "older.structgp"
    fitted.save(path)
    rewrite(path, as_older)
    after = sg.load(path)
    assert after.plan.engine == fitted.plan.engine
    assert after.plan.chosen.quality == fitted.plan.chosen.quality == "to 1e-08"
    np.testing.assert_array_equal(after.predict(grid).mean, fitted.predict(grid).mean)
