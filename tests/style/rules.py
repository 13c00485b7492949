# SPDX-License-Identifier: MIT
# tests/style/rules.py - the house rules as pure functions over {path: text}, so that self_test.py can feed them
# projects that break each one. A finding is (path, line, rule, what). docs/architecture.md says why the layers are so.
import posixpath
import re

CPP = (".h", ".cpp", ".cu", ".cuh")
SCRIPTS = (".sh", ".py", ".cmake")
MAX_LINES, MAX_COLUMNS = 400, 120

# Who may include what: a folder, and the prefixes of paths that stand behind its quotes.
LAYERS = {
    "core": ["core/"],
    "kernels": ["kernels/", "core/"],
    "autograd": ["autograd/", "kernels/", "core/"],
    "nn": ["nn/", "autograd/", "kernels/", "core/"],
    "models": ["models/", "nn/", "autograd/", "kernels/", "core/"],
    "data": ["data/", "core/"],
    # Parameters, never modules: nn/module.h is there for NamedParameter.
    # Of kernels beside the ops what knows no tensors: the maths that ranks add up with.
    "dist": ["dist/", "autograd/", "core/", "kernels/ops.h", "kernels/parameters.h", "kernels/functor/combine.h",
             "kernels/cuda/device/device_kernels.h", "nn/optim/", "nn/module.h", "nn/load_tensors.h"],
    "apps": ["apps/", "core/", "kernels/", "autograd/", "nn/", "models/", "data/", "dist/"],
    "tests": [""],
}

# Foreign headers and the only places that may see them.
VENDORS = [
    (r"dnnl|oneapi/", r"kernels/cpu/onednn"),
    (r"mpi\.h", r"dist/mpi/"),
    (r"nccl", r"dist/nccl/|tests/fake_gpu/"),
    (r"cuda", r"kernels/cuda/|dist/nccl/|core/cuda/|tests/"),
    (r"cublas", r"kernels/cuda/cublas_lt\.cpp|tests/fake_gpu/"),
    (r"cudnn", r"kernels/cuda/cudnn_|tests/fake_gpu/"),
    (r"omp\.h", r"core/parallel\.cpp|kernels/cpu/"),
    (r"openssl/", r"core/|tests/"),
    (r"CLI/", r"apps/|tests/"),
    (r"catch2/", r"tests/"),
    # nvcc does not compile these in C++20, so no header that a .cu file could include may have them.
    (r"nlohmann/|fmt/|CLI/", r"(?!(core|kernels)/.*\.h$)"),
    (r"format>", r"$^"),  # <format>: g++ 12 has none.
]

TOP_FOLDERS = {"apps", "autograd", "core", "data", "dist", "docs", "kernels", "models", "nn", "scripts", "tests"}
TOP_FILES = {".clang-format", ".clang-tidy", ".gitignore", "CMakeLists.txt", "CMakePresets.json", "README.md"}
SPEAKS = re.compile(r"std::c(out|err|log)\b|"
                    r"\bf?printf\(|fmt::print\(|std::(puts|exit|abort|quick_exit|_Exit|terminate)\(|"
                    r"(?<![\w:])_exit\(")
GLOBAL = re.compile(r"\s*(file\s*\(\s*GLOB|add_(compile_options|definitions)|include_directories|link_libraries)")
LIBRARY = {"core", "kernels", "autograd", "nn", "models", "data", "dist"}

# Joined here so that this file does not break its own rule.
UNFINISHED = re.compile("|".join([r"\bTO" + r"DO\b", r"\bFIX" + r"ME\b", r"\bX" + r"XX\b", "(?i:place" + "holder)"]))


def is_cpp(path):
    return path.endswith(CPP)


def is_source(path):
    return is_cpp(path) or path.endswith(SCRIPTS) or path.endswith("CMakeLists.txt") or path == ".ci/run"


def without_comments(line):
    """The code of a line; good enough for the patterns below, which never stand in strings."""
    return line.split("//", 1)[0]


def includes(text):
    """(line number, '"' or '<', path) of every include."""
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
        if match:
            yield number, match[1], match[2]


def check_head(path, text):
    lines = text.splitlines()
    mark = "//" if is_cpp(path) else "#"
    if lines and lines[0].startswith("#!"):
        lines = lines[1:]
    if not lines or lines[0] != f"{mark} SPDX-License-Identifier: MIT":
        yield path, 1, "head", f"starts with `{mark} SPDX-License-Identifier: MIT`"
    if path.endswith(("CMakeLists.txt", ".cmake")):
        return
    if len(lines) < 2 or not re.match(rf"{mark} {re.escape(path)}[ ,]", lines[1]):
        yield path, 2, "head", f"then says `{mark} {path} - what it is`"


def check_text(path, text):
    lines = text.split("\n")
    if text and not text.endswith("\n"):
        yield path, len(lines), "text", "ends with a newline"
    for number, line in enumerate(lines, 1):
        if "\t" in line:
            yield path, number, "text", "no tabs"
        if line != line.rstrip():
            yield path, number, "text", "no spaces at the end of a line"
        if len(line) > MAX_COLUMNS:
            yield path, number, "text", f"at most {MAX_COLUMNS} columns; has {len(line)}"
        if UNFINISHED.search(line):
            yield path, number, "unfinished", "finish it, or file an issue"
    if len(lines) - 1 > MAX_LINES and "Long because" not in "\n".join(lines[:10]):
        yield path, 1, "length", f"over {MAX_LINES} lines: the head says `Long because …`; has {len(lines) - 1}"


def check_includes(path, text, files):
    folder = path.split("/")[0]
    for number, kind, target in includes(text):
        own = target.split("/")[0] in LAYERS and "/" in target
        if kind == '"':
            if target not in files:
                yield path, number, "include", f'"{target}" is no file, counted from the root'
            elif folder in LAYERS and not target.startswith(tuple(LAYERS[folder])):
                yield path, number, "layer", f"{folder} may include {', '.join(LAYERS[folder])}; got {target}"
        elif own and target in files:
            yield path, number, "include", f'write "{target}" with quotes'
        for header, place in VENDORS:
            if re.match(header, target + (">" if kind == "<" else "")) and not re.match(place, path):
                yield path, number, "vendor", f"{target} does not belong here (tests/style/rules.py: VENDORS)"


def check_code(path, text):
    folder = path.split("/")[0]
    for number, line in enumerate(text.splitlines(), 1):
        code = without_comments(line)
        if re.match(r"\s*#\s*(if|ifdef|ifndef|elif)\b.*BRIGADE_HAS", code) and not path.endswith("/backends.cpp"):
            yield path, number, "backends", "what was compiled in is asked in a backends.cpp only"
        if folder in LIBRARY and SPEAKS.search(code):
            yield path, number, "silent", "the library neither prints nor exits; throw Error"
        if re.match(r'\s*TEST_CASE\("[^"]*[][;\\]', line):
            yield path, number, "name", "CMake loses test cases whose names have brackets, semicolons or backslashes"
        if folder == "tests" and re.search(r"\bApprox\s*\(", code):
            yield path, number, "approx", "say the tolerance: WithinRel, WithinAbs or differs()"
    if path.endswith((".h", ".cuh")) and "#pragma once" not in text:
        yield path, 1, "head", "a header has #pragma once"


def check_cmake(files):
    """Every compiled file is listed by name in the CMakeLists.txt of its folder or one above; nothing is global."""
    listed = set()
    for path, text in files.items():
        if not path.endswith("CMakeLists.txt"):
            continue
        folder = posixpath.dirname(path)
        for word in re.findall(r"[\w./-]+\.(?:cpp|cu)\b", text):
            listed.add(posixpath.normpath(posixpath.join(folder, word)))
        for number, line in enumerate(text.splitlines(), 1):
            if GLOBAL.match(line):
                yield path, number, "cmake", "no globs and no flags for a whole folder"
    for path in files:
        if path.endswith((".cpp", ".cu")) and path not in listed:
            yield path, 1, "cmake", "no CMakeLists.txt builds it"


def check_top(files):
    for path in files:
        top, _, rest = path.partition("/")
        if rest and top not in TOP_FOLDERS | {".ci"}:
            yield path, 1, "top", f"no folder {top}/ at the root"
        if not rest and top not in TOP_FILES:
            yield path, 1, "top", f"no file {top} at the root"
    for folder in sorted(TOP_FOLDERS - {path.split("/")[0] for path in files}):
        yield folder, 1, "top", "the root has this folder"


def check_project(files):
    """All findings of a project given as {path from the root: text}."""
    for path, text in files.items():
        if not is_source(path):
            continue
        yield from check_head(path, text)
        yield from check_text(path, text)
        if is_cpp(path):
            yield from check_includes(path, text, files)
            yield from check_code(path, text)
    yield from check_cmake(files)
    yield from check_top(files)
