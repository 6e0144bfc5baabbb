// Models exported by dmlgpu, in a page or under Node: see runtime.d.ts for what is public.

import {ModelError, Program, checkNeeds, openDevice, runsOf} from './device.js';
import {arraysOf, count, decode, encode, isKnown} from './tensors.js';

export {ModelError};

const FORMAT = 1;
const LISTS = [
    'inputs', 'outputs', 'weights', 'buffers', 'clears', 'uploads', 'parameters', 'shaders', 'initialization',
    'dispatches',
];

async function fetched(url) {
    let response;
    try {
        response = await fetch(url);
    } catch (error) {
        throw new ModelError('file', `${nameOf(url)} cannot be loaded: ${error.message}`);
    }
    if (!response.ok) throw new ModelError('file', `${nameOf(url)} cannot be loaded: ${response.status}`);
    return new Uint8Array(await response.arrayBuffer());
}

const nameOf = url => url.pathname.split('/').pop();

// The folder of a URL, which may name the folder, with or without a slash at the end, or its program.json.
function folderOf(url) {
    const found = new URL(url, globalThis.document?.baseURI ?? import.meta.url);
    if (!found.pathname.endsWith('/') && !found.pathname.endsWith('.json')) found.pathname += '/';
    return new URL('.', found);
}

function parsed(bytes) {
    let found;
    try {
        found = JSON.parse(new TextDecoder('utf-8', {fatal: true}).decode(bytes));
    } catch (error) {
        throw new ModelError('file', `program.json is not JSON: ${error.message}`);
    }
    if (found?.format !== FORMAT) {
        const got = JSON.stringify(found?.format) ?? 'none';
        throw new ModelError('file', `program.json has format ${got}; this runtime needs ${FORMAT}.`);
    }
    for (const name of LISTS) {
        if (!Array.isArray(found[name])) throw new ModelError('file', `program.json has no list '${name}'.`);
    }
    for (const {inputs, outputs} of runsOf(found)) {
        for (const {name, type} of [...inputs, ...outputs]) {
            if (!isKnown(type)) throw new ModelError('file', `program.json: '${name}' has an unknown type '${type}'.`);
        }
    }
    return found;
}

// The bytes of all files of weights, one behind the other.
async function weightsOf(document, folder, read) {
    const parts = await Promise.all(document.weights.map(async ({file, bytes, sha256}) => {
        const part = new Uint8Array(await read(new URL(file, folder)));
        if (part.length !== bytes) {
            throw new ModelError('file', `${file} has ${part.length} bytes; program.json says ${bytes}.`);
        }
        const digest = await globalThis.crypto?.subtle?.digest('SHA-256', part);
        if (digest && hexadecimal(digest) !== sha256) {
            const why = 'its SHA-256 differs from program.json';
            throw new ModelError('file', `${file} is damaged or belongs to another export: ${why}.`);
        }
        return part;
    }));
    if (parts.length === 1) return parts[0];
    const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    let end = 0;
    for (const part of parts) {
        whole.set(part, end);
        end += part.length;
    }
    return whole;
}

const hexadecimal = buffer => Array.from(new Uint8Array(buffer), each => each.toString(16).padStart(2, '0')).join('');

export async function load(url, {gpu, device, read = fetched} = {}) {
    const start = performance.now();
    const folder = folderOf(url);
    const document = parsed(new Uint8Array(await read(new URL('program.json', folder))));
    // Files come in while the device is opened and pipelines are made.
    const weights = weightsOf(document, folder, read);
    weights.catch(() => {}); // whoever awaits it below hears of it
    if (device) checkNeeds(document.needs, device, 'device');
    const own = device ? null : await openDevice(document.needs, gpu);
    try {
        const program = await Program.create(device ?? own.device, document);
        const bytes = await weights;
        program.upload((from, size) => bytes.subarray(from, from + size));
        program.initialize();
        const model = new Model(program, own?.adapter ?? null);
        await model.device.queue.onSubmittedWorkDone();
        model.loadMilliseconds = performance.now() - start;
        return model;
    } catch (error) {
        own?.device.destroy();
        throw error;
    }
}

const same = (shape, other) => shape.length === other.length && shape.every((size, at) => size === other[at]);
const shown = shape => `[${shape.join(', ')}]`;

const described = ({name, type, shape, bool = false}) => Object.freeze({name, type, shape: Object.freeze(shape), bool});

export class Model {
    #program;
    #ownsDevice;
    #reading = []; // buffers for results that nobody uses at the moment
    #places; // per run its outputs' first bytes in them
    #gone = '';

    constructor(program, adapter) {
        this.#program = program;
        this.#ownsDevice = adapter !== null;
        this.adapter = adapter?.info ?? null;
        this.device = program.device;
        const {name, made} = program.document;
        this.shapes = Object.freeze(program.runs.map(({inputs, outputs}) => Object.freeze({
            inputs: inputs.map(described), outputs: outputs.map(described),
        })));
        const [{inputs, outputs}] = this.shapes;
        Object.assign(this, {name, made, inputs, outputs});
        this.#places = program.runs.map(run => {
            let end = 0;
            const starts = run.outputs.map(({bytes}) => (end += Math.max(bytes, 4)) - Math.max(bytes, 4));
            return [...starts, end];
        });
        this.lost = this.device.lost.then(({reason, message}) => {
            this.#gone ||= `The device is lost (${reason}): ${message} Load the model again.`;
            return this.#gone;
        });
    }

    async run(inputs = {}, {shapes = {}} = {}) {
        this.#check();
        const {runs, buffers} = this.#program;
        const {queue} = this.device;
        const number = this.#chosen(inputs, shapes);
        const run = runs[number];
        const places = this.#places[number];
        const given = run.inputs.map(tensor => this.#bytes(tensor, inputs[tensor.name]));
        given.forEach((bytes, at) => bytes.length && queue.writeBuffer(buffers[run.inputs[at].buffer], 0, bytes));
        const encoder = this.device.createCommandEncoder();
        for (const buffer of run.clears) encoder.clearBuffer(buffers[buffer]);
        this.#program.record(encoder, run.bound);
        const reading = this.#reading.pop() ?? this.#newReading();
        run.outputs.forEach(({buffer, bytes}, at) => {
            if (bytes) encoder.copyBufferToBuffer(buffers[buffer], 0, reading, places[at], bytes);
        });
        queue.submit([encoder.finish()]);
        try {
            await reading.mapAsync(GPUMapMode.READ);
        } catch (error) {
            const reason = await Promise.race([this.lost, new Promise(done => { setTimeout(done, 1000, ''); })]);
            throw new ModelError('lost', reason || `The results cannot be read: ${error.message}`);
        }
        const raw = new Uint8Array(reading.getMappedRange());
        const found = Object.fromEntries(run.outputs.map((output, at) => {
            const start = places[at];
            return [output.name, decode(output, raw.subarray(start, start + output.bytes))];
        }));
        reading.unmap();
        this.#reading.push(reading);
        return found;
    }

    // Give memory back; the device, too, unless it was given.
    destroy() {
        this.#gone ||= 'The model was destroyed.';
        this.#program.destroy();
        for (const reading of this.#reading) reading.destroy();
        if (this.#ownsDevice) this.device.destroy();
    }

    #newReading() {
        const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
        const size = Math.max(...this.#places.map(places => places.at(-1)), 4);
        return this.device.createBuffer({label: 'results', size, usage});
    }

    #check() {
        if (this.#gone) throw new ModelError('lost', this.#gone);
    }

    // The number of the run whose shapes are those given, or whose numbers of elements are those of the arrays.
    #chosen(inputs, shapes) {
        const {runs} = this.#program;
        const declared = runs[0].inputs;
        const names = declared.map(({name}) => `'${name}'`).join(', ') || 'none';
        if (inputs === null || typeof inputs !== 'object') {
            throw new ModelError('input', `Inputs must be an object with arrays by name; the names are ${names}.`);
        }
        for (const name of Object.keys(inputs)) {
            if (!declared.some(each => each.name === name)) {
                throw new ModelError('input', `There is no input '${name}'; the names are ${names}.`);
            }
        }
        for (const name of Object.keys(shapes ?? {})) {
            if (!declared.some(each => each.name === name)) {
                throw new ModelError('input', `shapes: there is no input '${name}'; the names are ${names}.`);
            }
            const kinds = runs.map(run => run.inputs.find(each => each.name === name).shape);
            if (!Array.isArray(shapes[name]) || !kinds.some(shape => same(shape, shapes[name]))) {
                const due = [...new Set(kinds.map(shown))].join(', ');
                throw new ModelError('input', `shapes: '${name}' must be one of ${due}, got ${JSON.stringify(shapes[name])}.`);
            }
        }
        if (runs.length === 1) return 0;
        const fitting = [...runs.keys()].filter(at => runs[at].inputs.every(({name, shape}) => (
            name in (shapes ?? {}) ? same(shape, shapes[name]) : inputs[name]?.length === count(shape))));
        if (fitting.length === 1) return fitting[0];
        const lengths = declared.map(({name}) => `'${name}': ${inputs[name]?.length ?? 'nothing'}`).join(', ');
        const why = fitting.length ? 'Several of the shapes fit these numbers of elements' : 'No shapes fit these numbers of elements';
        throw new ModelError('input', `${why} (${lengths}): pass {shapes: {name: sizes}}, of model.shapes.`);
    }

    #bytes(tensor, array) {
        const {name, type, shape} = tensor;
        const kinds = arraysOf(type);
        const wanted = kinds.map(kind => kind.name).join(' or ');
        if (!kinds.some(kind => array instanceof kind)) {
            const got = array === undefined ? 'nothing' : array?.constructor?.name ?? String(array);
            throw new ModelError('input', `Input '${name}' (${type}) must be a ${wanted}, got ${got}.`);
        }
        const elements = count(shape);
        if (array.length !== elements) {
            const sizes = `[${shape.join(', ')}]`;
            const due = `sizes ${sizes}: ${elements} elements`;
            throw new ModelError('input', `Input '${name}' has ${due}, got ${array.length}.`);
        }
        return encode(tensor, array);
    }
}
