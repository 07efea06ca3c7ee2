"""Numbers that others have published: EP by GPML and by GPy, and GPy's variational Gaussian.

GPML's are those that Shogun's unit tests compare with (tests/unit/machine/gp/EPInferenceMethod_unittest.cc), GPy's those of
kickscore's test cases (tests/data/testcase-binary-2, -binary-3 and -count-1). Their searches end earlier than ours: the
evidence, which is stationary, agrees much better than the moments.
"""

import numpy as np
import pytest

import structgp as sg
import zoo

GPML_X = np.array(
    [[-1.07932, -1.83544], [1.15768, 2.91702], [3.26631, -3.85663], [1.79009, 0.11949], [-3.66051, 1.75159]],
)
GPML_Y = np.array([-1.0, 1.0, 1.0, 1.0, -1.0])
GPML = sg.GP(sg.SquaredExponential(2.0, 1.5**2), sg.Bernoulli())

TIMES = [0.11616722, 0.31198904, 0.31203728, 0.74908024, 1.19731697, 1.20223002, 1.41614516, 1.46398788, 1.73235229, 1.90142861]
LABELS = np.array([0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0])
COUNTS = np.array([0.0, 5.0, 9.0, 17.0, 13.0, 9.0, 14.0, 4.0, 0.0, 3.0])
GPY = {
    "labels by EP": (
        (sg.Bernoulli(), LABELS, "ep"),
        -8.4713680700883938,
        [
            0.31360008,
            0.5563249,
            0.55637697,
            0.69265769,
            0.31460952,
            0.31025632,
            0.14610304,
            0.11367125,
            -0.04366288,
            -0.15818941,
        ],
        [0.50323764, 0.41926517, 0.41926308, 0.47346879, 0.32169469, 0.3199826, 0.28991614, 0.29480962, 0.38651489, 0.5172971],
        (1e-9, 5e-6),
    ),
    "counts by EP": (
        (sg.Poisson(), COUNTS, "ep"),
        -34.17124728271082,
        [0.93164981, 1.72301551, 1.72320218, 2.73508948, 2.45344018, 2.44689963, 2.0414921, 1.8880199, 0.96836331, 0.6341377],
        [0.14713937, 0.06385539, 0.06385362, 0.05218482, 0.03325405, 0.03286925, 0.0427826, 0.04961863, 0.12335469, 0.21598998],
        (1e-9, 3e-6),
    ),
    "labels by a variational Gaussian": (
        (sg.Bernoulli(), LABELS, "variational"),
        -8.474371060586511,
        [0.31351392, 0.55605853, 0.55611057, 0.692318, 0.31443143, 0.31011436, 0.1460632, 0.1136343, -0.0435538, -0.15806632],
        [
            0.50034175,
            0.41618018,
            0.41617809,
            0.47086862,
            0.32057903,
            0.31887721,
            0.28890962,
            0.29375933,
            0.38465678,
            0.51458152,
        ],
        (5e-5, 5e-4),
    ),
}


def test_ep_of_five_labels_is_gpmls():
    fitted = GPML.condition(GPML_X, GPML_Y, inference="ep")
    assert fitted.log_evidence == pytest.approx(-3.38359489001561, abs=1e-9)
    belief = fitted.predict(GPML_X, covariance=True)
    mean = [-0.882471450365118, 1.132570041978009, 1.016031341665029, 1.079152436021026, -1.016378075891627]
    np.testing.assert_allclose(belief.mean, mean, atol=1e-4)
    variance = [1.20274103263760379, 1.26103532435204135, 1.26094966657088081, 1.22399410182504154, 1.26206797645117108]
    np.testing.assert_allclose(belief.variance, variance, atol=1e-3)
    assert belief.covariance[1, 3] == pytest.approx(0.27319700541557035, abs=1e-3)


@pytest.mark.parametrize("structure", zoo.mostly_full(["dense", "markov"], "markov"))
@pytest.mark.parametrize("name", GPY)
def test_ten_observations_along_a_line_are_gpys(name, structure):
    (likelihood, y, method), evidence, mean, variance, (close, near) = GPY[name]
    fitted = sg.GP(sg.Matern32(1.0, 2.0), likelihood).condition(np.array(TIMES), y, inference=method, structure=structure)
    assert fitted.log_evidence == pytest.approx(evidence, abs=close)
    belief = fitted.predict(np.array(TIMES))
    np.testing.assert_allclose(belief.mean, mean, atol=near)
    np.testing.assert_allclose(belief.variance, variance, atol=near)
