// Runs one case: its programs on the device, between sentinels where it asks for that, and what is to be said of them.

import {Program} from './device.js';
import {KEPT, bitsOf, judge, textAt} from './judge.js';
import {decode} from './tensors.js';

const SENTINEL = 0xA7;
const POISON = 0xCB;

const read = (bytes, [start, size]) => bytes.subarray(start, start + size);
const elements = (kind, raw) => new kind(raw.slice().buffer);

// What buffers hold before: sentinels around tensors, their data, poison where there are none.
function contents(run, bytes) {
    const found = new Map();
    for (const {buffer, offset, bytes: size, data} of run.tensors) {
        const content = new Uint8Array(run.buffers[buffer].bytes).fill(run.guarded ? SENTINEL : POISON);
        content.fill(POISON, offset, offset + size);
        if (data) content.set(read(bytes, data), offset);
        found.set(buffer, content);
    }
    for (const buffer of run.poisoned) {
        if (!run.guarded) found.set(buffer, new Uint8Array(run.buffers[buffer].bytes).fill(POISON));
    }
    return found;
}

// Executes a run; returns what its tensors' buffers hold, by number, before and after.
async function execute(device, run, bytes) {
    const program = await Program.create(device, run);
    const before = contents(run, bytes);
    program.upload((start, size) => bytes.subarray(start, start + size));
    for (const [buffer, content] of before) device.queue.writeBuffer(program.buffers[buffer], 0, content);
    const encoder = device.createCommandEncoder();
    program.record(encoder, program.initialization);
    program.record(encoder, program.runs[0].bound);
    const buffers = [...new Set(run.tensors.map(({buffer}) => buffer))];
    const places = new Map();
    let end = 0;
    for (const buffer of buffers) {
        places.set(buffer, end);
        end += run.buffers[buffer].bytes;
    }
    const reading = device.createBuffer({size: end, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST});
    for (const buffer of buffers) {
        encoder.copyBufferToBuffer(program.buffers[buffer], 0, reading, places.get(buffer), run.buffers[buffer].bytes);
    }
    device.queue.submit([encoder.finish()]);
    await reading.mapAsync(GPUMapMode.READ);
    const whole = new Uint8Array(reading.getMappedRange()).slice();
    reading.destroy();
    program.destroy();
    const after = new Map(buffers.map(buffer => {
        const start = places.get(buffer);
        return [buffer, whole.subarray(start, start + run.buffers[buffer].bytes)];
    }));
    return {before, after};
}

// Bytes that changed although they must not, a sentence each.
function problemsOf(run, {before, after}) {
    if (!run.guarded) return [];
    const written = new Set(run.outputs.map(({tensor}) => run.tensors[tensor].buffer));
    const found = run.outputs.map(({tensor, label}) => outOfBounds(run.tensors[tensor], label, before, after));
    for (const {buffer, label} of run.tensors) {
        if (written.has(buffer)) continue;
        const changed = after.get(buffer).reduce((sum, each, at) => sum + (each !== before.get(buffer)[at] ? 1 : 0), 0);
        if (changed) found.push(`${label}: ${changed} bytes of the input were changed`);
    }
    return found.filter(Boolean);
}

function outOfBounds({buffer, offset, bytes}, label, before, after) {
    let [changed, first] = [0, 0];
    after.get(buffer).forEach((each, at) => {
        if ((at < offset || at >= offset + bytes) && each !== before.get(buffer)[at] && !changed++) first = at - offset;
    });
    return changed ? `${label}: ${changed} bytes were written out of bounds, the first at byte ${first}` : '';
}

// The verdict on an output, which must hold poison nowhere.
function verdictOn(output, run, bytes, array) {
    const kind = KEPT[output.type];
    const outcomes = output.outcomes.map(({expected, numbers}) => ({
        expected: elements(kind, read(bytes, expected)),
        numbers: Array.isArray(numbers) ? elements(Float64Array, read(bytes, numbers)) : numbers,
    }));
    const verdict = judge({...output, outcomes}, array);
    let problem = '';
    if (!verdict.ok && run.guarded) {
        const poison = decode(output, new Uint8Array(output.bytes).fill(POISON), kind);
        const untouched = verdict.untouched(poison);
        if (untouched) problem = `${output.label}: ${untouched} elements were never written`;
    } else if (!verdict.ok) {
        problem = output.label;
    }
    return {...verdict, problem, sizes: output.sizes};
}

// The coordinates of an element.
export function coordinates(sizes, at) {
    const found = [];
    let rest = at;
    for (const size of [...sizes].reverse()) {
        found.unshift(rest % size);
        rest = Math.floor(rest / size);
    }
    return found;
}

// What lies at an element in the inputs of the output's sizes.
function inputsAt(run, after, sizes, at) {
    return (run.inputs ?? []).filter(input => input.sizes.join() === sizes.join()).map(input => {
        const {buffer, offset, bytes} = run.tensors[input.tensor];
        const array = decode(input, after.get(buffer).subarray(offset, offset + bytes), KEPT[input.type]);
        return textAt(input.type, array, at);
    });
}

async function digestOf(arrays) {
    const bits = arrays.map(array => bitsOf(array));
    const whole = new Uint8Array(bits.reduce((sum, each) => sum + each.byteLength, 0));
    let end = 0;
    for (const each of bits) {
        whole.set(new Uint8Array(each.buffer, each.byteOffset, each.byteLength), end);
        end += each.byteLength;
    }
    const found = await crypto.subtle.digest('SHA-256', whole);
    return Array.from(new Uint8Array(found).subarray(0, 8), each => each.toString(16).padStart(2, '0')).join('');
}

const isWorse = (a, b) => {
    const keys = verdict => [verdict.ok ? 0 : 1, verdict.of_bound, verdict.max_ulp];
    const [x, y] = [keys(a), keys(b)];
    const first = x.findIndex((each, at) => each !== y[at]);
    return first >= 0 && x[first] > y[first];
};

// JSON has no infinities, and records leave out what is empty.
function asRecord(fields) {
    const plain = value => (typeof value === 'number' && !Number.isFinite(value) ? (value > 0 ? 'inf' : 'nan') : value);
    const kept = Object.entries(fields).filter(([, value]) => value !== '' && !(Array.isArray(value) && !value.length));
    return Object.fromEntries(kept.map(([name, value]) => [name, plain(value)]));
}

// Judge what runs came to: the record of the case. ran: per run what execute returned.
export async function recordOf(entry, bytes, ran, seconds) {
    const problems = [];
    const arrays = [];
    let worst = null;
    entry.runs.forEach((run, at) => {
        problems.push(...problemsOf(run, ran[at]));
        for (const output of run.outputs) {
            const {buffer, offset, bytes: size} = run.tensors[output.tensor];
            const raw = ran[at].after.get(buffer).subarray(offset, offset + size);
            const array = decode(output, raw, KEPT[output.type]);
            arrays.push(array);
            const verdict = verdictOn(output, run, bytes, array);
            if (!worst || isWorse(verdict, worst)) {
                worst = {...verdict, inputs: () => inputsAt(run, ran[at].after, output.sizes, verdict.worst)};
            }
        }
    });
    const message = [...problems, worst.problem].filter(Boolean).join('; ');
    const isRight = worst.ok && !message;
    const {of_bound, max_ulp, mean_ulp, wrong, elements: counted, bound, expected, got} = worst;
    return asRecord({
        case: entry.name, status: isRight ? 'pass' : 'fail', tolerance: entry.tolerance, of_bound, max_ulp, mean_ulp,
        wrong, elements: counted, worst: coordinates(worst.sizes, worst.worst), inputs: worst.inputs(), expected, got,
        bound, message, digest: entry.digest ?? await digestOf(arrays), seconds,
        kernels: [...new Set(entry.runs.flatMap(run => run.kernels))],
    });
}

// Run a case; the record of what came of it. Throws ModelError for what does not compile, and where the device is lost.
export async function runCase(device, entry, bytes) {
    if (entry.outcome) return entry.outcome;
    const start = performance.now();
    const ran = [];
    for (const run of entry.runs) ran.push(await execute(device, run, bytes));
    return recordOf(entry, bytes, ran, (performance.now() - start) / 1e3);
}
