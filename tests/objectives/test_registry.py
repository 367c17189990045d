"""The table names its rows, finds them, and asks the loop for settings that it has."""

from __future__ import annotations

import pytest

from atlas_engine.adapt.optimise import OptimiseConfig
from atlas_engine.errors import ConfigError
from atlas_engine.objectives.registry import OBJECTIVES, find_objective
from atlas_engine.objectives.supervised import CrossEntropy


def test_the_table_names_its_rows_and_offers_the_nearest():
    assert all(name == spec.name and spec.help and spec.paper for name, spec in OBJECTIVES.items())
    assert find_objective("supervised").make() == CrossEntropy()
    with pytest.raises(ConfigError, match="Did you mean 'supervised'"):
        find_objective("supervized")


def test_loop_defaults_are_settings_of_the_loop():
    assert OBJECTIVES["sar"].loop_defaults == {"sharpness": 0.05, "collapse_below": 0.2}
    for spec in OBJECTIVES.values():
        OptimiseConfig.from_dict(spec.loop_defaults)
