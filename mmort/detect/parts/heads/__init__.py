"""Heads that several families share."""
