"""The interactive figure in a browser: what its sliders choose is what our functions give."""

import runpy

import pytest
import torch

from roformer.nn.rotary import decay_bound, rotary_angles
from tests.browser.conftest import watched
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.slow

DRAWN = "document.getElementById('plot').data.map(trace => [...(trace.theta ?? trace.y)])"


def test_sliders_choose_what_is_drawn(browser, tmp_path):
    script = runpy.run_path(str(REPOSITORY / "scripts" / "rope.py"))
    file = tmp_path / "rope.html"
    file.write_text(script["build_page"]())
    distances = torch.arange(script["FARTHEST"] + 1)
    with watched(browser, file.as_uri()) as page:
        for position, base, size in ((12, 2, 2), (512, 5, 0), (0, 0, 4)):
            for name, value in (("position", position), ("base", base), ("size", size)):
                page.fill(f"#{name}", str(value))
            chosen = script["HEAD_SIZES"][size], script["BASES"][base]
            turned, score, bound = (torch.tensor(one).float() for one in page.evaluate(DRAWN))
            expected = rotary_angles(torch.tensor([position]), *chosen)[0]
            torch.testing.assert_close(turned, expected, rtol=1e-6, atol=0)
            expected = rotary_angles(distances, *chosen).cos().mean(-1)
            torch.testing.assert_close(score, expected, rtol=0, atol=1e-4)
            torch.testing.assert_close(bound, decay_bound(distances, *chosen), rtol=0, atol=1e-4)
            said = page.inner_text("#told")
            assert f"At position {position} the first of {chosen[0] // 2} pairs" in said
            at = [f"{curve[position].item():.2f}" for curve in (score, bound)]
            assert said.endswith(f"the score is {at[0]}, the bound {at[1]}.")
            assert page.inner_text("#base-shown") == f"{chosen[1]:,}"
