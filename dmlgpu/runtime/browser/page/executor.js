// What a page does with its GPU: commands of dmlgpu/runtime/browser/backend.py on one WebGPU device.

const MAX_UNIFORMS = 1024;
const MAX_QUESTIONS = 16;
const decoder = new TextDecoder();

// Ask for a device with all that the adapter has of these.
const MATRICES = 'chromium-experimental-subgroup-matrix';
const FEATURES = ['shader-f16', 'timestamp-query', 'subgroups', MATRICES];
const LANGUAGE_FEATURES = ['packed_4x8_integer_dot_product'];
const LIMITS = [
    'maxStorageBuffersPerShaderStage', 'maxStorageBufferBindingSize', 'maxBufferSize',
    'maxComputeInvocationsPerWorkgroup', 'maxComputeWorkgroupStorageSize', 'maxComputeWorkgroupSizeX',
    'maxComputeWorkgroupSizeY', 'maxComputeWorkgroupSizeZ', 'maxComputeWorkgroupsPerDimension',
];
const TOLD = [...LIMITS, 'minStorageBufferOffsetAlignment'];

// What the adapter is; null where the browser offers none.
export async function describe() {
    const adapter = await navigator.gpu?.requestAdapter({powerPreference: 'high-performance'});
    if (!adapter) return null;
    const {vendor, architecture, device, description, isFallbackAdapter} = adapter.info;
    return {
        vendor, architecture, device, description,
        fallback: Boolean(isFallbackAdapter ?? adapter.isFallbackAdapter),
        browser: navigator.userAgent,
        features: [
            ...FEATURES.filter(name => adapter.features.has(name)),
            ...LANGUAGE_FEATURES.filter(name => navigator.gpu.wgslLanguageFeatures?.has(name)),
        ],
        limits: Object.fromEntries(TOLD.map(name => [name, adapter.limits[name]])),
        matrices: adapter.features.has(MATRICES) ? matricesOf(adapter.info) : [],
    };
}

// The matrices that subgroups multiply. Chromium and the draft of the standard differ in one name.
function matricesOf({subgroupMatrixConfigs, subgroupMaxSize}) {
    return Array.from(subgroupMatrixConfigs ?? [], ({componentType, resultComponentType, resultType, M, N, K}) => (
        {componentType, resultComponentType: resultComponentType ?? resultType, M, N, K, lanes: subgroupMaxSize}));
}

export class Executor {
    // lost: called with a reason when the device goes away without having been asked to.
    static async open(lost) {
        const adapter = await navigator.gpu.requestAdapter({powerPreference: 'high-performance'});
        const device = await adapter.requestDevice({
            requiredFeatures: FEATURES.filter(name => adapter.features.has(name)),
            requiredLimits: Object.fromEntries(LIMITS.map(name => [name, adapter.limits[name]])),
        });
        const executor = new Executor(device);
        device.lost.then(({reason, message}) => executor.closed || lost(`${reason}: ${message}`));
        return executor;
    }

    constructor(device) {
        this.device = device;
        this.closed = false;
        this.buffers = new Map();
        this.pipelines = new Map();
        this.layouts = new Map();
        this.groups = new Map();
        this.uniforms = new Map();
    }

    close() {
        this.closed = true;
        this.device.destroy();
    }

    // Do all commands, in order; what takes time goes on while later frames are taken. Return results, bytes and problems.
    async run(commands, bytes) {
        const {device} = this;
        device.pushErrorScope('out-of-memory');
        device.pushErrorScope('validation');
        const pending = [];
        let thrown = '';
        try {
            for (const [name, ...given] of commands) pending.push(this[`do_${name}`](bytes, ...given));
        } catch (error) {
            thrown = String(error);
        }
        const scopes = [device.popErrorScope(), device.popErrorScope()];
        const settled = await Promise.all(pending);
        const [validation, memory] = (await Promise.all(scopes)).map(error => error?.message ?? '');
        const problems = [
            ['memory', memory],
            ['validation', validation],
            ['page', thrown],
        ].filter(([, text]) => text);
        const blobs = settled.filter(each => each instanceof Uint8Array);
        const results = settled.map(each => (each instanceof Uint8Array ? each.byteLength : each ?? null));
        return {results, blobs, problems};
    }

    do_create(_, id, size) {
        const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
        this.buffers.set(id, this.device.createBuffer({size: Math.max(size, 16), usage}));
    }

    do_destroy(_, id) {
        this.buffers.get(id)?.destroy();
        this.buffers.delete(id);
    }

    do_write(bytes, id, offset, start, size) {
        this.device.queue.writeBuffer(this.buffers.get(id), offset, bytes, start, size);
    }

    // '' or [line, message]: what is wrong with the text.
    do_pipeline(bytes, id, start, size, bindings, label) {
        const code = decoder.decode(bytes.subarray(start, start + size));
        return this.compile(id, code, () => this.layout(bindings)[1], label, {entryPoint: 'main'});
    }

    // A shader of the user. kinds: [binding, type of buffer] of each.
    do_shader(bytes, id, start, size, kinds, entryPoint, constants, label) {
        const code = decoder.decode(bytes.subarray(start, start + size));
        const entries = kinds.map(([binding, type]) => ({binding, visibility: GPUShaderStage.COMPUTE, buffer: {type}}));
        return this.compile(id, code, () => {
            const group = this.device.createBindGroupLayout({label, entries});
            this.groups.set(id, group);
            return this.device.createPipelineLayout({label, bindGroupLayouts: [group]});
        }, label, {entryPoint, constants});
    }

    compile(id, code, layoutOf, label, compute) {
        const {device} = this;
        device.pushErrorScope('validation');
        const module = device.createShaderModule({label, code});
        const layout = layoutOf();
        const made = device.createComputePipelineAsync({label, layout, compute: {module, ...compute}});
        const scope = device.popErrorScope();
        return made.then(
            pipeline => { this.pipelines.set(id, pipeline); return ''; },
            async error => {
                await scope;
                const {messages} = await module.getCompilationInfo();
                const first = messages.find(each => each.type === 'error');
                return first ? [first.lineNum, first.message] : [0, error.message];
            },
        );
    }

    do_forget(_, id) {
        this.pipelines.delete(id);
        this.groups.delete(id);
    }

    do_submit(_, work) {
        const {device} = this;
        const encoder = device.createCommandEncoder();
        this.record(encoder, work);
        device.queue.submit([encoder.finish()]);
        return this.soon(device.queue.onSubmittedWorkDone()).then(() => null);
    }

    // The same promise, of something that the device tells when submitted work is done. Browsers look for that when they
    // are given commands, and else every other millisecond: so give them some for a while.
    soon(promise) {
        const {device} = this;
        let waiting = true;
        const stop = () => { waiting = false; };
        promise.then(stop, stop);
        const ask = async () => {
            for (let turn = 0; waiting && turn < MAX_QUESTIONS; turn++) {
                device.queue.submit([]);
                device.pushErrorScope('validation');
                await device.popErrorScope();
            }
        };
        ask().catch(stop); // the device is gone, which is told elsewhere
        return promise;
    }

    // Nanoseconds at the start and the end of each group of work, counted from the first of them.
    async do_time(_, groups) {
        const {device} = this;
        const count = 2 * groups.length, size = 8 * count;
        const querySet = device.createQuerySet({type: 'timestamp', count});
        const resolved = device.createBuffer({size, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC});
        const encoder = device.createCommandEncoder();
        const stamp = index =>
            encoder.beginComputePass({timestampWrites: {querySet, beginningOfPassWriteIndex: index}}).end();
        groups.forEach((work, number) => {
            stamp(2 * number);
            this.record(encoder, work);
            stamp(2 * number + 1);
        });
        encoder.resolveQuerySet(querySet, 0, count, resolved, 0);
        device.queue.submit([encoder.finish()]);
        const stamps = new BigInt64Array((await this.fetch(resolved, 0, size)).buffer);
        for (const made of [querySet, resolved]) made.destroy();
        return Array.from(stamps, each => Number(each - stamps[0]));
    }

    record(encoder, work) {
        let pass = null;
        for (const item of work) {
            if (item[0] === 'copy') {
                pass?.end();
                pass = null;
                const [, source, from, target, to, size] = item;
                encoder.copyBufferToBuffer(this.buffers.get(source), from, this.buffers.get(target), to, size);
            } else {
                pass ??= encoder.beginComputePass();
                if (item[0] === 'shader') this.dispatchShader(pass, item);
                else this.dispatch(pass, item);
            }
        }
        pass?.end();
    }

    dispatch(pass, [pipeline, bound, parameters, grid]) {
        const resources = bound.map(([id, offset, size]) => ({buffer: this.buffers.get(id), offset, size}));
        const entries = [...resources, {buffer: this.uniform(parameters)}]
            .map((resource, binding) => ({binding, resource}));
        pass.setPipeline(this.pipelines.get(pipeline));
        pass.setBindGroup(0, this.device.createBindGroup({layout: this.layout(bound.length)[0], entries}));
        pass.dispatchWorkgroups(...grid);
    }

    dispatchShader(pass, [, pipeline, bound, grid]) {
        const entries = bound.map(([binding, id, offset, size]) => (
            {binding, resource: {buffer: this.buffers.get(id), offset, size}}
        ));
        pass.setPipeline(this.pipelines.get(pipeline));
        pass.setBindGroup(0, this.device.createBindGroup({layout: this.groups.get(pipeline), entries}));
        pass.dispatchWorkgroups(...grid);
    }

    do_read(_, id, offset, size) {
        return this.fetch(this.buffers.get(id), offset, size);
    }

    // The bytes of a buffer, after all submitted work.
    async fetch(buffer, offset, size) {
        const {device} = this;
        const copy = device.createBuffer({size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST});
        const encoder = device.createCommandEncoder();
        encoder.copyBufferToBuffer(buffer, offset, copy, 0, size);
        device.queue.submit([encoder.finish()]);
        await this.soon(copy.mapAsync(GPUMapMode.READ));
        const bytes = new Uint8Array(copy.getMappedRange()).slice();
        copy.destroy();
        return bytes;
    }

    layout(bindings) {
        if (!this.layouts.has(bindings)) {
            const entry = (binding, type) => ({binding, visibility: GPUShaderStage.COMPUTE, buffer: {type}});
            const storage = Array.from({length: bindings}, (_, binding) => entry(binding, 'storage'));
            const group = this.device.createBindGroupLayout({entries: [...storage, entry(bindings, 'uniform')]});
            this.layouts.set(bindings, [group, this.device.createPipelineLayout({bindGroupLayouts: [group]})]);
        }
        return this.layouts.get(bindings);
    }

    // The buffer of a parameter block; equal ones share it.
    uniform(words) {
        const key = words.join();
        let buffer = this.uniforms.get(key);
        if (!buffer) {
            if (this.uniforms.size >= MAX_UNIFORMS) this.uniforms.clear();
            const usage = GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST;
            buffer = this.device.createBuffer({size: 4 * words.length, usage});
            this.device.queue.writeBuffer(buffer, 0, new Uint32Array(words));
            this.uniforms.set(key, buffer);
        }
        return buffer;
    }
}
