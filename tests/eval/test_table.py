import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalinginter.eval.table import figures_table

FIGURES = {
    "eval/episodes": 64.0,
    "eval/success": 0.4125,
    "eval/success_low": 0.3,
    "eval/success_high": 0.5,
    "eval/turns_mean": 7.51,
    "eval/stop/horizon": 0.25,
    "eval/stop/parse": 0.0,
    "eval/success_by_length/11": 0.2,
    "eval/pass_at_4": 0.5,
}


def test_a_metric_is_a_row_and_a_horizon_a_column():
    assert figures_table({5: FIGURES, 40: FIGURES | {"eval/success": 1.0}}) == [
        "horizon (turns)                5      40",
        "episodes                      64      64",
        "success                    0.412   1.000",
        "success, 95% from          0.300   0.300",
        "success, 95% to            0.500   0.500",
        "turns mean                  7.51    7.51",
        "stopped by horizon          0.25    0.25",
        "success, 11 turns needed   0.200   0.200",
        "pass@4                       0.5     0.5",
    ]


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=40, unique=True))
def test_the_table_fits_80_columns_and_holds_every_horizon(horizons):
    lines = figures_table(dict.fromkeys(horizons, FIGURES))
    heads = [line.split()[2:] for line in lines if line.startswith("horizon")]
    assert max(map(len, lines)) <= 80
    assert [int(cell) for head in heads for cell in head] == horizons


@pytest.mark.parametrize("missing", [{}, {"eval/episodes": 0.0}])
def test_a_horizon_without_figures_has_empty_cells(missing):
    lines = figures_table({5: FIGURES, 9: missing})
    assert lines[2].split() == ["success", "0.412"]
