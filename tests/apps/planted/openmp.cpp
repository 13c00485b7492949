// SPDX-License-Identifier: MIT
// tests/apps/planted/openmp.cpp - what another OpenMP runtime would look like in a process: a file called libomp.so.5.
extern "C" int brigade_planted_openmp() { return 0; }
