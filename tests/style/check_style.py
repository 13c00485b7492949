#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# tests/style/check_style.py - prints `file:line: rule: what` for each broken house rule and exits 1 if there is one.
#   check_style.py [ROOT]                  the rules of rules.py, and clang-format where version 14 is installed
#   check_style.py --headers CACHE [ROOT]  every header compiles alone; what passed is remembered in folder CACHE
import concurrent.futures
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

import rules

HERE = pathlib.Path(__file__).resolve()


def read_project(root):
    """{path: text} of what git tracks or would add; without git, of everything outside build and hidden folders."""
    listing = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                             capture_output=True, check=False)
    if listing.returncode == 0:
        paths = [os.fsdecode(p) for p in listing.stdout.split(b"\0") if p]
    else:
        paths = [p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()]
        paths = [p for p in paths if not p.startswith((".git/", "build", "runs/")) and "__pycache__" not in p]
    files = {}
    for path in paths:
        file = root / path
        if not file.is_file():
            continue  # Deleted in the working tree.
        files[path] = file.read_text(encoding="utf-8") if rules.is_source(path) else ""
    return files


def check_format(root, files):
    tool = shutil.which("clang-format-14")
    if not tool:
        print("clang-format-14 is not installed: layout not checked", file=sys.stderr)
        return
    sources = [path for path in files if rules.is_cpp(path)]
    run = subprocess.run([tool, "--dry-run", "--Werror", "--style=file", *sources], cwd=root, capture_output=True,
                         text=True, check=False)
    seen = set()  # The first place of each file is enough: the cure is one command.
    for line in run.stderr.splitlines():
        parts = line.split(":", 3)  # path:line:column: error: …
        if len(parts) == 4 and parts[1].isdigit() and parts[0] not in seen:
            seen.add(parts[0])
            yield parts[0], int(parts[1]), "format", "scripts/format.sh changes this"


def closure(path, files):
    """A header and all headers of ours behind it: what its compilation depends on."""
    seen, stack = {path}, [path]
    while stack:
        for _, kind, target in rules.includes(files[stack.pop()]):
            if kind == '"' and target in files and target not in seen:
                seen.add(target)
                stack.append(target)
    return sorted(seen)


def compile_alone(root, path, files):
    """Empty, or the compiler's first complaint about a file that includes nothing but this header."""
    compiler = "mpicxx" if path.startswith("dist/mpi/") and shutil.which("mpicxx") else os.environ.get("CXX", "g++")
    flags = ["-std=c++20", "-fsyntax-only", "-fopenmp", "-Wall", "-Wextra", "-I", str(root)]
    run = subprocess.run([compiler, *flags, "-x", "c++", "-"], input=f'#include "{path}"\n', capture_output=True,
                         text=True, check=False)
    if run.returncode == 0:
        return ""
    errors = [line for line in run.stderr.splitlines() if "error" in line] or ["does not compile"]
    return errors[0]


def check_headers(root, files, cache):
    cache.mkdir(parents=True, exist_ok=True)

    def check(path):
        digest = hashlib.sha256("\0".join([path] + [files[p] for p in closure(path, files)]).encode()).hexdigest()
        mark = cache / digest
        if mark.exists():
            return ""
        complaint = compile_alone(root, path, files)
        if not complaint:
            mark.touch()
        return complaint

    headers = [path for path in sorted(files) if path.endswith(".h")]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, complaint in zip(headers, pool.map(check, headers)):
            if complaint:
                yield path, 1, "alone", complaint


def main(arguments):
    cache = None
    if arguments[:1] == ["--headers"]:
        cache, arguments = pathlib.Path(arguments[1]), arguments[2:]
    root = pathlib.Path(arguments[0]).resolve() if arguments else HERE.parents[2]
    files = read_project(root)
    if cache:
        findings = list(check_headers(root, files, cache))
    else:
        findings = list(rules.check_project(files)) + list(check_format(root, files))
    for path, line, rule, what in findings:
        print(f"{path}:{line}: {rule}: {what}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
