// SPDX-License-Identifier: MIT
// tests/dist/mpi_test.cpp - what only the MPI backend has: messages in pieces, and what happens to a job whose rank
// fails. Compiled only with MPI; run by mpiexec. The hidden cases end their job, each is a CTest entry of its own.
#include <cstring>
#include <thread>

#include "dist/mpi/mpi_job.h"
#include "tests/dist/patterns.h"
#include "tests/support/ranks.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using namespace brigade::test;

TEST_CASE("collectives in pieces of a few elements give the same results", "[dist][mpi][ranks]") {
  if (!under_mpi()) return;
  const auto job = std::dynamic_pointer_cast<MpiJob>(mpi_job());
  REQUIRE(job);
  std::string error;
  try {
    for (const std::int64_t max_chunk_bytes : {1, 40, 1000}) {
      ProcessGroup group([&] { return job->connect(max_chunk_bytes); }, {}, job->stream());
      const int rank = group.rank(), size = group.size();
      for (const DType dtype : {DType::f32, DType::bf16, DType::u8}) {
        for (const std::int64_t n : {0, 1, 7, 103}) {
          const std::string what = str(dtype, " x ", n, " in pieces of ", max_chunk_bytes, " bytes");
          Tensor t = pattern(rank, n, dtype);
          group.all_reduce(t, Reduce::sum).wait();
          require_same(t, reduced(size, n, dtype, Reduce::sum), "all_reduce " + what);
          t = pattern(rank, n, dtype);
          group.broadcast(t, size - 1).wait();
          require_same(t, pattern(size - 1, n, dtype), "broadcast " + what);
          t = pattern(rank, n, dtype);
          group.reduce(t, Reduce::mean, 0).wait();
          if (rank == 0) require_same(t, reduced(size, n, dtype, Reduce::mean), "reduce " + what);

          const Tensor large = pattern(rank, n * size, dtype), small = Tensor::zeros({n}, dtype);
          const Tensor all = Tensor::zeros({n * size}, dtype);
          group.reduce_scatter(large, small, Reduce::sum).wait();
          require_same(small, reduced(size, n, dtype, Reduce::sum, rank * n), "reduce_scatter " + what);
          group.scatter(large, small, 0).wait();
          require_same(small, pattern(0, n, dtype, rank * n), "scatter " + what);
          const auto gathered = [n](std::int64_t i) { return pattern_at(static_cast<int>(i / n), i % n); };
          group.all_gather(pattern(rank, n, dtype), all).wait();
          require_same(all, filled(n * size, dtype, gathered), "all_gather " + what);
          group.gather(pattern(rank, n, dtype), all, 0).wait();
          require_same(all, filled(n * size, dtype, gathered), "gather " + what);
          group.all_to_all(large, all).wait();
          require_same(
              all,
              filled(n * size, dtype,
                     [&](std::int64_t i) { return pattern_at(static_cast<int>(i / n), rank * n + i % n); }),
              "all_to_all " + what);
          const Tensor own = all.slice(0, rank * n, (rank + 1) * n);
          std::memcpy(own.raw(), pattern(rank, n, dtype).raw(), static_cast<std::size_t>(own.bytes()));
          group.all_gather(own, all).wait();
          require_same(all, filled(n * size, dtype, gathered), "all_gather in place " + what);
        }
      }
      group.close();
    }
  } catch (const std::exception& e) {
    error = e.what();
  }
  REQUIRE(error == "");
}

TEST_CASE("MPI starts once: several groups share one job", "[dist][mpi][ranks]") {
  if (!under_mpi()) return;
  for (int i = 0; i < 3; ++i)
    for_each_world([&](ProcessGroup& group) {
      require(group.backend().starts_with("mpi"), "backend");
      group.barrier(str("group ", i)).wait();
    });
  REQUIRE_THROWS_WITH(join_mpi_job(), ContainsSubstring("MPI allows once"));
}

// Waits for rank 1, which throws: mpiexec must end all ranks, and not because of the time-out.
TEST_CASE("hidden: rank 1 throws", "[.][mpi-throw]") {
  for_each_world([](ProcessGroup& group) {
    group.barrier().wait();
    require(group.rank() != 1, "deliberate failure");
    group.all_reduce(Tensor::zeros({10}), Reduce::sum, "bucket 0").wait();
  });
}

// Rank 1 is late for longer than the time-out: rank 0 must say what it waited for and leave MPI behind.
TEST_CASE("hidden: rank 1 never arrives", "[.][mpi-late]") {
  for_each_world(
      [](ProcessGroup& group) {
        group.barrier().wait();
        if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(30));
        group.all_reduce(Tensor::zeros({10}), Reduce::sum, "bucket 0").wait();
      },
      {.group = {.timeout = std::chrono::milliseconds(500)}});
}

TEST_CASE("hidden: a message does not fit", "[.][mpi-misfit]") {
  for_each_world([](ProcessGroup& group) {
    if (group.rank() == 0) group.send(Tensor::zeros({10}), 1).wait();
    if (group.rank() == 1) group.recv(Tensor::zeros({10}, DType::f64), 0).wait();
  });
}
