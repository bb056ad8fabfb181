"""Blocks that several families are made of."""
