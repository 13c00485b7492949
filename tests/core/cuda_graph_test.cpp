// SPDX-License-Identifier: MIT
// tests/core/cuda_graph_test.cpp - work of our streams under CUDA's capture, as --cuda-graph needs it: what is recorded
// does not run, events draw other streams in, and a replay does it all again.
#include "core/cuda/check_cuda.h"
#include "core/cuda/stream_cuda.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using test::test_device;

namespace {

Tensor filled(float value) { return test::from(std::vector<float>(100, value), {100}); }

void copy(Stream& stream, const Tensor& to, const Tensor& from) {
  const StreamScope scope(test_device(), stream);
  runtime(test_device()).copy_on_device(to.raw(), from.raw(), from.bytes());
}

}  // namespace

TEST_CASE("a captured step runs when it is launched, each time, over two streams", "[core][.cuda][graph]") {
  Runtime& device = runtime(test_device());
  const auto main = device.make_stream("main"), side = device.make_stream("side");
  const Tensor source = filled(1), between = filled(2), result = filled(3);
  device.current_stream().synchronize();

  check_cuda(cudaStreamBeginCapture(native(*main), cudaStreamCaptureModeThreadLocal),
             "cudaStreamBeginCapture");
  copy(*main, between, source);
  side->wait(main->record());
  copy(*side, result, between);
  main->wait(side->record());
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamEndCapture(native(*main), &graph), "cudaStreamEndCapture");
  cudaGraphExec_t step = nullptr;
  check_cuda(cudaGraphInstantiate(&step, graph, 0), "cudaGraphInstantiate");
  REQUIRE(result.to_vector<float>() == std::vector<float>(100, 3));

  for (const float value : {4.f, 5.f}) {
    const Tensor next = filled(value);
    copy(device.current_stream(), source, next);
    main->wait(device.current_stream().record());
    check_cuda(cudaGraphLaunch(step, native(*main)), "cudaGraphLaunch");
    main->synchronize();
    REQUIRE(result.to_vector<float>() == std::vector<float>(100, value));
  }
  check_cuda(cudaGraphExecDestroy(step), "cudaGraphExecDestroy");
  check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

TEST_CASE("a capture that a stream does not come back from is refused", "[core][.cuda][graph][error]") {
  Runtime& device = runtime(test_device());
  const auto main = device.make_stream("main"), side = device.make_stream("side");
  const Tensor a = filled(1), b = filled(2);
  device.current_stream().synchronize();
  check_cuda(cudaStreamBeginCapture(native(*main), cudaStreamCaptureModeThreadLocal),
             "cudaStreamBeginCapture");
  copy(*main, b, a);
  side->wait(main->record());
  copy(*side, a, b);
  cudaGraph_t graph = nullptr;
  REQUIRE_THROWS_WITH(check_cuda(cudaStreamEndCapture(native(*main), &graph), "cudaStreamEndCapture"),
                      ContainsSubstring("cudaErrorStreamCaptureUnjoined"));
}
