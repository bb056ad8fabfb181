// Detections on a canvas, in the colours of mmort.predict.draw.

const MASK_OPACITY = 0.4;
const MIN_SIDE = 640; // pixels of the canvas's longer side; small pictures are enlarged, so that lines and letters are sharp

/** Return the colour of a class as red, green and blue: ten hues in three tones, and again with hues between those. */
export function classColour(label) {
  const hue = (0.55 + 0.3 * label + 0.033 * Math.floor(label / 30)) % 1;
  const [saturation, value] = [[0.75, 1], [0.5, 0.9], [0.95, 0.8]][Math.floor(label / 10) % 3];
  return [5, 3, 1].map((channel) => {
    const k = (channel + hue * 6) % 6;
    return Math.round(255 * value * (1 - saturation * Math.max(0, Math.min(k, 4 - k, 1))));
  });
}

/** Return the corners of a detection's box. */
function corners({ box, rotatedBox }) {
  if (!rotatedBox) return [[box[0], box[1]], [box[2], box[1]], [box[2], box[3]], [box[0], box[3]]];
  const [x, y, width, height, angle] = rotatedBox, [cos, sin] = [Math.cos(angle), Math.sin(angle)];
  return [[-1, -1], [1, -1], [1, 1], [-1, 1]].map(([right, down]) => {
    const [dx, dy] = [(right * width) / 2, (down * height) / 2];
    return [x + dx * cos - dy * sin, y + dx * sin + dy * cos];
  });
}

/** The area of a detection's box. */
function area({ box, rotatedBox }) {
  return rotatedBox ? rotatedBox[2] * rotatedBox[3] : (box[2] - box[0]) * (box[3] - box[1]);
}

/** Return the masks as a picture of tints; a pixel has that of the last mask, and outlines are opaque. */
function tints(detections, width, height) {
  const layer = new ImageData(width, height);
  for (const { label, mask } of detections) {
    if (!mask) continue;
    const colour = classColour(label), has = (x, y) => x >= 0 && y >= 0 && x < mask.width && y < mask.height && mask.bits[y * mask.width + x];
    for (let y = 0; y < mask.height; y++)
      for (let x = 0; x < mask.width; x++) {
        if (!has(x, y)) continue;
        const inside = has(x - 1, y) && has(x + 1, y) && has(x, y - 1) && has(x, y + 1);
        layer.data.set([...colour, 255 * (inside ? MASK_OPACITY : 0.9)], 4 * ((mask.top + y) * width + mask.left + x));
      }
  }
  const canvas = new OffscreenCanvas(width, height);
  canvas.getContext("2d").putImageData(layer, 0, 0);
  return canvas;
}

/** Draw a picture and its detections; the smallest end on top. */
export function draw(canvas, picture, detections) {
  const { width, height } = picture, scale = Math.max(1, MIN_SIDE / Math.max(width, height));
  [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
  const context = canvas.getContext("2d");
  const line = Math.max(2, Math.sqrt(canvas.width * canvas.height) / 270), letters = Math.max(13, 6 * line);
  const ordered = [...detections].sort((first, second) => area(second) - area(first));
  context.drawImage(picture, 0, 0, canvas.width, canvas.height);
  context.drawImage(tints(ordered, width, height), 0, 0, canvas.width, canvas.height);
  for (const { label, ...detection } of ordered) {
    context.strokeStyle = `rgb(${classColour(label)})`;
    context.lineWidth = line;
    context.beginPath();
    for (const [x, y] of corners(detection)) context.lineTo(x * scale, y * scale);
    context.closePath();
    context.stroke();
  }
  context.font = `${letters}px sans-serif`;
  context.textBaseline = "top";
  for (const { label, name, score, ...detection } of ordered) {
    const [red, green, blue] = classColour(label), title = `${name} ${score.toFixed(2)}`;
    const points = corners(detection), [wide, tall] = [context.measureText(title).width + 8, letters + 4];
    const clamp = (value, limit) => Math.max(0, Math.min(value, limit));
    const left = clamp(Math.min(...points.map(([x]) => x)) * scale, canvas.width - wide);
    const top = clamp(Math.min(...points.map(([, y]) => y)) * scale - tall, canvas.height - tall);
    context.fillStyle = `rgb(${red},${green},${blue})`;
    context.fillRect(left, top, wide, tall);
    context.fillStyle = 0.299 * red + 0.587 * green + 0.114 * blue > 128 ? "black" : "white";
    context.fillText(title, left + 4, top + 2);
  }
}
