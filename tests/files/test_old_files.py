import json
from pathlib import Path

import numpy as np
import pytest
from old_models import recipes, told

import structgp as sg
from structgp.tables.model import load_table_model

OLD = Path(__file__).parent / "old"
EXPECTED = json.loads((OLD / "expected.json").read_text())


def test_there_is_an_old_file_of_every_kind():
    assert {path.stem for path in OLD.glob("*.structgp")} == {*recipes(), "table"}
    assert set(EXPECTED) == set(recipes())


@pytest.mark.parametrize("name", list(EXPECTED))
def test_files_of_format_1_say_what_they_said(name):
    model = sg.load(OLD / f"{name}.structgp")
    said = told(model)
    assert said.keys() == EXPECTED[name].keys()
    for key, numbers in said.items():
        # iterative engines end at 1e-8, and where exactly depends on the processor
        np.testing.assert_allclose(numbers, EXPECTED[name][key], rtol=1e-7, atol=1e-9, err_msg=key)


def test_the_model_of_a_table_in_format_1_and_again(tmp_path):
    model = load_table_model(OLD / "table.structgp")
    model.save(tmp_path / "table.structgp")
    assert model._described() == load_table_model(tmp_path / "table.structgp")._described()
    raw = (tmp_path / "table.structgp").read_bytes()
    (tmp_path / "table.structgp").write_bytes(raw.replace(b'\\"x\\"', b'\\"z\\"', 1))
    with pytest.raises(ValueError, match="is damaged or was changed: its content is not what was saved"):
        load_table_model(tmp_path / "table.structgp")
    assert (model.task, model.target, model.layout.names) == ("regression", "y", ["x", "z"])
    prediction = model.fitted.predict((np.array([[1.0, 0.0], [4.0, 0.5]]) - model.center) / model.scale)
    np.testing.assert_allclose(prediction.mean, [0.8424244281824838, -0.2542306447169824], rtol=1e-9)
