// From a detector's output `masks` to masks in the picture, as mmort.predict.MaskFormat describes and stores them.

import { requireProportion, resizeFloats } from "./resize.js";

const DEFAULTS = { area: "box", threshold: 0.5, stride: 1, rescaling: "crop", boxes: "output", scores: "output", alignment: "centres", inside_boxes: false };

/** Return the format with defaults for what is missing. */
export function readFormat(values) {
  const format = { ...DEFAULTS, ...values };
  if (format.panoptic) throw new Error("it makes panoptic segmentations, which this page does not draw");
  if (format.inside_input_boxes) throw new Error("its masks end at the boxes in its input, which this page does not draw");
  if (format.alignment !== "centres") throw new Error("its masks are aligned with corners, which this page does not draw");
  return format;
}

/** A mask in the picture: the rectangle outside which it has no pixels, and a byte, 0 or 1, for each pixel in it. */
const region = (left, top, width, height) => ({ left, top, width, height, bits: new Uint8Array(width * height) });

/** The range of pixels within one pixel of an interval, clipped to the picture. */
function pixelRange(low, high, size) {
  const first = Math.max(Math.floor(low) - 1, 0);
  return [first, Math.max(Math.min(Math.ceil(high) + 1, size), first)];
}

/** The cells of a mask that pixels are interpolated from, and their weights, which are 0 outside the mask. */
function neighbours([begin, end], low, high, cells) {
  const result = [];
  for (let pixel = begin; pixel < end; pixel++) {
    const share = high > low ? (pixel + 0.5 - low) / (high - low) : 0.5;
    const position = share * cells - 0.5, floor = Math.floor(position);
    const weight = (cell) => (cell >= 0 && cell < cells ? 1 - Math.abs(position - cell) : 0);
    const clamp = (cell) => Math.min(Math.max(cell, 0), cells - 1);
    result.push({ first: clamp(floor), firstWeight: weight(floor), second: clamp(floor + 1), secondWeight: weight(floor + 1) });
  }
  return result;
}

/** Paste probabilities over the area of a box into the picture, whose height and width are given. */
export function pasteMask(probabilities, rows, columns, [x1, y1, x2, y2], [height, width], threshold) {
  const [top, bottom] = pixelRange(y1, y2, height), [left, right] = pixelRange(x1, x2, width);
  const mask = region(left, top, right - left, bottom - top);
  const across = neighbours([left, right], x1, x2, columns);
  let index = 0;
  for (const { first, firstWeight, second, secondWeight } of neighbours([top, bottom], y1, y2, rows)) {
    const row = new Float32Array(columns);
    for (let x = 0; x < columns; x++)
      row[x] = probabilities[first * columns + x] * firstWeight + probabilities[second * columns + x] * secondWeight;
    for (const x of across) mask.bits[index++] = row[x.first] * x.firstWeight + row[x.second] * x.secondWeight >= threshold;
  }
  return mask;
}

/** Return the part of rows of `width` numbers that starts at the first row and column. */
function crop(values, width, top, left, newHeight, newWidth) {
  const result = new Float32Array(newHeight * newWidth);
  for (let y = 0; y < newHeight; y++) {
    const start = (top + y) * width + left;
    result.set(values.subarray(start, start + newWidth), y * newWidth);
  }
  return result;
}

const greatestCommonDivisor = (a, b) => (b ? greatestCommonDivisor(b, a % b) : a);

/** Return what the picture takes up of a mask over the input, before and after it is resized to the original size. */
function rescale(mask, rows, columns, format, prepared) {
  const [height, width] = prepared.originalShape;
  if (format.rescaling === "stretch") return [mask, resizeFloats(mask, 1, columns, rows, width, height)];
  if (format.rescaling === "edges") {
    const cell = [...prepared.offset, ...prepared.imgShape].reduce(greatestCommonDivisor, format.stride);
    const [newRows, newColumns] = prepared.padShape.map((side) => side / cell);
    const enlarged = resizeFloats(mask, 1, columns, rows, newColumns, newRows);
    const [[top, left], [partRows, partColumns]] = [prepared.offset, prepared.imgShape].map((pair) => pair.map((side) => side / cell));
    const part = crop(enlarged, newColumns, top, left, partRows, partColumns);
    return [part, resizeFloats(part, 1, partColumns, partRows, width, height)];
  }
  const [newRows, newColumns] = format.rescaling === "fit" ? prepared.padShape : [rows * format.stride, columns * format.stride];
  requireProportion(newColumns, newRows, 16 * width * height);
  const enlarged = resizeFloats(mask, 1, columns, rows, newColumns, newRows);
  if (format.rescaling === "scale") {
    // As in MMDetection, the scales of x and y are exchanged.
    const [xScale, yScale] = [Math.round(prepared.scale[0] * width) / width, Math.round(prepared.scale[1] * height) / height];
    const scaled = [Math.ceil(newRows * (1 / xScale)), Math.ceil(newColumns * (1 / yScale))];
    const resized = resizeFloats(enlarged, 1, newColumns, newRows, scaled[1], scaled[0]);
    return [enlarged, crop(resized, scaled[1], 0, 0, height, width)];
  }
  const part = crop(enlarged, newColumns, ...prepared.offset, ...prepared.imgShape);
  return [part, resizeFloats(part, 1, prepared.imgShape[1], prepared.imgShape[0], width, height)];
}

/** The mean probability of the logits above a threshold, 0 without any. */
function meanProbability(logits, threshold) {
  const inside = logits.filter((logit) => logit > threshold);
  return inside.reduce((sum, logit) => sum + 1 / (1 + Math.exp(-logit)), 0) / (inside.length + 1e-6);
}

/** Return a mask (rows, columns) over the whole input as one in the picture, and the factor of its score there. */
export function rescaleMask(mask, rows, columns, format, prepared, box) {
  const [before, after] = rescale(mask, rows, columns, format, prepared);
  const [height, width] = prepared.originalShape;
  const [x1, y1, x2, y2] = format.inside_boxes ? box : [0, 0, width, height];
  let [left, top, right, bottom] = [width, height, 0, 0];
  for (let y = 0, index = 0; y < height; y++)
    for (let x = 0; x < width; x++)
      if (after[index++] > format.threshold && x >= x1 && x < x2 && y >= y1 && y < y2)
        [left, top, right, bottom] = [Math.min(left, x), Math.min(top, y), Math.max(right, x + 1), y + 1];
  const found = right > left ? region(left, top, right - left, bottom - top) : region(0, 0, 0, 0);
  for (let y = 0, index = 0; y < found.height; y++)
    for (let x = 0; x < found.width; x++) found.bits[index++] = after[(top + y) * width + left + x] > format.threshold;
  if (format.inside_boxes) return { mask: found, factor: Number(found.width > 0) };
  const previous = format.scores === "masks" ? meanProbability(before, format.threshold) : 0;
  return { mask: found, factor: previous ? meanProbability(after, format.threshold) / previous : 1 };
}
