"""The names for configs that every module here needs."""

from mmort.configs.names import plain_type
from mmort.configs.schema import Config

__all__ = ["Config", "plain_type"]
