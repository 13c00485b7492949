// SPDX-License-Identifier: MIT
// tests/core/cuda_graph_test.cpp - work of our streams under CUDA's capture, as --cuda-graph needs it: what is recorded
// does not run, events draw other streams in, and a replay does it all again.
#include "core/cuda/check_cuda.h"
#include "core/cuda/stream_cuda.h"
#include "core/fetched.h"
#include "core/graph.h"
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

TEST_CASE("a graph keeps the memory it computes in, and gives it back when it goes", "[core][.cuda][graph]") {
  Runtime& device = runtime(test_device());
  const Tensor input = filled(1), output = filled(0);
  const auto copy_bytes = [](const Tensor& to, const Tensor& from) {
    runtime(test_device()).copy_on_device(to.raw(), from.raw(), from.bytes());
  };
  std::byte* between = nullptr;
  auto graph = capture(test_device(), [&] {
    REQUIRE(is_capturing(test_device()));
    const Tensor temporary = test::empty({100});
    between = temporary.raw();
    copy_bytes(temporary, input);
    copy_bytes(output, temporary);
  });
  REQUIRE_FALSE(is_capturing(test_device()));
  REQUIRE(output.to_vector<float>() == std::vector<float>(100, 0));
  std::vector<Tensor> others;
  for (int i = 0; i < 50; ++i) others.push_back(filled(9));
  for (const Tensor& other : others) REQUIRE(other.raw() != between);
  for (const float value : {4.f, 5.f}) {
    copy_bytes(input, filled(value));
    graph->launch();
    // What is read from it is read behind the launch.
    REQUIRE(Fetched(output).values<float>() == std::vector<float>(100, value));
  }
  graph.reset();
  device.current_stream().synchronize();
  bool again = false;
  for (int i = 0; i < 20000 && !again; ++i) {  // Behind what is free elsewhere.
    others.push_back(test::empty({100}));
    again = again || others.back().raw() == between;
  }
  REQUIRE(again);
}

TEST_CASE("a capture ends with what went wrong in it, and the device goes on",
          "[core][.cuda][graph][error]") {
  const Tensor a = filled(1);
  REQUIRE_THROWS_WITH(capture(test_device(), [] { fail("a mistake of the caller"); }),
                      ContainsSubstring("a mistake of the caller"));
  // The device would have to be waited for.
  REQUIRE_THROWS_WITH(capture(test_device(), [&] { static_cast<void>(a.item()); }),
                      ContainsSubstring("one element"));
  REQUIRE_THROWS_WITH(capture(test_device(), [&] { static_cast<void>(a.to_vector<float>()); }),
                      ContainsSubstring("StreamCapture"));
  REQUIRE_THROWS_WITH(capture(Device{}, [] {}), ContainsSubstring("a CUDA device only; got cpu"));
  REQUIRE_FALSE(is_capturing(test_device()));
  REQUIRE(a.to_vector<float>() == std::vector<float>(100, 1));
}
