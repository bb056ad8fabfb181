"""Building operators: the arguments of ``setuptools.setup``, for mmort's own setup.py and for other packages.

A package provides its kernels, and ``operators.c`` with their rows; everything else is in the kit, whose directory
`get_include` returns.  Neither ONNX Runtime's header nor its library is needed.  ``docs/adding_an_operator.md`` in
mmort's sources is a worked example.

This module needs setuptools, Cython and numpy, which belong in ``build-system.requires``, and nothing of mmort but the
kit: mmort's own setup.py loads it before anything is compiled.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import sysconfig
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parent
# Installed, the kit is a package of mmort; in mmort's sources it is a directory next to it.
_KIT = next(path for path in (_PACKAGE / "bridge_c", _PACKAGE.parent / "bridge_c") if path.is_dir())
_MSVC, _MAC = sys.platform == "win32", sys.platform == "darwin"
_SUFFIX = ".dll" if _MSVC else ".dylib" if _MAC else ".so"
# One module for all Pythons from 3.11 on, the first whose stable ABI has buffers; interpreters without a GIL have none.
_STABLE_ABI = (
    sys.implementation.name == "cpython"
    and sys.version_info >= (3, 11)
    and not sysconfig.get_config_var("Py_GIL_DISABLED")
)
_EXPORTS = ["RegisterCustomOps", "mmort_describe"]
_ARCHIVED = ["check.c", "rows.c", "run.c", "shapes.c"]  # what the kernels and both front ends call
_BRIDGE = ["attributes.c", "inference.c", "node.c", "registry.c"]


def get_include() -> str:
    """Return the directory of the kit: headers, Cython declarations, and the sources of both front ends.

    Returns
    -------
    str
        An absolute path.

    Examples
    --------
    >>> import os
    >>> import mmort.build
    >>> os.path.exists(os.path.join(mmort.build.get_include(), "mmk.h"))
    True
    """
    return str(_KIT)


def operators(
    *,
    extension: str,
    library: str,
    sources: Sequence[str],
    with_library: bool | None = True,
    sanitize: bool = False,
) -> dict[str, Any]:
    """Return the arguments of ``setuptools.setup`` that build kernels for numpy and for ONNX Runtime.

    Parameters
    ----------
    extension : str
        The extension module of the numpy API, ``"example._kernels"``.  Its function ``call`` runs a kernel on arrays;
        ``describe`` returns the rows for `mmort.schemas.parse`; ``set_num_threads`` and ``get_num_threads`` are the
        module's own.  It needs Python and numpy only, not mmort.
    library : str
        The library for ONNX Runtime, as a module in its package would be named: ``"example.libexample_ort"`` becomes
        ``example/libexample_ort.so`` (``.dll``, ``.dylib``).  It exports ``RegisterCustomOps`` and ``mmort_describe``
        only, and loads without Python and without ONNX Runtime.
    sources : sequence of str
        The kernels, ``.pyx`` or ``.c``, and ``operators.c``, with paths relative to setup.py.
    with_library : bool or None, default True
        False leaves the library out; None builds it where possible.
    sanitize : bool, default False
        Build for finding errors: little optimisation, debug information, Cython's bounds checks, address and
        undefined-behaviour sanitizers.

    Returns
    -------
    dict
        ``ext_modules``, ``libraries``, ``cmdclass`` and ``options``.

    Raises
    ------
    ImportError
        If setuptools, Cython or numpy is not installed.
    ValueError
        If ``operators.c`` is missing, or no source defines a kernel.

    Notes
    -----
    A kernel NAME is found in the sources by its function ``mmk_NAME_prepare``.  All kernels are compiled once, into an
    archive from which both the module and the library are linked.  The library drops the Python code that Cython adds
    to every file; kernels that call Python do not link.  The library's name and version in messages are those of the
    distribution.  A file is compiled again if it, a header or the compiler's options have changed.

    From Python 3.11 on the module uses Python's stable ABI, so one wheel, tagged ``cp311-abi3``, serves all of them.

    Examples
    --------
    The whole of a setup.py::

        from setuptools import setup

        import mmort.build

        setup(
            **mmort.build.operators(
                extension="example._kernels",
                library="example.libexample_ort",
                sources=["example/operators.c", "example/group_norm.pyx"],
            )
        )
    """
    try:
        import numpy as np
        from Cython.Build import cythonize
        from setuptools import Extension
    except ModuleNotFoundError as error:
        raise ImportError(
            f"mmort.build.operators needs {error.name}: pip install setuptools cython numpy, or name them in "
            "build-system.requires of pyproject.toml"
        ) from None
    folders = sorted({os.path.dirname(source) or "." for source in sources})
    if "operators.c" not in map(os.path.basename, sources):
        raise ValueError(f"mmort.build.operators: sources must hold operators.c, got {list(sources)}")

    cflags, library_link, extension_link = _flags(sanitize)
    build = "build/debug" if sanitize else "build"
    kernel_list = _write_kernel_list(sources, Path(build))
    directives: dict[str, Any] = {"language_level": 3, "cdivision": True, "wraparound": False}
    directives |= dict.fromkeys(("boundscheck", "initializedcheck"), sanitize)
    # The commands that compile translate, too: a source distribution and what pip asks before a build do not need that.
    translate = partial(
        cythonize, build_dir=f"{build}/cython", include_path=[str(_KIT)], compiler_directives=directives
    )
    include_dirs = [*folders, _kit("")]
    headers = [str(path) for folder in include_dirs for path in sorted(Path(folder).glob("*.h"))]
    archive = library.rpartition(".")[2].removeprefix("lib") + "_kernels"
    archived = {
        "sources": [*map(_kit, _ARCHIVED), kernel_list, *sources],
        "headers": headers,
        "include_dirs": [*include_dirs, sysconfig.get_path("include")],  # Cython's boilerplate wants Python.h
        "cflags": [*cflags, "-DCYTHON_NO_PYINIT_EXPORT"],  # exported, they would keep Cython's code for Python
    }
    # Linkers take a file from an archive only if one of its functions is called, and nothing calls the description.
    extension_module = Extension(
        extension, [_kit(name) for name in ("numpy_api.pyx", "describe.c", "pool.c")], py_limited_api=_STABLE_ABI
    )
    library_module = Extension(library, [*map(_kit, _BRIDGE), _kit("describe.c")], optional=with_library is None)
    shared_dirs = [*include_dirs, np.get_include()]  # describe.c is compiled once for both, with the same options
    for module, link in ((extension_module, extension_link), (library_module, library_link)):
        module.include_dirs, module.extra_compile_args, module.extra_link_args = shared_dirs, cflags, link
        # The sources themselves, too: setuptools puts dependencies into the source distribution.
        module.depends = [*headers, _kit("exports.map"), *archived["sources"]]
    options = {"build": {"build_base": build}}
    if _STABLE_ABI:
        options["bdist_wheel"] = {"py_limited_api": "cp311"}
    return {
        "ext_modules": [extension_module, library_module] if with_library is not False else [extension_module],
        "libraries": [(archive, archived)],
        "cmdclass": _commands(extension, library, build, translate),
        "options": options,
    }


def _write_kernel_list(sources: Sequence[str], folder: Path) -> str:
    """Write the table of the kernels that the sources define, unless it is there already; return its path."""
    text = "".join(Path(source).read_text(encoding="utf-8") for source in sources)
    names = sorted(set(re.findall(r"\bint mmk_(\w+)_prepare\(\s*mmk_call\s*\*\s*\w+\s*\)", text)))
    if not names:
        raise ValueError(
            f"mmort.build.operators: sources must define a kernel (int mmk_NAME_prepare(mmk_call *call)), got none in "
            f"{list(sources)}"
        )
    lines = ["/* kernel_list.c - the kernels of this library; written by mmort.build. */", '#include "mmk.h"', ""]
    lines += [f"MMK_DECLARE({name})" for name in names]
    lines += ["", "const mmk_operator mmk_operators[] = {"]
    lines += [*(f"    MMK_ENTRY({name})," for name in names), "    {NULL, NULL, NULL},", "};", ""]
    path = folder / "kernel_list.c"
    if not _holds(path, "\n".join(lines)):
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines), encoding="utf-8")
    return path.as_posix()


def _kit(name: str) -> str:
    """Return the path of a file of the kit; relative in mmort's own setup.py, as the paths of its other sources."""
    return str(Path("bridge_c", name) if Path("bridge_c").resolve() == _KIT else _KIT / name)


def _flags(sanitize: bool) -> tuple[list[str], list[str], list[str]]:
    """Return the options of the compiler, of the library's link and of the extension module's."""
    stable_abi = ["-DPy_LIMITED_API=0x030b0000"] if _STABLE_ABI else []
    if _MSVC:
        return ["/O2", "/std:c11", "/experimental:c11atomics", *stable_abi], ["/OPT:REF"], []
    # Fused multiply-add would change the last bits on machines that have it.
    cflags = ["-std=gnu11", "-ffp-contract=off", "-fvisibility=hidden", "-ffunction-sections", "-fdata-sections"]
    cflags += ["-fno-trapping-math"]  # otherwise gcc keeps branches, for floating-point flags that nobody reads
    cflags += ["-Wno-tautological-compare"]  # x != x tests for NaN, also in types that have none
    cflags += stable_abi
    sanitizers = ["-fsanitize=address,undefined"] if sanitize else []
    if sanitize:
        cflags += ["-O1", "-g", "-fno-omit-frame-pointer", "-DMMK_NO_CLONES", *sanitizers]
    else:
        cflags += ["-O3", "-g0", "-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"]
    # The library keeps only the functions that it calls; `defs` makes the link fail if one of them needs Python.
    if _MAC:
        exported = [f"-Wl,-exported_symbol,_{name}" for name in _EXPORTS]
        return cflags, ["-Wl,-dead_strip", *exported, *sanitizers], sanitizers
    link = ["-Wl,--gc-sections", "-Wl,-z,relro,-z,now", "-lm", *sanitizers]
    defs = [] if sanitize else ["-Wl,-z,defs"]  # the sanitizers' own symbols come with the process
    return cflags, [*link, *defs, f"-Wl,--version-script={_kit('exports.map')}"], [*link, "-pthread"]


def _in_distribution(sources: list[str]) -> list[str]:
    """Return the sources that a source distribution should list: no files of an installed kit, and no built ones."""
    return [path for path in sources if not os.path.isabs(path) and Path(path).parts[0] != "build"]


def _commands(extension: str, library: str, build: str, translate: Callable[..., Any]) -> dict[str, type]:
    """Return the setuptools commands that build the archive, and the library, which is not a Python module."""
    from setuptools.command.build_clib import build_clib
    from setuptools.command.build_ext import build_ext

    class BuildClib(build_clib):
        def finalize_options(self) -> None:
            super().finalize_options()
            # pip's editable builds would put both into a temporary directory.
            self.build_clib, self.build_temp = f"{build}/lib", f"{build}/objects"

        def get_source_files(self) -> list[str]:
            return _in_distribution(super().get_source_files())  # type: ignore[no-untyped-call]

        def build_libraries(self, libraries: Any) -> None:
            for name, info in libraries:
                objects = _compile_changed(
                    self.compiler,
                    _to_c(info["sources"], translate),
                    info["headers"],
                    self.build_temp,
                    info["include_dirs"],
                    info["cflags"],
                )
                for path in Path(self.build_clib).glob(f"*{name}.*"):  # it would keep objects of deleted sources
                    path.unlink()
                self.compiler.create_static_lib(objects, name, output_dir=self.build_clib)

    class BuildExt(build_ext):
        def finalize_options(self) -> None:
            super().finalize_options()
            self.build_temp = f"{build}/objects"

        def get_source_files(self) -> list[str]:
            return _in_distribution(super().get_source_files())

        def run(self) -> None:
            self.run_command("build_clib")
            # An optional library that no longer builds must not remain from an earlier build, nor a module whose name
            # Python prefers to the new one's.
            modules = [os.path.join(*extension.split(".")) + suffix for suffix in EXTENSION_SUFFIXES]
            for folder in [self.build_lib, *(["."] if self.inplace else [])]:
                for built in (*modules, self.get_ext_filename(library)):
                    with contextlib.suppress(FileNotFoundError):
                        os.remove(os.path.join(folder, built))
            super().run()

        def build_extension(self, ext: Any) -> None:
            sources = ext.sources
            if ext.name in (extension, library):
                name, version = self.distribution.get_name(), self.distribution.get_version()
                flags = [*ext.extra_compile_args, f'-DMMK_LIBRARY="{name}"', f'-DMMK_VERSION="{version}"']
                headers = [path for path in ext.depends if path.endswith(".h")]
                c_files = _to_c(sources, translate, ext.name)
                ext.extra_objects = _compile_changed(
                    self.compiler, c_files, headers, self.build_temp, ext.include_dirs, flags
                )
                ext.sources = []
            super().build_extension(ext)
            ext.sources = sources

        def get_ext_filename(self, fullname: str) -> str:
            if fullname.rpartition(".")[2] != library.rpartition(".")[2]:
                return str(super().get_ext_filename(fullname))  # type: ignore[no-untyped-call]
            return os.path.join(*fullname.split(".")) + _SUFFIX

        def get_export_symbols(self, ext: Any) -> list[str]:
            symbols = _EXPORTS if ext.name == library else super().get_export_symbols(ext)  # type: ignore[no-untyped-call]
            return list(symbols)

    return {"build_clib": BuildClib, "build_ext": BuildExt}


def _to_c(sources: Sequence[str], translate: Callable[..., Any], module: str | None = None) -> list[str]:
    """Return C sources, for which Cython translates those of its language that have changed: kernels, or a module."""
    from setuptools import Extension

    cython = [source for source in sources if source.endswith(".pyx")]
    modules = translate([Extension(module, cython)] if cython and module else cython)
    c_files = dict(zip(cython, (path for module in modules for path in module.sources), strict=True))
    return [c_files.get(source, source) for source in sources]


def _compile_changed(
    compiler: Any,
    sources: Sequence[str],
    headers: Sequence[str],
    build_temp: str,
    include_dirs: Sequence[str],
    flags: Sequence[str],
) -> list[str]:
    """Compile, on all cores, the sources that are newer than their objects, or whose headers are; return all objects.

    setuptools would compile all sources, one after another, if one of them has changed.
    """
    from setuptools.modified import newer_group

    # Objects of another compiler or of other options are in another folder.
    command = repr((getattr(compiler, "compiler_so", None), compiler.include_dirs, include_dirs, flags))
    folder = f"{build_temp}/{zlib.crc32(command.encode()):08x}"
    objects: list[str] = compiler.object_filenames(sources, output_dir=folder)

    def compile_if_changed(source: str, path: str) -> None:
        if newer_group([source, *headers], path):
            compiler.compile([source], output_dir=folder, include_dirs=include_dirs, extra_postargs=flags)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_if_changed, sources, objects))  # raises the first error
    return objects


def _holds(path: Path, text: str) -> bool:
    """Return whether a file exists and holds this text."""
    return path.exists() and path.read_text(encoding="utf-8") == text
