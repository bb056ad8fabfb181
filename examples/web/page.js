// The page: reads files, pictures and camera frames, and shows what the detector finds and how long each stage took.

import { Detector } from "./detector.js";
import { draw } from "./drawing.js";

const MAX_PIXELS = 2 ** 25; // of a picture: its bitmap, its pixels, the canvas and the masks take 128 MB each

const byId = (id) => document.getElementById(id);
let file; // name and bytes of the detector's file, and the device that it runs on
let detector;
let picture; // an ImageBitmap, the last that was detected in
let camera; // a video element while the camera runs

// Tasks run one after another: a session takes one picture at a time.
let tasks = Promise.resolve();

function enqueue(task) {
  tasks = tasks.then(task).catch((error) => report(error.message, true));
}

function report(text, failed = false) {
  byId("status").textContent = text;
  byId("status").classList.toggle("error", failed);
}

function fillTable(table, caption, rows) {
  table.createCaption().textContent = caption;
  table.replaceChildren(table.caption);
  for (const cells of rows) {
    const row = table.insertRow();
    for (const cell of cells) row.insertCell().textContent = cell;
  }
}

async function loadDetector(name, bytes) {
  report(`Loading ${name} …`);
  const begin = performance.now(), device = byId("device").value;
  const loaded = await Detector.load(bytes, device).catch((error) => {
    if (file) byId("device").value = file.device; // the detector from before stays
    throw new Error(`${name} cannot be used as a detector: ${error.message}`);
  });
  await detector?.release();
  [file, detector] = [{ name, bytes, device }, loaded];
  const threads = detector.ort.env.wasm.numThreads;
  const next = picture ? "" : byId("samples").hasChildNodes() ? ". Click a picture above, or choose one of yours" : ". Choose a picture";
  report(`${name}: loaded in ${(performance.now() - begin).toFixed(0)} ms, ${threads} thread${threads === 1 ? "" : "s"}${next}`);
  if (picture) await detect(picture);
}

/** Load a detector's file that was chosen or dropped. */
function loadFile(chosen) {
  enqueue(async () => loadDetector(chosen.name, new Uint8Array(await chosen.arrayBuffer())));
}

/** Return the pixels of an ImageBitmap or a video's frame. */
function pixelsOf(source, width, height) {
  const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  context.drawImage(source, 0, 0);
  return context.getImageData(0, 0, width, height);
}

/** Return the width and height that a picture's file states; an Image is not decoded before it is drawn. */
async function statedSize(blob) {
  const image = new Image(), url = URL.createObjectURL(blob);
  try {
    await new Promise((resolve, reject) => Object.assign(image, { onload: resolve, onerror: reject, src: url }));
    return [image.naturalWidth, image.naturalHeight];
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** Decode a picture's file; colours stay as they are in the file, and EXIF's rotation is applied. */
async function decode(name, blob) {
  const unreadable = () => { throw new Error(`${name} is not a picture that this browser can read`); };
  const [width, height] = await statedSize(blob).catch(unreadable);
  if (width * height > MAX_PIXELS)
    throw new Error(`${name} has ${width} x ${height} pixels, and this page takes ${MAX_PIXELS}; mmort predict takes more`);
  return createImageBitmap(blob, { colorSpaceConversion: "none", premultiplyAlpha: "none" }).catch(unreadable);
}

async function detect(bitmap, decoding) {
  if (!detector) throw new Error("Choose a detector first: a file of mmort export --portable");
  const { width, height } = bitmap, begin = performance.now();
  const image = pixelsOf(bitmap, width, height), reading = performance.now() - begin;
  const { detections, times } = await detector.detect(image, Number(byId("score").value)).catch((error) => {
    throw file.device === "webgpu" ? new Error(`WebGPU cannot run this detector, choose the processor: ${error.message}`) : error;
  });
  const drawing = performance.now();
  draw(byId("canvas"), bitmap, detections);
  picture = bitmap;
  const stages = { ...(decoding && { decoding }), pixels: reading, ...times, drawing: performance.now() - drawing };
  const total = Object.values(stages).reduce((sum, time) => sum + time, 0);
  const rows = Object.entries({ ...stages, total }).map(([stage, time]) => [stage, `${time.toFixed(1)} ms`]);
  fillTable(byId("times"), "Time of each stage", rows);
  const cells = ({ name, score, box, rotatedBox }) => [name, score.toFixed(3), (box ?? rotatedBox).map((value) => value.toFixed(1)).join(", ")];
  fillTable(byId("detections"), `${detections.length} found`, detections.map(cells));
}

/** Detect in a picture's file, which `open` returns. */
function detectFile(name, open) {
  enqueue(async () => {
    report(`Detecting in ${name} …`);
    const blob = await open(), begin = performance.now(), bitmap = await decode(name, blob);
    await detect(bitmap, performance.now() - begin);
    report(`${name}: ${bitmap.width} x ${bitmap.height} pixels`);
  });
}

async function fetchBlob(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} cannot be fetched: ${response.status}`);
  return response.blob();
}

/** Load the detector and the pictures that `mmort demo --web` puts beside the page; without them nothing is loaded. */
async function loadSamples() {
  const response = await fetch("samples.json");
  if (!response.ok) return report("Choose a detector, a file of mmort export --portable, and a picture.");
  const { model, pictures } = await response.json();
  for (const url of pictures) {
    const button = document.createElement("button"), thumbnail = new Image();
    [button.type, thumbnail.src, thumbnail.alt] = ["button", url, `sample picture ${url}`];
    button.append(thumbnail);
    button.onclick = () => detectFile(url, () => fetchBlob(url));
    byId("samples").append(button);
  }
  await loadDetector(model, new Uint8Array(await (await fetchBlob(model)).arrayBuffer()));
}

async function toggleCamera() {
  if (camera) {
    for (const track of camera.srcObject.getTracks()) track.stop();
    camera = undefined;
  } else {
    if (!navigator.mediaDevices) throw new Error("The browser lends a camera only to pages of https and of this computer");
    const stream = await navigator.mediaDevices.getUserMedia({ video: true }).catch((error) => {
      throw new Error(`The camera cannot be used: ${error.message}`);
    });
    camera = Object.assign(document.createElement("video"), { srcObject: stream, muted: true, playsInline: true });
    await camera.play();
    report("Camera");
    nextFrame();
  }
  byId("camera").textContent = camera ? "Stop camera" : "Camera";
}

/** Detect in the camera's frames, one after another, until it is stopped. */
function nextFrame() {
  enqueue(async () => {
    if (!camera) return;
    const previous = picture;
    await detect(await createImageBitmap(camera));
    previous?.close();
    requestAnimationFrame(nextFrame);
  });
}

byId("model").onchange = ({ target: { files: [chosen] } }) => chosen && loadFile(chosen);
byId("picture").onchange = ({ target: { files: [chosen] } }) => chosen && detectFile(chosen.name, () => chosen);
byId("camera").onclick = () => enqueue(toggleCamera);
byId("score").onchange = () => enqueue(() => picture && detect(picture));
byId("device").onchange = () => enqueue(() => file && loadDetector(file.name, file.bytes));
document.ondragover = (event) => (event.preventDefault(), document.body.classList.add("dragging"));
document.ondragleave = () => document.body.classList.remove("dragging");
document.ondrop = (event) => {
  event.preventDefault();
  document.body.classList.remove("dragging");
  for (const dropped of event.dataTransfer.files)
    if (dropped.name.endsWith(".onnx")) loadFile(dropped);
    else detectFile(dropped.name, () => dropped);
};
enqueue(loadSamples);
