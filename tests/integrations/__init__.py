"""Tests with libraries too large for the suite: `.ci/run integrations` installs them."""
