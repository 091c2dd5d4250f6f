"""docs/ops.md says what the ops are today."""

import ops_page
import pytest


@pytest.mark.slow
def test_the_page_is_not_stale():
    assert ops_page.PAGE.read_text() == ops_page.page(), "rewrite it with: make ops"
