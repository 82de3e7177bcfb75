"""The words of end-to-end stories assert, too; pytest explains only what it is told to."""

import pytest

pytest.register_assert_rewrite("e2e")
