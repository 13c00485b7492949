# SPDX-License-Identifier: MIT
# tests/style/self_test.py - breaks every rule once in a small project and demands that exactly this rule speaks, at
# the right line. A style test that cannot fail would say nothing.
import pathlib
import subprocess
import sys
import tempfile
import unittest

import check_style
import rules

SPDX = "SPDX-License-Identifier: MIT\n"


def source(path, body="", head=None):
    """A well-formed file; `body` starts at line 3."""
    mark = "//" if rules.is_cpp(path) else "#"
    text = head if head is not None else f"{mark} {SPDX}{mark} {path} - what it is.\n"
    return text + ("#pragma once\n" if path.endswith(".h") and head is None and "#pragma" not in body else "") + body


def project(**extra):
    """A project that breaks nothing."""
    files = {f"{folder}/CMakeLists.txt": "# " + SPDX for folder in rules.TOP_FOLDERS}
    files["CMakeLists.txt"] = "# " + SPDX
    files["README.md"] = ""
    for path in ("core/a.h", "kernels/ops.h", "kernels/kernels.h", "autograd/a.h", "nn/module.h", "nn/linear.h",
                 "nn/optim/sgd.h", "models/mlp.h", "data/a.h", "dist/ddp.h", "tests/support/a.h"):
        files[path] = source(path)
    files.update(extra)
    return files


def findings(path, text, listed=True):
    files = project()
    files[path] = text
    if listed and path.endswith((".cpp", ".cu")):
        folder, _, name = path.partition("/")
        files[f"{folder}/CMakeLists.txt"] += f"add_library(x {name})\n"
    return [(p, line, rule) for p, line, rule, _ in rules.check_project(files)]


class Rules(unittest.TestCase):
    def fires(self, rule, path, body, line=3, **options):
        self.assertEqual(findings(path, source(path, body, **options)), [(path, line, rule)])

    def silent(self, path, body):
        self.assertEqual(findings(path, source(path, body)), [])

    def test_a_clean_project_has_no_findings(self):
        self.assertEqual(list(rules.check_project(project())), [])

    def test_layers(self):
        forbidden = {
            "core": ["kernels/ops.h", "data/a.h"],
            "kernels": ["autograd/a.h"],
            "autograd": ["nn/module.h", "dist/ddp.h"],
            "nn": ["dist/ddp.h", "models/mlp.h", "data/a.h"],
            "models": ["dist/ddp.h", "data/a.h"],
            "data": ["kernels/ops.h", "nn/module.h"],
            "dist": ["models/mlp.h", "nn/linear.h", "kernels/kernels.h", "data/a.h"],
            "apps": ["tests/support/a.h"],
        }
        for folder, targets in forbidden.items():
            for target in targets:
                self.fires("layer", f"{folder}/x.cpp", f'#include "{target}"\n')
        allowed = {
            "kernels": ["core/a.h"], "autograd": ["kernels/ops.h"], "nn": ["autograd/a.h"], "models": ["nn/linear.h"],
            "data": ["core/a.h"], "dist": ["nn/optim/sgd.h", "nn/module.h", "kernels/ops.h", "autograd/a.h"],
            "apps": ["dist/ddp.h", "models/mlp.h", "data/a.h"], "tests": ["tests/support/a.h", "kernels/kernels.h"],
        }
        for folder, targets in allowed.items():
            for target in targets:
                self.silent(f"{folder}/x.cpp", f'#include "{target}"\n')

    def test_includes_count_from_the_root_and_exist(self):
        self.fires("include", "core/x.cpp", '#include "a.h"\n')
        self.fires("include", "core/x.cpp", '#include "../core/a.h"\n')
        self.fires("include", "core/x.cpp", "#include <core/a.h>\n")

    def test_vendors_stay_in_their_rooms(self):
        self.fires("vendor", "kernels/ops.cpp", "#include <dnnl.hpp>\n")
        self.silent("kernels/cpu/onednn.cpp", "#include <dnnl.hpp>\n")
        self.fires("vendor", "dist/ddp.cpp", "#include <mpi.h>\n")
        self.silent("dist/mpi/group.cpp", "#include <mpi.h>\n")
        self.fires("vendor", "nn/x.cpp", "#include <omp.h>\n")
        self.fires("vendor", "core/x.cpp", "#include <cuda_runtime.h>\n")
        self.fires("vendor", "dist/x.cpp", "#include <CLI/CLI.hpp>\n")
        self.fires("vendor", "nn/x.cpp", "#include <catch2/catch.hpp>\n")
        self.fires("vendor", "core/x.cpp", "#include <format>\n")
        for library in ("nlohmann/json.hpp", "fmt/format.h"):
            self.fires("vendor", "core/x.h", f"#include <{library}>\n", line=4)
            self.fires("vendor", "kernels/cpu/x.h", f"#include <{library}>\n", line=4)
            self.silent("core/x.cpp", f"#include <{library}>\n")

    def test_heads(self):
        self.fires("head", "core/x.cpp", "", line=1, head="// no licence\n// core/x.cpp - what it is.\n")
        self.fires("head", "core/x.cpp", "", line=2, head="// " + SPDX + "// core/y.cpp - another file.\n")
        self.fires("head", "core/x.h", "", line=1, head="// " + SPDX + "// core/x.h - no pragma.\n")
        self.fires("head", "scripts/x.sh", "", line=2, head="#!/bin/sh\n# " + SPDX + "# says nothing.\n")
        self.assertEqual(findings("core/CMakeLists.txt", "add_library(x)\n"), [("core/CMakeLists.txt", 1, "head")])

    def test_text(self):
        self.fires("text", "core/x.cpp", "\tint a;\n")
        self.fires("text", "core/x.cpp", "int a; \n")
        self.fires("text", "core/x.cpp", "int a;\r\n")
        self.fires("text", "core/x.cpp", "//" + "x" * 119 + "\n")
        self.silent("core/x.cpp", "//" + "…" * 118 + "\n")
        self.fires("text", "core/x.cpp", "int a;")

    def test_length(self):
        self.fires("length", "core/x.cpp", "\n" * 399, line=1)
        self.silent("core/x.cpp", "\n" * 398)
        self.silent("core/x.cpp", "// Long because it is a table.\n" + "\n" * 500)

    def test_unfinished_work(self):
        for word in ("TO" + "DO", "FIX" + "ME", "X" + "XX", "a place" + "holder"):
            self.fires("unfinished", "core/x.cpp", f"// {word}: later\n")
            self.fires("unfinished", "scripts/x.sh", f"# {word}\n")

    def test_backends(self):
        for directive in ("#if BRIGADE_HAS_MPI", "#ifdef BRIGADE_HAS_CUDA", "# if defined(BRIGADE_HAS_CUDA)"):
            self.fires("backends", "dist/x.cpp", directive + "\n#endif\n")
            self.silent("dist/backends.cpp", directive + "\n#endif\n")

    def test_the_library_is_silent(self):
        for call in ('std::cout << "x";', 'std::printf("x");', 'fprintf(stderr, "x");', "std::exit(1);"):
            self.fires("silent", "nn/x.cpp", call + "\n")
            self.silent("apps/x.cpp", call + "\n")
        self.silent("nn/x.cpp", "// std::cout is not used here\n")

    def test_tolerances_are_named(self):
        self.fires("approx", "tests/core/x.cpp", "REQUIRE(a == Approx(1));\n")

    def test_names_of_cases_survive_cmake(self):
        for name in ("covers [0, 1)", "this; that", "a \\\" b"):
            self.fires("name", "tests/core/x.cpp", f'TEST_CASE("{name}", "[core][tag]") {{}}\n')
        self.silent("tests/core/x.cpp", 'TEST_CASE("plain, (1)", "[core][tag]") {}\n')

    def test_cmake(self):
        unlisted = findings("core/x.cpp", source("core/x.cpp"), listed=False)
        self.assertEqual(unlisted, [("core/x.cpp", 1, "cmake")])
        for line in ("file(GLOB x *.cpp)", "add_compile_options(-O3)", "include_directories(.)"):
            text = "# " + SPDX + line + "\n"
            self.assertEqual(findings("core/CMakeLists.txt", text), [("core/CMakeLists.txt", 2, "cmake")])
        self.assertEqual(findings("core/CMakeLists.txt", "# " + SPDX + "target_include_directories(x)\n"), [])

    def test_top(self):
        self.assertEqual(findings("extra/x.txt", ""), [("extra/x.txt", 1, "top")])
        self.assertEqual(findings("NOTES", ""), [("NOTES", 1, "top")])
        files = {path: text for path, text in project().items() if not path.startswith("data/")}
        self.assertEqual([(f[0], f[2]) for f in rules.check_project(files)], [("data", "top")])


class Programs(unittest.TestCase):
    def test_a_header_that_needs_another_before_it_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            files = {"good.h": "#include <vector>\nstd::vector<int> f();\n", "bad.h": "std::vector<int> f();\n"}
            for path, text in files.items():
                (root / path).write_text(text)
            for _ in range(2):  # The second time good.h comes from the cache; bad.h must fail again.
                found = list(check_style.check_headers(root, files, root / "cache"))
                self.assertEqual([(f[0], f[2]) for f in found], [("bad.h", "alone")])

    def test_findings_are_printed_and_end_with_1(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "core").mkdir()
            (root / "core/x.cpp").write_text("int a;\n")
            run = subprocess.run([sys.executable, check_style.__file__, folder], capture_output=True, text=True)
            self.assertEqual(run.returncode, 1)
            self.assertIn("core/x.cpp:1: head: ", run.stdout)


if __name__ == "__main__":
    unittest.main()
