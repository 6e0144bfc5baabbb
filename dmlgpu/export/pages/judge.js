// Judges results as dmlgpu/conformance/running/outcome.py does, by the rules of dmlgpu/export/cases.py.

// Per floating-point type: bits, bits of the mantissa, the exponent's bias.
const FLOATS = {FLOAT16: [16, 10, 15], FLOAT32: [32, 23, 127], FLOAT64: [64, 52, 1023]};
const SMALLEST_NORMAL = {FLOAT32: 2 ** -126, FLOAT64: 2 ** -1022};
const FACTOR_BOUND = 4 * 2 ** -126;

// The arrays in which elements are kept: halves as their bits.
export const KEPT = {
    FLOAT64: Float64Array, FLOAT32: Float32Array, FLOAT16: Uint16Array,
    INT64: BigInt64Array, INT32: Int32Array, INT16: Int16Array, INT8: Int8Array, INT4: Int8Array,
    UINT64: BigUint64Array, UINT32: Uint32Array, UINT16: Uint16Array, UINT8: Uint8Array, UINT4: Uint8Array,
};
const UNSIGNED = {1: Uint8Array, 2: Uint16Array, 4: Uint32Array, 8: BigUint64Array};

export const bitsOf = array => new UNSIGNED[array.BYTES_PER_ELEMENT](array.buffer, array.byteOffset, array.length);

function half(bits) {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 31;
    const mantissa = bits & 1023;
    if (exponent === 31) return mantissa ? NaN : sign * Infinity;
    return sign * (exponent ? (1024 + mantissa) * 2 ** (exponent - 25) : mantissa * 2 ** -24);
}

// Sees an array of elements of a type as numbers, and as bits.
class Elements {
    constructor(type, array) {
        this.type = type;
        this.array = array;
        this.bits = bitsOf(array);
        this.isFloat = type in FLOATS;
    }

    value(at) {
        return this.type === 'FLOAT16' ? half(this.bits[at]) : Number(this.array[at]);
    }

    text(at) {
        if (this.type === 'FLOAT32' || this.type === 'FLOAT16') return shortest(this.value(at), this.type);
        return this.type === 'FLOAT64' ? worded(this.value(at)) : String(this.array[at]);
    }
}

// A number as Python writes it.
function worded(value) {
    if (Number.isNaN(value)) return 'nan';
    if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf';
    if (Object.is(value, -0)) return '-0.0';
    return Number.isInteger(value) && Math.abs(value) < 1e16 ? `${value}.0` : String(value);
}

// The fewest digits that name a number among those of its type.
function shortest(value, type) {
    if (!Number.isFinite(value) || type === 'FLOAT16') return worded(value);
    for (let digits = 1; digits < 9; digits++) {
        const rounded = Number(value.toPrecision(digits));
        if (Math.fround(rounded) === value) return worded(rounded);
    }
    return worded(value);
}

// Numbers of the type between two elements: 0 for equal ones and two NaN, infinite for one NaN.
function distance(expected, got, at) {
    if (!expected.isFloat) {
        const [a, b] = [expected.array[at], got.array[at]];
        return Number(a > b ? a - b : b - a);
    }
    const [a, b] = [expected.value(at), got.value(at)];
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) && Number.isNaN(b) ? 0 : Infinity;
    return steps(expected.bits[at], got.bits[at], FLOATS[expected.type][0]);
}

function steps(a, b, bits) {
    if (bits === 64) {
        const mask = (1n << 63n) - 1n;
        const [x, y] = [a & mask, b & mask];
        return Number((a >> 63n) === (b >> 63n) ? (x > y ? x - y : y - x) : x + y);
    }
    const sign = 2 ** (bits - 1);
    const [x, y] = [a % sign, b % sign];
    return a >= sign === b >= sign ? Math.abs(x - y) : x + y;
}

// The distance between neighboring numbers at an element.
function ulp(elements, at) {
    const [bits, mantissa, bias] = FLOATS[elements.type];
    const word = elements.bits[at];
    const most = 2 ** (bits - 1 - mantissa) - 2;
    const field = bits === 64 ? Number((word >> 52n) & 2047n) : (word >>> mantissa) & (most + 1);
    return 2 ** (Math.min(Math.max(field, 1), most) - bias - mantissa);
}

const isSubnormal = (elements, value) => value !== 0 && Math.abs(value) <= (SMALLEST_NORMAL[elements.type] ?? 0);
const numberAt = (numbers, at) => (typeof numbers === 'number' ? numbers : numbers?.[at] ?? 0);

// Whether an element is right, by a rule and one of the right results.
function accepts(rule, {expected, numbers}, got, at) {
    if (rule.bits && expected.bits[at] === got.bits[at]) return true;
    const [e, g] = [expected.value(at), got.value(at)];
    const bothNaN = Number.isNaN(e) && Number.isNaN(g);
    if (rule.nan && bothNaN) return true;
    if (rule.ulps !== undefined && distance(expected, got, at) <= rule.ulps) return true;
    if (rule.near && Number.isFinite(e) && Number.isFinite(g) && Math.abs(e - g) <= numberAt(numbers, at)) {
        if (!rule.signs || e !== 0 || g !== 0 || Object.is(e, g)) return true;
    }
    if (rule.kind && (bothNaN || (e === g && !Number.isFinite(e)))) return true;
    if (rule.flush && g === 0 && isSubnormal(expected, e)) return true;
    return Boolean(rule.factor) && g === 0 && Math.abs(e) < FACTOR_BOUND;
}

// An element's error in units of what is allowed.
function errorOf(rule, outcome, got, at, isRight) {
    const {expected, numbers} = outcome;
    if (!rule.error || rule.error === 'none') return isRight ? 0 : Infinity;
    const [e, g] = [expected.value(at), got.value(at)];
    if (rule.flush && g === 0 && isSubnormal(expected, e)) return 0;
    const apart = distance(expected, got, at);
    if (rule.error === 'ulps') return rule.capped && isRight ? Math.min(apart / rule.ulps, 1) : apart / rule.ulps;
    if (apart === 0) return 0;
    const difference = Math.abs(e - g);
    const share = difference / numberAt(numbers, at);
    return Number.isFinite(difference) && Number.isFinite(share) ? share : Infinity;
}

function toldBound(rule, {expected, numbers}, at) {
    const ulps = () => rule.ulps * ulp(expected, at);
    const kinds = {
        ulps, number: () => numberAt(numbers, at), either: () => Math.max(ulps(), numberAt(numbers, at)),
    };
    return kinds[rule.bound]?.() ?? 0;
}

// Judges an output. outcomes: right results {expected, numbers}, as arrays of KEPT, the preferred one first; each
// element may come from any of them.
export function judge({type, rule, outcomes}, array) {
    const got = new Elements(type, array);
    const known = outcomes.map(({expected, numbers}) => ({expected: new Elements(type, expected), numbers}));
    const chosen = new Uint8Array(array.length);
    const errors = new Float64Array(array.length);
    const distances = new Float64Array(array.length);
    let wrong = 0;
    const right = new Uint8Array(array.length);
    for (let at = 0; at < array.length; at++) {
        const found = known.findIndex(outcome => accepts(rule, outcome, got, at));
        chosen[at] = Math.max(found, 0);
        right[at] = found >= 0 ? 1 : 0;
        wrong += 1 - right[at];
        const outcome = known[chosen[at]];
        errors[at] = errorOf(rule, outcome, got, at, found >= 0);
        const flushed = rule.flush && got.value(at) === 0 && isSubnormal(outcome.expected, outcome.expected.value(at));
        distances[at] = flushed ? 0 : distance(outcome.expected, got, at);
    }
    const counted = wrong ? 0 : 1;
    let [largest, worst, most, sum, finite, furthest] = [-Infinity, 0, -Infinity, 0, 0, 0];
    for (let at = 0; at < array.length; at++) {
        if (Number.isFinite(distances[at])) {
            sum += distances[at];
            finite += 1;
        }
        if (wrong ? !right[at] : Number.isFinite(distances[at])) furthest = Math.max(furthest, distances[at]);
        if (right[at] !== counted) continue;
        if (errors[at] > largest || (errors[at] === largest && distances[at] > most)) {
            [largest, worst, most] = [errors[at], at, distances[at]];
        }
    }
    const outcome = known[chosen[worst]];
    return {
        ok: wrong === 0, of_bound: errors[worst], max_ulp: furthest, mean_ulp: finite ? sum / finite : 0,
        wrong, elements: array.length, worst, bound: toldBound(rule, outcome, worst),
        expected: outcome.expected.text(worst), got: got.text(worst),
        // How many elements still hold what they held before, of those that should not.
        untouched: before => {
            const bits = bitsOf(before);
            return got.bits.reduce((count, each, at) => (
                count + (each === bits[at] && known[chosen[at]].expected.bits[at] !== bits[at] ? 1 : 0)), 0);
        },
    };
}
export const textAt = (type, array, at) => new Elements(type, array).text(at);
