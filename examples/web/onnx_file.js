// What the page needs of an ONNX file that onnxruntime-web does not tell: its metadata, and that img_shape is an input.
//
// An ONNX file is one protobuf message.  A field is a key, (number << 3 | type), and a value; fields may be in any order.

const LENGTH_DELIMITED = 2;
const MODEL = { graph: 7, metadata: 14 }, GRAPH = { initializer: 5 }, TENSOR = { name: 8 }, ENTRY = { key: 1, value: 2 };

/** Read a variable-length integer; return it and the offset behind it. */
function readVarint(bytes, offset) {
  for (let value = 0, factor = 1; factor < 2 ** 70; factor *= 128) {
    if (offset >= bytes.length) break;
    const byte = bytes[offset++];
    value += (byte & 127) * factor;
    if (byte < 128) return [value, offset];
  }
  throw new Error("it is not an ONNX file, or not all of it");
}

/** Yield a message's fields: number, content if it has a length, and the range of bytes with the key. */
function* fields(message) {
  for (let offset = 0; offset < message.length; ) {
    const start = offset;
    let key, content, length;
    [key, offset] = readVarint(message, offset);
    const type = key % 8;
    if (type === 0) [, offset] = readVarint(message, offset);
    else if (type === LENGTH_DELIMITED) {
      [length, offset] = readVarint(message, offset);
      content = message.subarray(offset, offset + length);
      offset += length;
    } else if (type === 1 || type === 5) offset += type === 1 ? 8 : 4;
    else throw new Error("it is not an ONNX file");
    if (offset > message.length) throw new Error("it is not an ONNX file, or not all of it");
    yield { number: Math.floor(key / 8), content, start, end: offset };
  }
}

/** Return the text of a message's field, empty if it has none. */
function text(message, number) {
  for (const field of fields(message)) if (field.number === number && field.content) return new TextDecoder().decode(field.content);
  return "";
}

/** Return a field of bytes, with its key and length. */
function encode(number, parts) {
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  const varint = (value) => (value < 128 ? [value] : [(value % 128) + 128, ...varint(Math.floor(value / 128))]);
  return [Uint8Array.from([...varint(number * 8 + LENGTH_DELIMITED), ...varint(length)]), ...parts];
}

/** Return the parts of a message between the fields that are replaced; `replace` gives parts, or undefined to keep. */
function rewrite(message, replace) {
  const parts = [];
  for (const field of fields(message)) parts.push(...(replace(field) ?? [message.subarray(field.start, field.end)]));
  return parts;
}

/** Return the entries of the file's metadata as a Map of texts. */
export function readMetadata(bytes) {
  const entries = new Map();
  for (const { number, content } of fields(bytes))
    if (number === MODEL.metadata && content) entries.set(text(content, ENTRY.key), text(content, ENTRY.value));
  return entries;
}

/**
 * Return the file without the initial value of an input.
 *
 * The size of a picture without its padding is such an input of portable files, and onnxruntime-web cannot pass one.
 */
export function withoutInitialValue(bytes, name) {
  const isValue = ({ number, content }) => number === GRAPH.initializer && text(content, TENSOR.name) === name;
  const parts = rewrite(bytes, ({ number, content }) =>
    number === MODEL.graph ? encode(number, rewrite(content, (field) => (isValue(field) ? [] : undefined))) : undefined,
  );
  const result = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  parts.reduce((offset, part) => (result.set(part, offset), offset + part.length), 0);
  return result;
}
