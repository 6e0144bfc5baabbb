// WebGPU devices, checked for what programs need, and programs made ready to run on them.

// What goes wrong, in a sentence. code: 'webgpu', 'feature', 'limit', 'file', 'input', 'compile', 'memory', 'lost'.
export class ModelError extends Error {
    constructor(code, message) {
        super(message);
        this.name = 'ModelError';
        this.code = code;
    }
}

const PARAMETER_ALIGNMENT = 256; // the largest that WebGPU lets an adapter ask for

const number = value => value.toLocaleString('en');

// A device with all that programs need: {features: [names], limits: {name: least}}.
export async function openDevice(needs, gpu = globalThis.navigator?.gpu) {
    if (!gpu) {
        const secure = globalThis.isSecureContext === false
            ? 'browsers enable it only for secure addresses: https, or localhost.'
            : 'this browser does not support it.';
        throw new ModelError('webgpu', `WebGPU is missing: ${secure}`);
    }
    const adapter = await gpu.requestAdapter({powerPreference: 'high-performance'});
    if (!adapter) throw new ModelError('webgpu', 'WebGPU is supported, but has no adapter on this computer.');
    checkNeeds(needs, adapter, 'adapter');
    try {
        const device = await adapter.requestDevice({requiredFeatures: needs.features, requiredLimits: needs.limits});
        return {adapter, device};
    } catch (error) {
        throw new ModelError('webgpu', `WebGPU cannot create a device: ${error.message}`);
    }
}

// Refuse an adapter or a device that lacks a feature, or has too low a limit.
export function checkNeeds({features, limits}, has, what) {
    for (const name of features) {
        if (!has.features.has(name)) {
            throw new ModelError('feature', `The ${what} lacks the feature ${name}, which this program needs.`);
        }
    }
    for (const [name, least] of Object.entries(limits)) {
        if (has.limits[name] < least) {
            const got = number(has.limits[name]);
            throw new ModelError('limit', `The ${what} has ${name} ${got}; this program needs ${number(least)}.`);
        }
    }
}

// The runs of a program, one for each combination of sizes: inputs, outputs, buffers to clear, dispatches.
export const runsOf = document => [document, ...document.others ?? []];

// A program's shaders, buffers and dispatches on a device.
export class Program {
    // Make all pipelines at a time, without stopping the page.
    static async create(device, document) {
        const program = new Program(device, document);
        device.pushErrorScope('out-of-memory');
        device.pushErrorScope('validation');
        program.#createBuffers();
        const scopes = [device.popErrorScope(), device.popErrorScope()];
        program.pipelines = await Promise.all(document.shaders.map(shader => program.#pipeline(shader)));
        const [invalid, memory] = (await Promise.all(scopes)).map(error => error?.message);
        if (memory) throw new ModelError('memory', `The device has no memory for the buffers: ${memory}`);
        if (invalid) throw new ModelError('memory', `The device rejects the buffers: ${invalid}`);
        program.initialization = program.#bound(document.initialization);
        program.runs = runsOf(document).map(run => ({...run, bound: program.#bound(run.dispatches)}));
        return program;
    }

    constructor(device, document) {
        this.device = device;
        this.document = document;
        this.layouts = new Map();
    }

    #createBuffers() {
        const {device, document} = this;
        const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
        this.buffers = document.buffers.map(({name, bytes}) => device.createBuffer({label: name, size: bytes, usage}));
        const longest = 4 * document.parameters.reduce((most, words) => Math.max(most, words.length), 1);
        this.stride = Math.ceil(longest / PARAMETER_ALIGNMENT) * PARAMETER_ALIGNMENT;
        const size = Math.max(document.parameters.length, 1) * this.stride;
        const blocks = new Uint32Array(size / 4);
        document.parameters.forEach((words, at) => blocks.set(words, at * this.stride / 4));
        this.parameters = device.createBuffer({size, usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST});
        device.queue.writeBuffer(this.parameters, 0, blocks);
    }

    async #pipeline({label, code, bindings}) {
        const {device} = this;
        device.pushErrorScope('validation');
        const module = device.createShaderModule({label, code});
        const {pipeline: layout} = this.#layout(bindings);
        const made = device.createComputePipelineAsync({label, layout, compute: {module, entryPoint: 'main'}});
        const scope = device.popErrorScope();
        try {
            return await made;
        } catch (error) {
            await scope;
            const {messages} = await module.getCompilationInfo();
            const first = messages.find(each => each.type === 'error');
            const why = first ? `line ${first.lineNum}: ${first.message}` : error.message;
            throw new ModelError('compile', `The kernel '${label}' does not compile here: ${why}`);
        }
    }

    #layout(bindings) {
        if (!this.layouts.has(bindings)) {
            const entry = (binding, type) => ({binding, visibility: GPUShaderStage.COMPUTE, buffer: {type}});
            const storage = Array.from({length: bindings}, (_, binding) => entry(binding, 'storage'));
            const group = this.device.createBindGroupLayout({entries: [...storage, entry(bindings, 'uniform')]});
            const pipeline = this.device.createPipelineLayout({bindGroupLayouts: [group]});
            this.layouts.set(bindings, {group, pipeline});
        }
        return this.layouts.get(bindings);
    }

    #bound(dispatches) {
        return dispatches.map(({shader, bind, parameters, grid}) => {
            const resources = bind.map(([at, offset, size]) => ({buffer: this.buffers[at], offset, size}));
            const size = 4 * this.document.parameters[parameters].length;
            resources.push({buffer: this.parameters, offset: parameters * this.stride, size});
            const entries = resources.map((resource, binding) => ({binding, resource}));
            const {group: layout} = this.#layout(bind.length);
            return {
                pipeline: this.pipelines[shader],
                group: this.device.createBindGroup({layout, entries}),
                grid,
            };
        });
    }

    // Write what buffers hold before anything runs; bytes(start, size) gives it.
    upload(bytes) {
        for (const [buffer, offset, start, size] of this.document.uploads) {
            this.device.queue.writeBuffer(this.buffers[buffer], offset, bytes(start, size));
        }
    }

    // Record dispatches in one pass.
    record(encoder, dispatches) {
        const pass = encoder.beginComputePass();
        let last = null;
        for (const {pipeline, group, grid} of dispatches) {
            if (pipeline !== last) pass.setPipeline(pipeline);
            last = pipeline;
            pass.setBindGroup(0, group);
            pass.dispatchWorkgroups(...grid);
        }
        pass.end();
    }

    // Do once what fills the persistent resource; the buffers that only this reads go.
    initialize() {
        const encoder = this.device.createCommandEncoder();
        this.record(encoder, this.initialization);
        this.device.queue.submit([encoder.finish()]);
        this.document.buffers.forEach(({initial}, at) => initial && this.buffers[at].destroy());
        this.initialization = [];
    }

    destroy() {
        for (const buffer of [...this.buffers, this.parameters]) buffer.destroy();
    }
}
