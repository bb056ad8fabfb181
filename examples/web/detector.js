// A detector's file in onnxruntime-web: an ImageData in, detections in its pixels out.

import { pasteMask, readFormat, rescaleMask } from "./masks.js";
import { readMetadata, withoutInitialValue } from "./onnx_file.js";
import { prepare, readSettings } from "./preprocessing.js";

const RUNTIMES = { wasm: "./onnxruntime-web/ort.wasm.min.mjs", webgpu: "./onnxruntime-web/ort.webgpu.min.mjs" };

/** Return the file's metadata as objects. */
export function readEntries(bytes) {
  const metadata = readMetadata(bytes), entry = (key) => JSON.parse(metadata.get(key) ?? "null");
  const preprocessing = entry("preprocessing");
  if (!preprocessing) throw new Error("it has no preprocessing in its metadata, as files of mmort export have");
  return { classes: entry("classes") ?? [], preprocessing: readSettings(preprocessing), masks: readFormat(entry("masks")) };
}

/** Return a reader's words for why onnxruntime-web does not take a file. */
export function explain(error) {
  const custom = /not a registered function|No op registered|schema registered for|domain \w+ .*not/i.test(error.message);
  return new Error(custom ? "it needs mmort's library; write a file that does not: mmort portable FILE --output OTHER" : error.message);
}

export class Detector {
  /**
   * Load a file's bytes.
   *
   * device: "wasm" for the processor, or "webgpu": what the graphics processor cannot run stays on the processor.
   */
  static async load(bytes, device = "wasm") {
    const entries = readEntries(bytes);
    const ort = await import(RUNTIMES[device]);
    ort.env.logLevel = "error";
    ort.env.wasm.numThreads = self.crossOriginIsolated ? navigator.hardwareConcurrency : 1;
    const session = await ort.InferenceSession.create(withoutInitialValue(bytes, "img_shape"), {
      executionProviders: device === "wasm" ? ["wasm"] : [device, "wasm"],
    }).catch((error) => { throw explain(error); });
    for (const name of ["dets", "labels"])
      if (!session.outputNames.includes(name)) throw new Error(`it has no output ${name}, as a detector's file has`);
    return new Detector(ort, session, entries);
  }

  constructor(ort, session, { classes, preprocessing, masks }) {
    Object.assign(this, { ort, session, classes, preprocessing, maskFormat: masks });
  }

  /** Free the memory of the file. */
  release() {
    return this.session.release();
  }

  /** Return the detections with at least a score, by descending score, and the milliseconds of each stage. */
  async detect(image, minScore = 0) {
    const begin = performance.now();
    const prepared = prepare(image, this.preprocessing);
    const ready = performance.now();
    const outputs = await this.session.run(this.feeds(prepared));
    const run = performance.now();
    const detections = this.read(outputs, prepared, minScore);
    return { detections, times: { preprocessing: ready - begin, network: run - ready, masks: performance.now() - run } };
  }

  feeds({ input, imgShape, padShape }) {
    const { Tensor } = this.ort, [name] = this.session.inputNames;
    const feeds = { [name]: new Tensor("float32", input, [1, 3, ...padShape]) };
    if (this.session.inputNames.includes("img_shape"))
      feeds.img_shape = new Tensor("int64", BigInt64Array.from(imgShape, BigInt), [1, 2]);
    return feeds;
  }

  /** Return the detections in a picture's outputs. */
  read({ dets, labels, masks }, prepared, minScore) {
    const columns = dets.dims[2], found = [];
    for (let index = 0; index < labels.data.length; index++) {
      const row = Array.from(dets.data.subarray(index * columns, (index + 1) * columns));
      const label = Number(labels.data[index]), score = row.at(-1);
      if (label < 0 || !(score > 0) || score < minScore || !row.every(Number.isFinite)) continue; // an unused row
      const detection = { label, name: this.classes[label] ?? String(label), score, ...this.boxIn(row, prepared) };
      if (masks) this.addMask(detection, masks, index, prepared);
      found.push(detection);
    }
    return found.filter(({ score }) => score >= minScore).sort((first, second) => second.score - first.score);
  }

  /** Return a row's box in the picture: x1, y1, x2, y2, or of a rotated one centre, width, height and angle. */
  boxIn(row, { offset: [top, left], scale: [x, y], originalShape }) {
    if (row.length === 6) {
      const [centreX, centreY, width, height, angle] = row, cos = Math.cos(angle), sin = Math.sin(angle);
      const turned = this.preprocessing.turn_boxes // as in MMRotate 1
        ? [width * Math.hypot(cos / x, sin / y), height * Math.hypot(sin / x, cos / y), Math.atan2(sin / x, cos / y)]
        : [width / x, height / y, angle];
      return { rotatedBox: [(centreX - left) / x, (centreY - top) / y, ...turned] };
    }
    const last = this.preprocessing.inclusive_boxes ? 1 : 0; // GLIP's boxes end with their last pixel
    const box = [(row[0] - left) / x, (row[1] - top) / y, (row[2] - left) / x + last, (row[3] - top) / y + last];
    if (this.preprocessing.clip_boxes)
      return { box: box.map((edge, index) => Math.min(Math.max(edge, 0), originalShape[1 - (index % 2)])) };
    return { box: top || left ? box.map((edge) => Math.max(edge, 0)) : box };
  }

  addMask(detection, masks, index, prepared) {
    const [rows, columns] = masks.dims.slice(2), { maskFormat } = this;
    const values = masks.data.subarray(index * rows * columns, (index + 1) * rows * columns);
    if (maskFormat.area === "box") {
      detection.mask = pasteMask(values, rows, columns, detection.box, prepared.originalShape, maskFormat.threshold);
      return;
    }
    const { mask, factor } = rescaleMask(values, rows, columns, maskFormat, prepared, detection.box);
    detection.mask = mask;
    detection.score *= factor;
    if (maskFormat.boxes === "masks") detection.box = [mask.left, mask.top, mask.left + mask.width, mask.top + mask.height];
  }
}
