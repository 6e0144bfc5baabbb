// Tensors as typed arrays, and as the bytes that lie in buffers.

const FLOAT16 = typeof Float16Array === 'undefined' ? [Uint16Array] : [Float16Array, Uint16Array];

// Per data type the arrays that hold its elements, the one that results come in first; 4-bit integers lie one to a
// byte.
const ARRAYS = {
    FLOAT64: [Float64Array], FLOAT32: [Float32Array], FLOAT16,
    INT64: [BigInt64Array], INT32: [Int32Array], INT16: [Int16Array], INT8: [Int8Array], INT4: [Int8Array],
    UINT64: [BigUint64Array], UINT32: [Uint32Array], UINT16: [Uint16Array],
    UINT8: [Uint8Array, Uint8ClampedArray], UINT4: [Uint8Array],
};
const NIBBLES = new Set(['INT4', 'UINT4']);

export const isKnown = type => type in ARRAYS;
export const arraysOf = type => ARRAYS[type];
export const count = sizes => sizes.reduce((product, size) => product * size, 1);

// Per element its place in memory; null where the elements lie one behind the other.
export function places({sizes, strides}) {
    if (!strides) return null;
    const found = new Uint32Array(count(sizes));
    let repeat = 1;
    for (let dimension = sizes.length - 1; dimension >= 0; dimension--) {
        for (let at = 0; at < found.length; at++) {
            found[at] += (Math.floor(at / repeat) % sizes[dimension]) * strides[dimension];
        }
        repeat *= sizes[dimension];
    }
    return found;
}

// Elements are moved as integers: as floats they might lose the bits of a NaN.
const INTEGERS = {1: Uint8Array, 2: Uint16Array, 4: Uint32Array, 8: BigUint64Array};

const bytesOf = array => new Uint8Array(array.buffer, array.byteOffset, array.byteLength);

// The bytes of a tensor of {type, shape, bytes, sizes, strides}, a multiple of 4.
export function encode(tensor, array) {
    const where = places(tensor);
    if (!where && !NIBBLES.has(tensor.type) && array.byteLength === tensor.bytes) return bytesOf(array);
    const raw = new Uint8Array(tensor.bytes);
    if (NIBBLES.has(tensor.type)) {
        array.forEach((value, at) => {
            const place = where ? where[at] : at;
            const shift = 4 * (place & 1);
            raw[place >> 1] = (raw[place >> 1] & ~(15 << shift)) | ((value & 15) << shift);
        });
    } else if (where) {
        const size = array.BYTES_PER_ELEMENT;
        const integers = new INTEGERS[size](array.buffer, array.byteOffset, array.length);
        const elements = new INTEGERS[size](raw.buffer, 0, Math.floor(tensor.bytes / size));
        integers.forEach((value, at) => { elements[where[at]] = value; });
    } else {
        raw.set(bytesOf(array));
    }
    return raw;
}

// The elements of a tensor, in an array of its own.
export function decode(tensor, raw, kind = ARRAYS[tensor.type][0]) {
    const where = places(tensor);
    const found = new kind(count(tensor.sizes ?? tensor.shape));
    if (NIBBLES.has(tensor.type)) {
        const signed = tensor.type === 'INT4';
        for (let at = 0; at < found.length; at++) {
            const place = where ? where[at] : at;
            const value = (raw[place >> 1] >> (4 * (place & 1))) & 15;
            found[at] = signed ? (value ^ 8) - 8 : value;
        }
    } else if (where) {
        const size = kind.BYTES_PER_ELEMENT;
        const elements = new INTEGERS[size](raw.slice(0, raw.length - raw.length % size).buffer);
        const integers = new INTEGERS[size](found.buffer);
        integers.forEach((_, at) => { integers[at] = elements[where[at]]; });
    } else {
        bytesOf(found).set(raw.subarray(0, found.byteLength));
    }
    return found;
}
