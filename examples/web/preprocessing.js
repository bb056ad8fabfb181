// From a picture to a detector's input, as mmort.predict.Preprocessing does it, from the same settings.

import { requireProportion, resizeBytes, resizeFloats } from "./resize.js";

const DEFAULTS = {
  mean: [0, 0, 0], std: [1, 1, 1], to_rgb: false, size: null, keep_ratio: true, size_divisor: 1,
  pad_or: 0, pad_add: 0, padding: null, resize_backend: "cv2", interpolation: "bilinear", to_float32: false, divide: false,
  turn_boxes: false, turn_size: true, rounding: "nearest", clip_boxes: false, inclusive_boxes: false,
};
const NO_PADDING = { value: null, size: null, square: false, size_divisor: 1, in_image: false, centred: false };

const multiple = (length, divisor) => Math.ceil(length / divisor) * divisor;

/** Return the settings with defaults for what is missing. */
export function readSettings(values) {
  const settings = { ...DEFAULTS, ...values };
  if (settings.resize_backend !== "cv2" || settings.interpolation !== "bilinear")
    throw new Error(
      `its pictures are resized with ${settings.resize_backend}, ${settings.interpolation}, and this page resizes as OpenCV does, bilinear`);
  const unknown = Object.keys(settings).filter((name) => !(name in DEFAULTS) && name !== "flip");
  unknown.push(...Object.keys(settings.padding ?? {}).filter((name) => !(name in NO_PADDING)));
  if (unknown.length) throw new Error(`this page does not know its preprocessing's ${unknown.join(", ")}`);
  return settings;
}

/** Round to the nearest integer, of two to the even one, as Python does. */
function halfToEven(value) {
  const below = Math.floor(value), rest = value - below;
  return rest < 0.5 || (rest === 0.5 && below % 2 === 0) ? below : below + 1;
}

/** Return the width and height to which transformers resizes, for shortest_edge and longest_edge. */
function fitShortSide(width, height, short, long) {
  const less = Math.min(width, height), more = Math.max(width, height);
  const side = (more / less) * short > long ? (long * less) / more : short;
  const resizedShort = Math.max(1, halfToEven(side)), resizedLong = Math.max(1, Math.trunc((side * more) / less));
  if (less === resizedShort) return [width, height];
  return width < height ? [resizedShort, resizedLong] : [resizedLong, resizedShort];
}

/** Return the width and height to which a picture is resized. */
function resizedSize(settings, width, height) {
  if (settings.size === null) return [width, height];
  if (!settings.keep_ratio) return settings.size;
  if (!settings.turn_size) {
    const scale = Math.min(settings.size[0] / width, settings.size[1] / height);
    return [width, height].map((length) => Math.max(1, settings.rounding === "down" ? Math.trunc(length * scale) : halfToEven(length * scale)));
  }
  if (settings.rounding === "down") return fitShortSide(width, height, Math.min(...settings.size), Math.max(...settings.size));
  const scale = Math.min(Math.max(...settings.size) / Math.max(width, height), Math.min(...settings.size) / Math.min(width, height));
  return [width, height].map((length) => Math.max(1, Math.trunc(length * scale + (settings.rounding === "truncate" ? 0 : 0.5))));
}

/** Return the function that normalizes a value of a channel, with the roundings to float32 of MMDetection. */
function normalizer(settings, channel) {
  const mean = Math.fround(settings.mean[channel]), std = Math.fround(settings.std[channel]);
  return settings.divide
    ? (value) => Math.fround(value - mean) / std
    : (value) => Math.fround(value - mean) * (1 / std);
}

/** Return height and width of the padded picture, and the row and column at which the picture starts in it. */
function paddedShape(settings, padding, width, height) {
  if (settings.pad_or) {
    const shape = [height, width].map((length) => (length | settings.pad_or) + settings.pad_add);
    return { shape, offset: [height, width].map((length, axis) => (shape[axis] >> 1) - (length >> 1)) };
  }
  let [rows, columns] = padding.square ? [Math.max(width, height), Math.max(width, height)] : [height, width];
  if (padding.size !== null) [columns, rows] = [Math.max(columns, padding.size[0]), Math.max(rows, padding.size[1])];
  const shape = [rows, columns].map((length) => multiple(length, padding.size_divisor));
  return { shape, offset: padding.centred ? [height, width].map((length, axis) => (shape[axis] - length) >> 1) : [0, 0] };
}

/**
 * Turn an ImageData into a detector's input.
 *
 * `input` is (1, 3, ...padShape) of float32; `imgShape` is the height and width of the resized picture, and `offset` its
 * first row and column in `input`.  Divide positions in the resized picture by `scale` (x, y) for those in the original.
 */
export function prepare(image, settings) {
  const originalShape = [image.height, image.width];
  const [width, height] = resizedSize(settings, image.width, image.height);
  requireProportion(width, height, 2 * image.width * image.height);
  const resize = settings.to_float32 ? resizeFloats : resizeBytes;
  const pixels = resize(image.data, 4, image.width, image.height, width, height);

  const padding = { ...NO_PADDING, ...settings.padding };
  const { shape, offset } = paddedShape(settings, padding, width, height);
  const padShape = shape.map((length) => multiple(length, settings.size_divisor));
  const [rows, columns] = padShape;
  requireProportion(columns, rows, 2 * width * height);
  const input = new Float32Array(3 * rows * columns);
  for (let channel = 0; channel < 3; channel++) {
    const normalize = normalizer(settings, channel), plane = input.subarray(channel * rows * columns);
    if (padding.value !== null)
      for (let y = 0; y < shape[0]; y++) plane.fill(normalize(padding.value), y * columns, y * columns + shape[1]);
    const levels = Float32Array.from({ length: 256 }, (_, level) => normalize(level));
    const source = settings.to_rgb ? channel : 2 - channel; // an ImageData is red, green, blue, opacity
    for (let y = 0; y < height; y++)
      for (let x = 0; x < width; x++) {
        const value = pixels[(y * width + x) * 4 + source];
        plane[(y + offset[0]) * columns + x + offset[1]] = settings.to_float32 ? normalize(value) : levels[value];
      }
  }
  const scale = [Math.fround(width / image.width), Math.fround(height / image.height)];
  return { input, originalShape, imgShape: padding.in_image ? shape : [height, width], padShape, scale, offset };
}
