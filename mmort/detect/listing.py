"""The type names that configs may use besides those of detectors: backbones, necks, and the parts of heads."""

from __future__ import annotations

from mmort.detect import claims as _claims  # noqa: F401 - registers all of them
from mmort.detect.entries import DETECTOR, PARTS


def list_parts() -> dict[str, tuple[str, ...]]:
    """List the supported types of parts, with those of your own that are registered.

    Returns
    -------
    dict of str to tuple of str
        The type names of each kind of part, in alphabetical order; the kinds with the most types come first.

    Examples
    --------
    >>> from mmort.detect.listing import list_parts
    >>> [name for name in list_parts()["neck"] if name.startswith("NAS")]
    ['NASFCOS_FPN', 'NASFPN']
    """
    kinds = {
        kind: tuple(sorted(types, key=str.lower)) for kind, types in PARTS.types.items() if kind != DETECTOR and types
    }
    return dict(sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0])))
