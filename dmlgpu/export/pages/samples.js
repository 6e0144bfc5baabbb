// Elements to show a model working with: a picture where an input looks like one, else numbers, the same each time.

import {arraysOf, count} from './tensors.js';

// The height and width of a tensor that holds a picture, red, green and blue of 8 bits, innermost; null for others.
export function pictureSizes({type, shape}) {
    const [height, width, channels] = shape.slice(-3);
    const single = shape.length >= 3 && count(shape.slice(0, -3)) === 1;
    return type === 'UINT8' && single && channels === 3 && height > 1 && width > 1 ? [height, width] : null;
}

// Pseudo-random numbers from 0 to 1.
function* numbers() {
    for (let state = 1; ;) {
        state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
        yield state / 2 ** 32;
    }
}

export function sample(tensor) {
    const {type, shape, bool} = tensor;
    const picture = pictureSizes(tensor);
    const next = numbers();
    const draw = () => next.next().value;
    const [kind] = arraysOf(type);
    if (picture) return gradient(...picture);
    const made = {
        BigInt64Array: () => BigInt(Math.floor(draw() * 4)), BigUint64Array: () => BigInt(Math.floor(draw() * 4)),
    }[kind.name] ?? (type.startsWith('FLOAT') ? () => draw() * 2 - 1 : () => Math.floor(draw() * (bool ? 2 : 4)));
    const found = new kind(count(shape));
    const bits = type === 'FLOAT16' && kind === Uint16Array;
    for (let at = 0; at < found.length; at++) found[at] = bits ? 0x3800 + Math.floor(draw() * 0x400) : made();
    return found;
}

function gradient(height, width) {
    const found = new Uint8Array(height * width * 3);
    for (let at = 0; at < height * width; at++) {
        const x = (at % width) / width;
        const y = Math.floor(at / width) / height;
        const near = Math.hypot(x - 0.5, y - 0.5) < 0.3;
        found.set([255 * (near ? 1 - y : x), 255 * (near ? 0.8 : y), 255 * (near ? x / 2 : 1 - x)], 3 * at);
    }
    return found;
}
