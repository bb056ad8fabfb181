// Bilinear resizing with the arithmetic of OpenCV's cv2.resize, whose bits MMDetection's detectors were trained with.

const WEIGHT_ONE = 2048; // OpenCV's weights of bytes have 11 bits

const MAX_PIXELS = 2 ** 24; // 4096 x 4096, as mmort.predict has it

/** Refuse a size, by which a file's metadata enlarges something, that is neither usual nor near `pixels`. */
export function requireProportion(width, height, pixels) {
  if (!(width * height <= Math.max(MAX_PIXELS, pixels))) // nor if one is no number
    throw new Error(`its metadata asks for ${width} x ${height} pixels, and this page takes ${MAX_PIXELS}`);
}

/** The two source positions of each target position, and the weight of the second. */
function neighbours(size, newSize, clampWeights) {
  const scale = 1 / (newSize / size);
  const first = new Int32Array(newSize), second = new Int32Array(newSize), weight = new Float32Array(newSize);
  for (let target = 0; target < newSize; target++) {
    const position = Math.fround((target + 0.5) * scale - 0.5);
    const floor = Math.floor(position);
    weight[target] = clampWeights && (floor < 0 || floor >= size - 1) ? 0 : position - floor;
    first[target] = Math.min(Math.max(floor, 0), size - 1);
    second[target] = Math.min(Math.max(floor + 1, 0), size - 1);
  }
  return { first, second, weight };
}

/** Round to the nearest integer, halves to the even one. */
function roundHalfToEven(value) {
  const floor = Math.floor(value), fraction = value - floor;
  return fraction > 0.5 || (fraction === 0.5 && floor % 2 !== 0) ? floor + 1 : floor;
}

/** Halve both sides: OpenCV then averages four pixels, which bilinear weights do too, but rounds the sum once. */
function halve(pixels, channels, width, newWidth, newHeight) {
  const result = new Uint8Array(newWidth * newHeight * channels);
  const row = width * channels;
  for (let y = 0, index = 0; y < newHeight; y++)
    for (let x = 0; x < newWidth; x++)
      for (let channel = 0; channel < channels; channel++, index++) {
        const from = 2 * y * row + 2 * x * channels + channel;
        result[index] = (pixels[from] + pixels[from + channels] + pixels[from + row] + pixels[from + row + channels] + 2) >> 2;
      }
  return result;
}

/**
 * Resize a picture of bytes, rows of pixels of `channels` values.
 *
 * The result equals cv2.resize(picture, (newWidth, newHeight)) in every bit.
 */
export function resizeBytes(pixels, channels, width, height, newWidth, newHeight) {
  if (width === newWidth && height === newHeight) return pixels;
  if (width === 2 * newWidth && height === 2 * newHeight) return halve(pixels, channels, width, newWidth, newHeight);
  const columns = neighbours(width, newWidth, true), rows = neighbours(height, newHeight, false);
  const integers = ({ weight }) => [
    Int32Array.from(weight, (share) => roundHalfToEven(Math.fround(1 - share) * WEIGHT_ONE)),
    Int32Array.from(weight, (share) => roundHalfToEven(share * WEIGHT_ONE)),
  ];
  const [left, right] = integers(columns), [upper, lower] = integers(rows);
  const widened = new Map(); // the last two source rows, resized horizontally
  const widen = (y) => {
    const known = widened.get(y);
    if (known) return known;
    const row = new Int32Array(newWidth * channels), start = y * width * channels;
    for (let x = 0, index = 0; x < newWidth; x++) {
      const a = start + columns.first[x] * channels, b = start + columns.second[x] * channels;
      for (let channel = 0; channel < channels; channel++, index++)
        row[index] = pixels[a + channel] * left[x] + pixels[b + channel] * right[x];
    }
    if (widened.size > 1) widened.delete(widened.keys().next().value);
    widened.set(y, row);
    return row;
  };
  const result = new Uint8Array(newWidth * newHeight * channels);
  for (let y = 0, index = 0; y < newHeight; y++) {
    const above = widen(rows.first[y]), below = widen(rows.second[y]);
    for (let x = 0; x < above.length; x++, index++) {
      const sum = ((upper[y] * (above[x] >> 4)) >> 16) + ((lower[y] * (below[x] >> 4)) >> 16);
      result[index] = (sum + 2) >> 2;
    }
  }
  return result;
}

/** Resize numbers in float32, as cv2.resize does with pictures of float32 and masks, up to the last bit or two. */
export function resizeFloats(values, channels, width, height, newWidth, newHeight) {
  if (width === newWidth && height === newHeight) return values;
  const columns = neighbours(width, newWidth, true), rows = neighbours(height, newHeight, true);
  const result = new Float32Array(newWidth * newHeight * channels);
  for (let y = 0, index = 0; y < newHeight; y++) {
    const above = rows.first[y] * width, below = rows.second[y] * width, lower = rows.weight[y];
    for (let x = 0; x < newWidth; x++) {
      const right = columns.weight[x];
      for (let channel = 0; channel < channels; channel++, index++) {
        const at = (row, column) => values[(row + column) * channels + channel];
        const top = at(above, columns.first[x]) * (1 - right) + at(above, columns.second[x]) * right;
        const bottom = at(below, columns.first[x]) * (1 - right) + at(below, columns.second[x]) * right;
        result[index] = top * (1 - lower) + bottom * lower;
      }
    }
  }
  return result;
}
