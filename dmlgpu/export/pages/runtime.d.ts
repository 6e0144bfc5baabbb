// Types of runtime.js. Those of WebGPU are TypeScript's own (lib "dom"), or of the package @webgpu/types.

/** The types of elements, as DirectML calls them. */
export type DataType =
    | 'FLOAT64' | 'FLOAT32' | 'FLOAT16'
    | 'INT64' | 'INT32' | 'INT16' | 'INT8' | 'INT4'
    | 'UINT64' | 'UINT32' | 'UINT16' | 'UINT8' | 'UINT4';

/**
 * Elements, row by row. FLOAT16 comes as a Float16Array where the browser has it, else as the bits in a Uint16Array;
 * INT64 and UINT64 as BigInt64Array and BigUint64Array; 4-bit integers one to a byte; truth values as 0 and 1.
 */
export type Elements =
    | Float64Array | Float32Array | Int32Array | Int16Array | Int8Array | Uint32Array | Uint16Array | Uint8Array
    | Uint8ClampedArray | BigInt64Array | BigUint64Array | ArrayBufferView;

/** An input or an output. */
export interface Tensor {
    readonly name: string;
    readonly type: DataType;
    /** Sizes, outermost first; empty for a scalar. */
    readonly shape: readonly number[];
    /** Whether the elements are truth values. */
    readonly bool: boolean;
}

/** What may go wrong: message is a sentence, code its kind. */
export class ModelError extends Error {
    readonly code: 'webgpu' | 'feature' | 'limit' | 'file' | 'input' | 'compile' | 'memory' | 'lost';
}

/** Inputs and outputs for one combination of sizes. */
export interface Shapes {
    readonly inputs: readonly Tensor[];
    readonly outputs: readonly Tensor[];
}

export interface RunOptions {
    /** Shapes by input, of Model.shapes: needed if several have as many elements as the arrays. */
    shapes?: Record<string, readonly number[]>;
}

export interface LoadOptions {
    /** Where adapters come from; navigator.gpu unless given. */
    gpu?: GPU;
    /** A device to use; the model then takes none of its own, and leaves this one open. */
    device?: GPUDevice;
    /** Reads a file of the folder; fetch unless given. */
    read?: (url: URL) => Promise<ArrayBuffer | Uint8Array>;
}

/**
 * Load a model: its program, its weights, a device; pipelines are made at a time, and the initialisation is run.
 * @param url the folder's address, or that of its program.json; relative ones start at the page.
 * @throws ModelError
 */
export function load(url: string | URL, options?: LoadOptions): Promise<Model>;

export class Model {
    readonly name: string;
    /** What the folder was made from, and how. */
    readonly made: Readonly<Record<string, unknown>>;
    /** The combinations of sizes that the model takes. */
    readonly shapes: readonly Shapes[];
    /** Those of the first combination. */
    readonly inputs: readonly Tensor[];
    readonly outputs: readonly Tensor[];
    readonly device: GPUDevice;
    /** Facts about the adapter; null where the device was given. */
    readonly adapter: GPUAdapterInfo | null;
    /** How long load took. */
    readonly loadMilliseconds: number;
    /** Resolves with a sentence when the device is lost. */
    readonly lost: Promise<string>;
    /**
     * Compute the outputs. Runs may overlap; each gets its own results.
     * @param inputs arrays by name, all of them; read before run returns its promise.
     * @param options shapes of the inputs, if their numbers of elements leave a choice.
     * @throws ModelError
     */
    run<Outputs extends Record<string, Elements> = Record<string, Elements>>(
        inputs?: Record<string, Elements>,
        options?: RunOptions,
    ): Promise<Outputs>;
    /** Give the memory back. */
    destroy(): void;
}
