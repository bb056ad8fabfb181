// node detect.js MODEL.onnx PICTURE: what a portable detector finds, a line for each object.
//
// A line is: class, score, x1, y1, x2, y2 in pixels of the picture, and of detectors with masks the pixels of the mask.
// onnxruntime-node cannot register libraries of operators, so the file is one of `mmort export --portable`.
//
// Preprocessing and masks are those of the page in ../web, whose modules run in Node too; copy them with this file.
import { readFile } from "node:fs/promises";

import * as ort from "onnxruntime-node";
import sharp from "sharp";

import { Detector, explain, readEntries } from "../web/detector.js";
import { withoutInitialValue } from "../web/onnx_file.js";

const MIN_SCORE = 0.3;

/** Read a picture as an ImageData has it: red, green, blue and opacity of each pixel. */
async function readPicture(path) {
  const { data, info } = await sharp(path).rotate().toColourspace("srgb").ensureAlpha().raw().toBuffer({ resolveWithObject: true });
  return { data, width: info.width, height: info.height };
}

/** Load a detector's file; the page does the same with onnxruntime-web. */
async function loadDetector(path) {
  const bytes = await readFile(path), entries = readEntries(bytes);
  const file = withoutInitialValue(bytes, "img_shape"); // so that it is an input that the session takes
  const session = await ort.InferenceSession.create(file, { logSeverityLevel: 3 }).catch((error) => { throw explain(error); });
  return new Detector(ort, session, entries);
}

async function main([model, picture]) {
  if (!picture) throw new Error("usage: node detect.js MODEL.onnx PICTURE");
  const detector = await loadDetector(model).catch((error) => { throw new Error(`${model}: ${error.message}`); });
  const { detections } = await detector.detect(await readPicture(picture), MIN_SCORE);
  for (const { name, score, box, rotatedBox, mask } of detections) {
    const pixels = mask ? [mask.bits.reduce((sum, bit) => sum + bit, 0)] : [];
    console.log(name, score.toFixed(4), ...(box ?? rotatedBox).map((value) => value.toFixed(2)), ...pixels);
  }
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
