"""Build and test the recipe of examples/conda without a conda channel.

    python tests/tools/build_conda_package.py FOLDER PYTHON...

A channel of stand-ins is made in FOLDER first: the given Pythons, one of which is 3.11, packages that pip gets for
them, this machine's gcc, and empty packages for those of conda-forge that only carry requirements.  FOLDER/channel
keeps them, and mmort's package.  Needs py-rattler-build, and patchelf on the path.
"""

import json
import pathlib
import shutil
import subprocess
import sys

import rattler_build

RECIPE = pathlib.Path(__file__).parents[2] / "examples" / "conda" / "recipe.yaml"
COPY = """
cd {prefix}
mkdir "$PREFIX/bin"
cp bin/python{minor} "$PREFIX/bin/"
ln -s python{minor} "$PREFIX/bin/python"
cp -r --parents include/python{minor} lib/python{minor} "$PREFIX/"
cp -P lib/libpython{minor}.so* "$PREFIX/lib/" || true  # another Python has all in its program
cd "$PREFIX/lib/python{minor}"
rm -r config-* test site-packages/*
find . -name __pycache__ -prune -exec rm -r {{}} +
grep -rlI {prefix} . | xargs -r sed -i "s#{prefix}#$PREFIX#g"
"""
ACTIVATE = """
mkdir -p "$PREFIX/etc/conda/activate.d"
echo "export CC=gcc" >"$PREFIX/etc/conda/activate.d/gcc.sh"
"""


def build(folder, name, version, script=None, string="0", **requirements):
    recipe = {
        "package": {"name": name, "version": version},
        "requirements": requirements,
        "about": {"summary": "a stand-in"},
    }
    if script:
        recipe["build"] = {
            "string": string,
            "script": {"content": script},
            "python": {"skip_pyc_compilation": ["**/*.py"]},
        }
    else:
        recipe["build"] = {"string": string, "noarch": "generic"}
    where = folder / "recipes" / f"{name}-{version}-{string}"
    return run(folder, rattler_build.Stage0Recipe.from_dict(recipe, recipe_dir=where))


def run(folder, recipe, **options):
    channel = folder / "channel"
    (result,) = recipe.run_build(output_dir=channel, channels=[channel.as_uri()], package_format="conda:1", **options)
    (package,) = result.packages
    shutil.rmtree(channel / "bld")  # its environments
    return package


def build_python(folder, python):
    code = "import json, platform, sys; print(json.dumps([sys.base_prefix, platform.python_version()]))"
    prefix, version = json.loads(subprocess.check_output([python, "-c", code]))
    minor = version.rpartition(".")[0]
    build(folder, "python", version, COPY.format(prefix=prefix, minor=minor))
    build(folder, "cpython", version, run=[f"python =={version}"])
    for name in ("pip", "setuptools", "cython", "numpy", "onnxruntime", "abi3audit"):
        wheels = folder / "wheels" / minor / name
        install = f"{python} -m pip --python $PREFIX/bin/python install --no-deps --no-index"
        pip = [python, "-m", "pip", "download", "-q", "--only-binary=:all:", "-d", wheels]
        alone = [] if name in ("onnxruntime", "abi3audit") else ["--no-deps"]
        subprocess.run([*pip, *alone, name], check=True)
        # A package holds what it depends on, but for numpy.
        files = {path.name.split("-")[0].lower(): path for path in wheels.glob("*.whl")}
        numpy = [] if name == "numpy" or files.pop("numpy", None) is None else ["numpy"]
        build(
            folder,
            name,
            files[name].name.split("-")[1],
            " ".join([install, *map(str, files.values())]),
            string=f"py{minor.replace('.', '')}_0",
            host=[f"python {minor}.*"],
            run=[f"python {minor}.*", *numpy],
            run_exports=["numpy >=1.23,<3"] if name == "numpy" else [],
        )


def main(folder, *pythons):
    folder = pathlib.Path(folder).resolve()
    channel = folder / "channel"
    channel.mkdir(parents=True)
    build(folder, "gcc_linux-64", "1", ACTIVATE)
    build(folder, "sysroot_linux-64", "2.17", run_exports={"strong": ["__glibc >=2.17,<3.0.a0"]})
    build(folder, "_python_abi3_support", "1.0", run=["cpython"])
    build(folder, "python-abi3", "3.11", run_exports=["cpython >=3.11", "_python_abi3_support 1.*"])
    for python in pythons:
        build_python(folder, python)
    variants = rattler_build.VariantConfig.from_file(RECIPE.with_name("variants.yaml"))
    package = run(folder, rattler_build.Stage0Recipe.from_file(RECIPE), variant_config=variants)
    results = rattler_build.Package.from_file(package).run_tests(channel=[channel.as_uri()])
    print(*results[-1].output, package, sep="\n")  # each result has the output of all tests
    assert results
    assert all(result.success for result in results)


if __name__ == "__main__":
    main(*sys.argv[1:])
