#!/bin/sh
# Fetch the files of onnxruntime-web that the page loads, from the npm registry: vendor.sh [DIR]
#
# They go to DIR/onnxruntime-web, by default beside the page.  The page itself asks no other host for anything.
set -eu
version=1.30.0
directory=${1:-$(dirname "$0")}/onnxruntime-web
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm pack --silent --pack-destination "$work" "onnxruntime-web@$version" >/dev/null
tar -xzf "$work/onnxruntime-web-$version.tgz" -C "$work"
mkdir -p "$directory"
for name in ort.wasm.min.mjs ort-wasm-simd-threaded.mjs ort-wasm-simd-threaded.wasm \
    ort.webgpu.min.mjs ort-wasm-simd-threaded.asyncify.mjs ort-wasm-simd-threaded.asyncify.wasm; do
    cp "$work/package/dist/$name" "$directory"
done
