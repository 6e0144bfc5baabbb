"""Where Chromium is, and the options with which it has a WebGPU device without a GPU."""

import shutil

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATH = next(filter(None, map(shutil.which, BROWSERS)), None)
"""The browser; None if it is not installed."""

MISSING = f"no browser: none of {', '.join(BROWSERS)}"

IN_CONTAINERS = (
    "--no-sandbox",  # containers offer neither what the sandbox needs nor much shared memory
    "--disable-dev-shm-usage",
)
WEBGPU = (
    *IN_CONTAINERS,
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-unsafe-webgpu",
    "--enable-features=Vulkan,WebGPU",
    "--use-webgpu-adapter=swiftshader",
)
