"""Build the bridge with a fake ONNX Runtime and a sanitizer, and run it; needs clang, for fuzz with its libFuzzer.

python -m tests.fuzz.bridge fuzz --seconds 60          coverage-guided, under ASan and UBSan
python -m tests.fuzz.bridge allocations                each allocation and each call of the API fails once, under ASan
python -m tests.fuzz.bridge threads --seconds 60       eight threads run the same nodes, under TSan

Objects and the corpus stay in build/fuzz.
"""

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from pathlib import Path

from mmort import build
from tests.fuzz.bridge import corpus

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
FOLDER = ROOT / "build" / "fuzz"
COMMON = ["-std=gnu11", "-O1", "-g", "-fno-omit-frame-pointer", "-ffp-contract=off", "-ffunction-sections", "-w"]
COMMON += [
    "-fdata-sections",
    "-DMMK_NO_CLONES",
    '-DMMK_LIBRARY="mmort"',
    '-DMMK_VERSION="0"',
    "-DPy_LIMITED_API=0x030b0000",
]
COMMON += ["-DCYTHON_NO_PYINIT_EXPORT"]
# clang counts NULL + 0 as an overflow, which C2y defines and kernels do with scratch memory of no bytes.
ADDRESS = ["-fsanitize=fuzzer-no-link,address,undefined", "-fno-sanitize-recover=undefined"]
ADDRESS += ["-fno-sanitize=pointer-overflow"]
FLAGS = {"fuzz": ADDRESS, "allocations": ADDRESS, "threads": ["-fsanitize=thread"]}
LINK = {
    "fuzz": ["-fsanitize=fuzzer,address,undefined"],
    "allocations": ["-fsanitize=address,undefined"],
    "threads": ["-fsanitize=thread"],
}
ALLOCATE = ["check.c", "node.c", "registry.c"]
"""The sources that allocate."""


def build_program(name: str, compiler: str) -> Path:
    """Compile what has changed, and link; return the program."""
    os.chdir(ROOT)  # the kit's paths are relative to it
    kernels = sorted(glob("mmort/_kernels/**/*.c", recursive=True) + glob("mmort/_kernels/**/*.pyx", recursive=True))
    settings = build.operators(extension="mmort._kernels.numpy_api", library="mmort.libmmort_ort", sources=kernels)
    archive = settings["libraries"][0][1]
    sources = [*archive["sources"], *settings["ext_modules"][1].sources]
    sources.append("bridge_c/pool.c")
    sources += [str(HERE / file) for file in ("fake_ort.c", "case.c", f"{name}.c")]
    folder = FOLDER / ("thread" if name == "threads" else "address")
    folder.mkdir(parents=True, exist_ok=True)
    includes = [f"-I{path}" for path in (*archive["include_dirs"], HERE)]

    def compile_source(source: str) -> Path:
        renamed = name == "allocations" and Path(source).name in ALLOCATE
        target = folder / (source.strip("/").replace("/", "_") + (".counted.o" if renamed else ".o"))
        extra = ["-Dmalloc=counted_malloc", "-Dcalloc=counted_calloc"] if renamed else []
        headers = [*glob("bridge_c/*.h"), *glob("mmort/_kernels/**/*.h", recursive=True), *glob(str(HERE / "*.h"))]
        if not target.exists() or target.stat().st_mtime < max(map(os.path.getmtime, (source, *headers))):
            command = [compiler, *COMMON, *FLAGS[name], *includes, *extra, "-c", source, "-o", target]
            subprocess.run(command, check=True)
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_source, sources))
    program = FOLDER / f"{name}.program"
    # What Cython adds for Python is dropped; what of it remains until then needs no Python.
    link = ["-Wl,--gc-sections", "-Wl,--unresolved-symbols=ignore-all", "-no-pie", "-lm", "-lpthread"]
    subprocess.run([compiler, *LINK[name], *objects, *link, "-o", program], check=True)
    return program


def main() -> int:
    parser = argparse.ArgumentParser(description="The bridge and the kernels under sanitizers, without ONNX Runtime.")
    parser.add_argument("program", choices=FLAGS)
    parser.add_argument("--seconds", type=int, default=60, help="how long to run")
    parser.add_argument("--count", type=int, default=40, help="valid calls of each operator to begin with")
    parser.add_argument("--seed", type=int, default=0, help="of these calls")
    options = parser.parse_args()
    program = build_program(options.program, os.environ.get("CLANG", "clang"))
    paths = corpus.write(FOLDER / "valid", options.count, options.seed)
    suppress = "halt_on_error=1:print_stacktrace=1"
    address = "allocator_may_return_null=1:max_allocation_size_mb=1024"
    environment = os.environ | {"ASAN_OPTIONS": address, "UBSAN_OPTIONS": suppress, "TSAN_OPTIONS": suppress}
    if options.program == "fuzz":
        corpus_folder = FOLDER / "corpus"
        corpus_folder.mkdir(exist_ok=True)
        # A call within the limits of docs/limits.md may take a minute under the sanitizers.
        limits = [f"-max_total_time={options.seconds}", "-timeout=300", "-rss_limit_mb=3000", "-malloc_limit_mb=0"]
        limits += [f"-seed={options.seed + 1}", "-max_len=20000", f"-artifact_prefix={FOLDER}/", "-print_final_stats=1"]
        command = [program, *limits, corpus_folder, FOLDER / "valid"]
    elif options.program == "threads":
        command = ["setarch", "-R", program, str(options.seconds), *paths]  # TSan wants addresses that are not random
    else:
        command = [program, *paths]
    return subprocess.run(command, check=False, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
