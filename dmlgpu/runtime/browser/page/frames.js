// Frames as dmlgpu/runtime/browser/frames.py has them: the header's length, the header in JSON, bytes.

const encoder = new TextEncoder();
const decoder = new TextDecoder();

export function encode(header, blobs = []) {
    const text = encoder.encode(JSON.stringify(header));
    const size = blobs.reduce((sum, blob) => sum + blob.byteLength, 4 + text.length);
    const frame = new Uint8Array(size);
    new DataView(frame.buffer).setUint32(0, text.length, true);
    frame.set(text, 4);
    let end = 4 + text.length;
    for (const blob of blobs) {
        frame.set(blob, end);
        end += blob.byteLength;
    }
    return frame;
}

export function decode(buffer) {
    const length = new DataView(buffer).getUint32(0, true);
    const header = JSON.parse(decoder.decode(new Uint8Array(buffer, 4, length)));
    return [header, new Uint8Array(buffer, 4 + length)];
}
