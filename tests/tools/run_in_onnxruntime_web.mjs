// Runs a model in onnxruntime-web's WebAssembly, on one thread:
//     node run_in_onnxruntime_web.mjs NODE_MODULES JOB.json
// JOB.json has `model`, `inputs` (each of file and dims), `repeats` and `folder`: each input is run, and the outputs go to
// FOLDER as raw files.  Prints their names, types and dims, and the median of the processor's milliseconds, as JSON.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";

const ort = createRequire(resolve(process.argv[2], "_"))("onnxruntime-web");
const job = JSON.parse(readFileSync(process.argv[3], "utf-8"));
ort.env.wasm.numThreads = 1;
ort.env.logLevel = "error";
const session = await ort.InferenceSession.create(job.model, { executionProviders: ["wasm"] });
const results = [], milliseconds = [];
for (const [index, { file, dims }] of job.inputs.entries()) {
  const bytes = readFileSync(file);
  const data = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
  let outputs;
  for (let repeat = 0; repeat < job.repeats; repeat++) {
    const begin = process.cpuUsage();
    outputs = await session.run({ [session.inputNames[0]]: new ort.Tensor("float32", data, dims) });
    const { user, system } = process.cpuUsage(begin);
    milliseconds.push((user + system) / 1000);
  }
  results.push(
    session.outputNames.map((name) => {
      const { type, dims, data } = outputs[name];
      const path = join(job.folder, `${index}.${name}`);
      writeFileSync(path, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
      return { name, type, dims: Array.from(dims, Number), path };
    }),
  );
}
milliseconds.sort((a, b) => a - b);
console.log(JSON.stringify({ results, milliseconds: milliseconds[milliseconds.length >> 1] }));
