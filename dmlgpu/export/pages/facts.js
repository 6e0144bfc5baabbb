// What this browser and its adapter are, as an AdapterInfo of dmlgpu's: see dmlgpu/runtime/browser/facts.py.

const FEATURES = ['shader-f16', 'timestamp-query'];
const LIMITS = [
    'maxStorageBuffersPerShaderStage', 'maxStorageBufferBindingSize', 'maxBufferSize',
    'minStorageBufferOffsetAlignment', 'maxComputeInvocationsPerWorkgroup', 'maxComputeWorkgroupStorageSize',
    'maxComputeWorkgroupsPerDimension',
];
const INTEGRATED = ['apple', 'arm', 'qualcomm', 'img-tec', 'samsung', 'intel', 'broadcom'];
const SOFTWARE = ['swiftshader', 'llvmpipe', 'basic render'];
const BROWSERS = [
    ['Edge', /Edg[A-Z]*\/(\d+)/], ['Opera', /OPR\/(\d+)/], ['Firefox', /(?:Firefox|FxiOS)\/(\d+)/],
    ['Chrome', /(?:Chrome|CriOS)\/(\d+)/], ['Safari', /Version\/(\d+[.\d]*) .*Safari\//],
];

const plain = text => String(text ?? '').replace(/[^A-Za-z0-9 ._/()+-]+/g, ' ').trim().slice(0, 80);

function browserOf(agent) {
    for (const [name, pattern] of BROWSERS) {
        const found = pattern.exec(agent);
        if (found) return `${name} ${found[1]}`;
    }
    return 'unknown browser';
}

export function adapterFacts({info, features, limits, isFallbackAdapter}) {
    const [vendor, architecture] = [plain(info.vendor), plain(info.architecture)];
    const device = plain(info.description) || plain(info.device);
    const text = `${vendor} ${architecture} ${device}`.toLowerCase();
    const isSoftware = (info.isFallbackAdapter ?? isFallbackAdapter) || SOFTWARE.some(name => text.includes(name));
    const kind = isSoftware ? 'cpu' : INTEGRATED.includes(vendor.toLowerCase()) ? 'integrated' : 'unknown';
    const kebab = name => name.replace(/[A-Z]/g, letter => `-${letter.toLowerCase()}`);
    return {
        name: device || [vendor, architecture].filter(Boolean).join(' ') || 'unknown adapter',
        backend: 'Browser', kind, vendor, driver: browserOf(navigator.userAgent),
        features: FEATURES.filter(name => features.has(name)),
        limits: Object.fromEntries(LIMITS.map(name => [kebab(name), limits[name]])),
    };
}
