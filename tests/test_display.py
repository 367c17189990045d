"""What notebooks show: tables and figures that are well formed, whatever the names are."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from atlas_engine.display import Figure, ShareBar, facts_html, figure_svg
from atlas_engine.errors import ConfigError
from atlas_engine.result import AdaptResult, Estimate, Outcome, Step, Verdict
from tests.exporting.models import make_recipe, small_bank


def make_result(**more):
    steps = tuple(
        Step(index=n, of=3, loss=loss, losses=(loss,), lr=0.1, grad_norm=1.0, scores=None, seconds=0.1)
        for n, loss in enumerate([2.0, float("nan"), 1.0])
    )
    facts = {
        "recipe": make_recipe(),
        "outcome": Outcome.finished,
        "reason": "",
        "history": steps,
        "seconds": 1.0,
        "verdict": Verdict("auto", True, "Adapting helped <b>much</b>."),
        "estimates": (Estimate("auto", 0.9, 0.7, 0.97, 20), Estimate("zero-shot", 0.6, 0.39, 0.78, 20)),
    }
    return AdaptResult(**{**facts, **more})


def test_results_recipes_and_banks_show_themselves_with_names_escaped():
    html = make_result()._repr_html_()
    assert "70% to 97%" in html
    assert "&lt;b&gt;much" in html
    assert "&lt;/script&gt;" in html  # a class of the recipe
    assert "2 of 2: task0, task1" in html
    for one in (html, make_recipe()._repr_html_(), small_bank()._repr_html_()):
        ElementTree.fromstring(f"<div>{one}</div>")


def test_a_plot_has_a_line_for_the_losses_and_a_bar_for_each_estimate(tmp_path):
    figure = make_result().plot()
    root = ElementTree.fromstring(figure._repr_svg_())
    kinds = [element.tag.rpartition("}")[2] for element in root.iter()]
    assert kinds.count("rect") == 2
    (line,) = [element for element in root.iter() if element.tag.endswith("polyline")]
    assert len(line.get("points").split()) == 2, "a step without a finite loss is left out"
    figure.save(tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").read_text(encoding="utf-8") == figure.svg
    with pytest.raises(ConfigError, match=r"must end in \.svg"):
        figure.save(tmp_path / "plot.png")


def test_a_result_without_steps_or_estimates_plots_all_the_same():
    svg = make_result(history=(), estimates=()).plot().svg
    assert "Adapting helped" in svg
    ElementTree.fromstring(svg)


def test_a_bar_stays_inside_its_panel_and_a_table_is_escaped():
    svg = figure_svg(title="t", losses=[], bars=[ShareBar("a<b", 1.0, 0.5, 1.2)])
    assert "a&lt;b" in svg
    assert Figure(svg).svg == svg
    assert "&lt;i&gt;" in facts_html("<i>", [("a", "b")])
